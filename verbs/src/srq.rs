// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues: one set of buffers for any number of queue pairs.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use crate::error::{done, made};
use crate::{sys, Access, Error, Mr, Pages, Pd, Result};

/// A shared receive queue with its buffers, all of one size, all posted when it
/// is made. A buffer is named by its index, which is the completion's
/// [`wr_id`](crate::Wc::wr_id). Clones share it.
#[derive(Clone, Debug)]
pub struct Srq(Arc<SrqInner>);

/// # Invariants
///
/// `buffers` holds `count` buffers of `buffer_bytes` (a multiple of 8) each.
#[derive(Debug)]
struct SrqInner {
    raw: NonNull<sys::ibv_srq>,
    buffers: Mr,
    buffer_bytes: u32,
    count: u32,
}

// SAFETY: libibverbs is thread safe.
unsafe impl Send for SrqInner {}
// SAFETY: as above; the buffers are atomics.
unsafe impl Sync for SrqInner {}

impl Srq {
    /// Makes a queue of `count` receives of `buffer_bytes` (rounded up to 8) each.
    /// (`ibv_create_srq`)
    ///
    /// # Errors
    ///
    /// `EINVAL` when the device has no shared receive queue of that depth;
    /// what [`Mr::register`] answers.
    pub fn new(pd: &Pd, count: u32, buffer_bytes: u32) -> Result<Self> {
        let buffer_bytes = buffer_bytes
            .checked_next_multiple_of(8)
            .ok_or(Error::TooLarge(usize::MAX))?;
        let bytes = usize::try_from(u64::from(count) * u64::from(buffer_bytes))
            .map_err(|_| Error::TooLarge(usize::MAX))?;
        let buffers = Mr::register(pd, &Pages::zeroed(bytes)?, Access::LocalWrite)?;
        let mut attr = sys::ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: sys::ibv_srq_attr {
                max_wr: count,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY: the domain exists and is kept by `buffers`; `attr` is whole.
        let raw = unsafe { sys::ibv_create_srq(pd.raw(), &mut attr) };
        // INVARIANT: `buffers` was made of this size.
        let queue = Self(Arc::new(SrqInner {
            raw: made("ibv_create_srq", raw)?,
            buffers,
            buffer_bytes,
            count,
        }));
        for index in 0..u64::from(count) {
            queue.post(index)?;
        }
        Ok(queue)
    }

    /// Gives a buffer back to the queue. An unknown index does nothing.
    /// (`ibv_post_srq_recv`)
    ///
    /// # Errors
    ///
    /// What the device answers, `ENOMEM` when the queue is full.
    pub fn post(&self, index: u64) -> Result<()> {
        if index >= u64::from(self.0.count) {
            return Ok(());
        }
        let mut sge = sys::ibv_sge {
            addr: self.0.buffers.pages().addr() + index * u64::from(self.0.buffer_bytes),
            length: self.0.buffer_bytes,
            lkey: self.0.buffers.lkey(),
        };
        let mut wr = sys::ibv_recv_wr {
            wr_id: index,
            next: ptr::null_mut(),
            sg_list: &mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue exists, the request and its element live through the
        // call, and the buffer lies in registered memory (invariant).
        let answer = unsafe { sys::ibv_post_srq_recv(self.raw(), &mut wr, &mut bad) };
        done("ibv_post_srq_recv", answer)
    }

    /// Copies the first `len` bytes of a buffer that a completion named; fewer if
    /// the buffer is shorter, none if there is no such buffer.
    #[must_use]
    pub fn message(&self, index: u64, len: u32) -> Vec<u8> {
        if index >= u64::from(self.0.count) {
            return Vec::new();
        }
        let words = usize::try_from(self.0.buffer_bytes / 8).unwrap_or(0);
        let first = usize::try_from(index).unwrap_or(0) * words;
        let mut bytes: Vec<u8> = self.0.buffers.pages().words()[first..first + words]
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        bytes
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_srq {
        self.0.raw.as_ptr()
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: made in `Srq::new`; the queue pairs that use it hold it, so
        // there are none. The buffers go after it.
        unsafe { sys::ibv_destroy_srq(self.raw.as_ptr()) };
    }
}
