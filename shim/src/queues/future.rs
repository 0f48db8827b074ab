// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues for tasks of tokio.

use super::Queues;
use crate::error::Error;
use crate::wc::Wc;
use crate::wr::SendWr;
use std::os::fd::{AsFd as _, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

/// [`Queues`] whose completions a task of tokio waits for, without a thread that sleeps in
/// the module. To be used within a runtime that has its I/O driver enabled.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let (gid, local, remote): (weft_shim::Gid, weft_shim::LocalSlice<'_>, weft_shim::Remote) = todo!();
/// use weft_shim::{AsyncQueues, Device, QpConfig, Queues, QueuesConfig, SendWr, Wc};
///
/// let device = Device::open()?;
/// let mut queues = AsyncQueues::new(Queues::create(&device, &QueuesConfig::default())?)?;
/// let qp = queues.get_ref().connect(gid, 0, &QpConfig::default())?;
/// queues.post_send(&[SendWr::read(local, remote).on(&qp).signaled()])?;
/// let mut wcs = [Wc::default(); 8];
/// let count = queues.completions(&mut wcs).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncQueues {
    queues: Queues,
    /// The session's, by a descriptor of its own: a runtime knows each only once.
    session: AsyncFd<OwnedFd>,
}

impl AsyncQueues {
    /// Makes the runtime watch the session of these queues.
    ///
    /// # Errors
    ///
    /// The process has no more descriptors.
    ///
    /// # Panics
    ///
    /// Outside of a runtime with an I/O driver.
    pub fn new(queues: Queues) -> std::io::Result<Self> {
        let session = queues.end.device().as_fd().try_clone_to_owned()?;
        // SAFETY: it is an open descriptor, always the same, which `session` alone owns and
        // nobody takes out of it.
        let session = unsafe { AsyncFd::register_with_interest(session, Interest::READABLE)? };
        Ok(Self { queues, session })
    }

    /// The queues, to make queue pairs on.
    #[must_use]
    pub fn get_ref(&self) -> &Queues {
        &self.queues
    }

    /// The queues, for calls that do not wait for completions. One that posts may sleep, as
    /// [`Self::post_send`] does.
    pub fn get_mut(&mut self) -> &mut Queues {
        &mut self.queues
    }

    /// As [`Queues::post_send`], which does not wait for completions, but may sleep before it
    /// has taken a request. It has the runtime's thread meanwhile: where that matters, call it
    /// within `tokio::task::block_in_place` or `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// Those of that.
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<usize, Error> {
        self.queues.post_send(wrs)
    }

    /// Waits until there are completions and takes what fits; answers with how many. If the
    /// future is dropped, none is lost.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`]: the node has gone, and no completion is there now. Completions of
    /// requests that were under way may still follow: call again a moment later.
    /// [`Error::NoRoom`] if `wcs` has no place.
    pub async fn completions(&mut self, wcs: &mut [Wc]) -> Result<usize, Error> {
        if wcs.is_empty() {
            return Err(Error::NoRoom { min: 1, room: 0 });
        }
        loop {
            let count = self.queues.poll_cq(wcs);
            if count != 0 {
                return Ok(count);
            }
            // The session is readable for the completions of its other queues too, and
            // each that comes makes it so anew.
            let mut ready = self.session.readable().await.map_err(|_| Error::NodeGone)?;
            if ready.ready().is_read_closed() {
                return self.last(wcs);
            }
            ready.clear_ready();
        }
    }

    /// Takes what is there once the node has gone. Completions of requests under way may still
    /// follow: the module wakes pollers first and ends these requests afterwards.
    fn last(&mut self, wcs: &mut [Wc]) -> Result<usize, Error> {
        match self.queues.poll_cq(wcs) {
            0 => Err(Error::NodeGone),
            count => Ok(count),
        }
    }
}
