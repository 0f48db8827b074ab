// SPDX-License-Identifier: MIT OR Apache-2.0

//! A bound VQP: messages from any number of senders, and a VQP connected to each of
//! them (krcore §4.1 and §4.4, `qpop_msgs`).
//!
//! The paper answers with a VQP for each message. Here it is made when it is asked
//! for: who does not reply pays for no VQP.

use crate::error::{CompletionError, Error};
use crate::ioctl;
use crate::vqp::{Vqp, VqpConfig};
use crate::wc::{Sender, Wc};
use crate::wr::RecvWr;
use std::collections::hash_map::{Entry, HashMap};
use std::time::Duration;
use weft_core::uapi;

/// VQPs to senders that a [`Listener`] keeps. One more takes the place of the one
/// that was not used for longest, of those that owe their user nothing: with a signalled
/// request whose completion was not taken, a VQP stays; once an error was taken, with any
/// completion that is there. Requests that are not signalled go on when their VQP is pushed
/// out, as those of any [`Vqp`] that is dropped.
pub const MAX_ACCEPTED: usize = 128;

/// Messages that are taken off the ring at once.
const BATCH: usize = 32;

/// A VQP that is bound to a port, from [`Vqp::bind`].
#[derive(Debug)]
pub struct Listener {
    vqp: Vqp,
    accepted: Accepted<Vqp>,
}

/// A VQP could not be bound. It is in here, as it was, to be used for something else.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BindError {
    error: Error,
    vqp: Box<Vqp>,
}

impl BindError {
    pub(crate) fn new(error: Error, vqp: Vqp) -> Self {
        let vqp = Box::new(vqp);
        Self { error, vqp }
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The VQP.
    #[must_use]
    pub fn into_vqp(self) -> Vqp {
        *self.vqp
    }
}

impl From<BindError> for Error {
    fn from(failed: BindError) -> Self {
        failed.error
    }
}

/// A message that has arrived in a receive buffer, or how the buffer failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    wc: Wc,
}

impl Message {
    /// From the receive buffer that it is in.
    #[must_use]
    pub const fn wr_id(&self) -> u64 {
        self.wc.wr_id()
    }

    /// Its length in bytes; of a WRITE with an immediate, the bytes written.
    ///
    /// # Errors
    ///
    /// The buffer has failed: it is shorter than the message, say.
    pub fn result(&self) -> Result<u32, CompletionError> {
        self.wc.result()
    }

    /// The immediate that came with it.
    #[must_use]
    pub const fn imm(&self) -> Option<u32> {
        self.wc.imm()
    }

    /// Who sent it, for [`Listener::vqp`]; `None` if nobody can be reached.
    #[must_use]
    pub const fn sender(&self) -> Option<Sender> {
        self.wc.sender()
    }

    /// All that its completion says.
    #[must_use]
    pub const fn wc(&self) -> &Wc {
        &self.wc
    }
}

impl Listener {
    pub(crate) fn new(vqp: Vqp) -> Self {
        Self {
            vqp,
            accepted: Accepted::default(),
        }
    }

    /// Posts receive buffers, as [`Vqp::post_recv`].
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> usize {
        self.vqp.post_recv(wrs)
    }

    /// Waits until there are `min` messages or `timeout` is over, and takes what
    /// fits; answers with how many. Takes no system call if there are enough.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`], [`Error::Interrupted`]; nothing was taken then.
    pub fn pop_msgs(
        &mut self,
        messages: &mut [Message],
        min: usize,
        timeout: Duration,
    ) -> Result<usize, Error> {
        let mut done = 0;
        if min > 0 {
            let room = messages.len();
            if min > room {
                return Err(Error::NoRoom { min, room });
            }
            self.vqp.wait(min, timeout)?;
        }
        for places in messages.chunks_mut(BATCH) {
            let mut wcs = [Wc::default(); BATCH];
            let count = self.vqp.poll_cq(&mut wcs[..places.len()])?;
            for (place, wc) in places.iter_mut().zip(&wcs[..count]) {
                *place = Message { wc: *wc };
            }
            done += count;
            if count < places.len() {
                break;
            }
        }
        Ok(done)
    }

    /// The VQP connected to a sender, accepted when it is first asked for. It has
    /// room for as many requests as the bound one, and does not receive: what the
    /// sender sends arrives at the listener. The last [`MAX_ACCEPTED`] are kept.
    ///
    /// # Errors
    ///
    /// As [`Self::accept`]; [`Error::TooManySenders`]: as many are kept, and each has
    /// completions that were not taken.
    pub fn vqp(&mut self, sender: Sender) -> Result<&mut Vqp, Error> {
        let config = VqpConfig {
            max_recv_wr: 0,
            ..*self.vqp.config()
        };
        let bound = &self.vqp;
        self.accepted
            .get_or_make(sender, Vqp::owes_nothing, || accept(bound, sender, &config))
    }

    /// A new VQP connected to a sender, for the caller to keep. Nobody is asked: what
    /// it takes came with the message.
    ///
    /// # Errors
    ///
    /// [`Error::SenderGone`], and those of [`Vqp::create`].
    pub fn accept(&self, sender: Sender, config: &VqpConfig) -> Result<Vqp, Error> {
        accept(&self.vqp, sender, config)
    }

    /// Drops the VQP of a sender that [`Self::vqp`] keeps, because it has failed,
    /// say. The next call of that makes another.
    pub fn forget(&mut self, sender: Sender) {
        self.accepted.vqps.remove(&sender);
    }
}

fn accept(bound: &Vqp, sender: Sender, config: &VqpConfig) -> Result<Vqp, Error> {
    let device = bound.device();
    let queues = config.queues(device)?;
    let mut arg = uapi::Accept {
        vqp: config.to_raw(queues.end().number()),
        bound: bound.number(),
        src: sender.0,
    };
    ioctl::accept(device.fd(), &mut arg).map_err(Error::of_accept)?;
    Ok(Vqp::adopt(queues, config, arg.vqp.vqp))
}

/// What was accepted, and when it was used.
///
/// # Invariants
///
/// There are at most [`MAX_ACCEPTED`].
#[derive(Debug)]
struct Accepted<T> {
    vqps: HashMap<Sender, (u64, T)>,
    /// Counts uses.
    now: u64,
}

impl<T> Default for Accepted<T> {
    fn default() -> Self {
        Self {
            vqps: HashMap::new(),
            now: 0,
        }
    }
}

impl<T> Accepted<T> {
    /// `may_go` says which may be pushed out.
    fn get_or_make(
        &mut self,
        sender: Sender,
        may_go: impl Fn(&mut T) -> bool,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<&mut T, Error> {
        self.now += 1;
        if !self.vqps.contains_key(&sender) {
            self.make_room(may_go)?;
        }
        let (used, vqp) = match self.vqps.entry(sender) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert((0, make()?)),
        };
        *used = self.now;
        Ok(vqp)
    }

    fn make_room(&mut self, may_go: impl Fn(&mut T) -> bool) -> Result<(), Error> {
        if self.vqps.len() < MAX_ACCEPTED {
            return Ok(());
        }
        let all = self.vqps.iter_mut();
        let quiet = all.filter_map(|(sender, (used, vqp))| may_go(vqp).then_some((*used, *sender)));
        let oldest = quiet.min_by_key(|(used, _)| *used);
        let (_, sender) = oldest.ok_or(Error::TooManySenders)?;
        self.vqps.remove(&sender);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_accepted_once() {
        let mut accepted = Accepted::default();
        for sender in [1, 2, 1] {
            let made = accepted.get_or_make(Sender(sender), |_| true, || Ok(sender * 10));
            assert_eq!(made.copied(), Ok(sender * 10));
        }
        let again = accepted.get_or_make(Sender(1), |_| true, || Err(Error::TooManyVqps));
        assert_eq!(again.copied(), Ok(10));
    }

    #[test]
    fn a_sender_that_has_gone_leaves_no_trace() {
        let mut accepted = Accepted::<()>::default();
        let gone = accepted.get_or_make(Sender(1), |_| true, || Err(Error::SenderGone));
        assert_eq!(gone, Err(Error::SenderGone));
        assert!(accepted.vqps.is_empty());
    }

    fn full() -> Accepted<u32> {
        let mut accepted = Accepted::default();
        for sender in 0..MAX_ACCEPTED as u32 {
            let made = accepted.get_or_make(Sender(sender), |_| true, || Ok(sender));
            made.unwrap();
        }
        accepted
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_goes() {
        let mut accepted = full();
        let new = || Ok(0);
        accepted.get_or_make(Sender(0), |_| true, new).unwrap();
        accepted.get_or_make(Sender(9999), |_| true, new).unwrap();
        assert_eq!(accepted.vqps.len(), MAX_ACCEPTED);
        assert!(accepted.vqps.contains_key(&Sender(0)));
        assert!(!accepted.vqps.contains_key(&Sender(1)));
    }

    #[test]
    fn one_with_requests_under_way_is_not_pushed_out() {
        let mut accepted = full();
        let made = accepted.get_or_make(Sender(9999), |vqp| *vqp > 2, || Ok(0));
        assert_eq!(made.copied(), Ok(0));
        let kept = (0..5).filter(|sender| accepted.vqps.contains_key(&Sender(*sender)));
        assert_eq!(kept.collect::<Vec<_>>(), [0, 1, 2, 4]);
    }

    #[test]
    fn when_none_may_go_the_caller_is_told() {
        let mut accepted = full();
        let none = accepted.get_or_make(Sender(9999), |_| false, || Ok(0));
        assert_eq!(none, Err(Error::TooManySenders));
        let known = accepted.get_or_make(Sender(3), |_| false, || Ok(0));
        assert_eq!(known.copied(), Ok(3));
    }
}
