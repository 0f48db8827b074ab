// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use std::ffi::{c_int, CStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::error::{done, made};
use crate::{sys, Context, Error, Result};

/// One completion.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Wc(sys::ibv_wc);

impl Wc {
    /// The identifier that the work request carried.
    #[must_use]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// The local queue pair.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// Bytes that a receive filled.
    #[must_use]
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Whether it is of a receive, not of a request.
    #[must_use]
    pub fn is_recv(&self) -> bool {
        self.0.opcode & sys::IBV_WC_RECV != 0
    }

    /// Why the request failed, in the library's words, or `None` if it did not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if self.0.status == sys::IBV_WC_SUCCESS {
            return None;
        }
        // SAFETY: any status is answered with a static C string.
        let text = unsafe { CStr::from_ptr(sys::ibv_wc_status_str(self.0.status)) };
        Some(text.to_string_lossy().into_owned())
    }
}

/// A completion queue. Clones share it.
#[derive(Clone, Debug)]
pub struct Cq(Arc<CqInner>);

#[derive(Debug)]
struct CqInner {
    raw: NonNull<sys::ibv_cq>,
    /// Kept until the queue is destroyed.
    _channel: Option<Arc<Channel>>,
    _context: Context,
}

// SAFETY: libibverbs is thread safe; polling locks inside the provider.
unsafe impl Send for CqInner {}
// SAFETY: as above.
unsafe impl Sync for CqInner {}

impl Cq {
    /// Makes a queue for `entries` completions, to be polled. (`ibv_create_cq`)
    ///
    /// # Errors
    ///
    /// `EINVAL` when the device cannot hold that many entries, `ENOMEM`.
    pub fn new(context: &Context, entries: u32) -> Result<Self> {
        Self::on_channel(context, entries, None)
    }

    fn on_channel(context: &Context, entries: u32, channel: Option<Arc<Channel>>) -> Result<Self> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let raw_channel = match &channel {
            Some(channel) => channel.0.as_ptr(),
            None => ptr::null_mut(),
        };
        // SAFETY: the context is open and the channel, if any, is of this
        // context; both are kept until after the queue is destroyed.
        let raw =
            unsafe { sys::ibv_create_cq(context.raw(), entries, ptr::null_mut(), raw_channel, 0) };
        Ok(Self(Arc::new(CqInner {
            raw: made("ibv_create_cq", raw)?,
            _channel: channel,
            _context: context.clone(),
        })))
    }

    /// Takes completions that have arrived, at most `room.len()`, and never waits.
    /// (`ibv_poll_cq`)
    ///
    /// # Errors
    ///
    /// What the device answers when the queue is broken, by overflow for one.
    pub fn poll<'a>(&self, room: &'a mut [Wc]) -> Result<&'a [Wc]> {
        let count = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists; `room` is writable for `count` entries, and
        // `Wc` is transparent over `ibv_wc`.
        let taken = unsafe { sys::ibv_poll_cq(self.raw(), count, room.as_mut_ptr().cast()) };
        match usize::try_from(taken) {
            Ok(taken) => Ok(&room[..taken]),
            Err(_) => Err(Error::last("ibv_poll_cq")),
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_cq {
        self.0.raw.as_ptr()
    }
}

/// A completion queue whose descriptor becomes readable when, after
/// [`EventCq::arm`], a completion arrives.
#[derive(Debug)]
pub struct EventCq {
    cq: Cq,
    channel: Arc<Channel>,
}

impl EventCq {
    /// Makes a queue for `entries` completions with a completion channel of its
    /// own. (`ibv_create_comp_channel`, `ibv_create_cq`)
    ///
    /// # Errors
    ///
    /// As [`Cq::new`].
    pub fn new(context: &Context, entries: u32) -> Result<Self> {
        let channel = Arc::new(Channel::new(context)?);
        channel.set_nonblocking()?;
        let cq = Cq::on_channel(context, entries, Some(channel.clone()))?;
        Ok(Self { cq, channel })
    }

    /// The same for a thread that waits for this queue and nothing else: its
    /// descriptor blocks, and [`EventCq::wait`] is for it.
    ///
    /// # Errors
    ///
    /// As [`Cq::new`].
    pub fn blocking(context: &Context, entries: u32) -> Result<Self> {
        let channel = Arc::new(Channel::new(context)?);
        let cq = Cq::on_channel(context, entries, Some(channel.clone()))?;
        Ok(Self { cq, channel })
    }

    /// The queue.
    #[must_use]
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Asks for one event at the next completion. Poll once more afterwards: one
    /// that came before makes no event. (`ibv_req_notify_cq`)
    ///
    /// # Errors
    ///
    /// What the device answers.
    pub fn arm(&self) -> Result<()> {
        // SAFETY: the queue exists.
        let answer = unsafe { sys::ibv_req_notify_cq(self.cq.raw(), 0) };
        done("ibv_req_notify_cq", answer)
    }

    /// Sleeps until there is an event, and takes it; of a queue that was made
    /// [`blocking`](EventCq::blocking). (`ibv_get_cq_event`, `ibv_ack_cq_events`)
    ///
    /// # Errors
    ///
    /// `EINTR` when a signal came first; `EAGAIN` at a queue that does not block.
    pub fn wait(&self) -> Result<()> {
        self.take_event()
    }

    /// Takes one event, or waits for it if the descriptor blocks.
    fn take_event(&self) -> Result<()> {
        let mut cq = ptr::null_mut();
        let mut tag = ptr::null_mut();
        // SAFETY: the channel exists and both places are writable.
        let answer = unsafe { sys::ibv_get_cq_event(self.channel.0.as_ptr(), &mut cq, &mut tag) };
        if answer != 0 {
            return Err(Error::last("ibv_get_cq_event"));
        }
        // SAFETY: the event came from this queue, the channel's only one, and is
        // acknowledged once.
        unsafe { sys::ibv_ack_cq_events(cq, 1) };
        Ok(())
    }

    /// Takes the events that made the descriptor readable, of a queue that does
    /// not block.
    /// (`ibv_get_cq_event`, `ibv_ack_cq_events`)
    ///
    /// # Errors
    ///
    /// What reading the completion channel answers.
    pub fn take_events(&self) -> Result<()> {
        loop {
            match self.take_event() {
                Err(error) if error.errno() == Some(libc::EAGAIN) => return Ok(()),
                taken => taken?,
            }
        }
    }
}

impl AsFd for EventCq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists as long as `self`.
        let fd = unsafe { self.channel.0.as_ref() }.fd;
        // SAFETY: the descriptor is open until the channel is destroyed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // SAFETY: made in `on_channel`; the queue pairs that use it hold it, so
        // there are none. All events were acknowledged where they were taken.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

/// A completion channel, of one queue.
#[derive(Debug)]
struct Channel(NonNull<sys::ibv_comp_channel>);

// SAFETY: libibverbs is thread safe; a channel is a file descriptor.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    fn new(context: &Context) -> Result<Self> {
        // SAFETY: the context is open; the queue on this channel keeps it so.
        let raw = unsafe { sys::ibv_create_comp_channel(context.raw()) };
        Ok(Self(made("ibv_create_comp_channel", raw)?))
    }

    fn set_nonblocking(&self) -> Result<()> {
        // SAFETY: the channel exists as long as `self`.
        set_nonblocking(unsafe { self.0.as_ref() }.fd)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made in `new`; its queue is gone.
        unsafe { sys::ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

/// Makes reads of `fd`, which must be open, answer `EAGAIN` instead of waiting.
pub(crate) fn set_nonblocking(fd: c_int) -> Result<()> {
    // SAFETY: `F_GETFL` takes no memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(Error::last("fcntl"));
    }
    // SAFETY: `F_SETFL` takes no memory.
    let answer = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    done("fcntl", answer)
}
