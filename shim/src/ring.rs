// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rings that a session shares with the kernel (`weft_core::uapi`, "Rings").
//!
//! Each side keeps its own indices in memory that the other one cannot write, and
//! reads the other's as seldom as it can (a cached copy, looked at again when it
//! says that there is nothing). What is read from a ring is believed to be nothing
//! but numbers: whatever the kernel writes, an access stays within the mapping and
//! a loop within the ring's size.
//!
//! The kernel maps the rings with `VM_DONTCOPY`: a child that is forked does not
//! have them, and must not touch its parent's VQPs and queues.

mod lot;
mod shared;

#[cfg(test)]
mod kernel;
#[cfg(test)]
pub(crate) mod tests;

use nix::errno::Errno;
use shared::{Index, Slots};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use weft_core::uapi::{self, Pod, RingHeader, MAX_BATCH};

pub(crate) use lot::{Lot, Mapping};

/// One set of rings. They are apart so that each may have a lock of its own.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) send: SendRing,
    pub(crate) done: CompletionRing,
    pub(crate) recv: RecvRing,
}

impl Rings {
    /// Maps the rings that the kernel has made.
    ///
    /// # Errors
    ///
    /// As [`Lot::map`].
    pub(crate) fn map(
        fd: BorrowedFd<'_>,
        lot: &Arc<Lot>,
        said: &uapi::RingsCreate,
    ) -> Result<Self, Errno> {
        Self::new(&Arc::new(lot.map(fd, said)?), said).ok_or(Errno::EPROTO)
    }

    /// The rings in a mapping. `None`: what is said of them cannot be.
    pub(crate) fn new(pages: &Arc<Mapping>, said: &uapi::RingsCreate) -> Option<Self> {
        let index = |offset| Index::new(pages, offset);
        let capacity = said.max_recv_wr;
        Some(Self {
            send: SendRing {
                slots: slots(pages, said.sq_offset, said.sq_entries, said.max_send_wr)?,
                tail: 0,
            },
            done: CompletionRing {
                slots: slots(pages, said.cq_offset, said.cq_entries, said.max_wc)?,
                tail: index(offset_of!(RingHeader, cq_tail))?,
                head: index(offset_of!(RingHeader, cq_head))?,
                taken: 0,
                seen: 0,
            },
            recv: RecvRing {
                slots: slots(pages, said.rq_offset, said.rq_entries, said.max_recv_wr)?,
                tail: index(offset_of!(RingHeader, rq_tail))?,
                head: index(offset_of!(RingHeader, rq_head))?,
                capacity,
                posted: 0,
                seen: 0,
            },
        })
    }
}

/// The entries of a ring, `Some(None)` if none were `wanted`. `None`: what is said of them
/// cannot be.
fn slots<T: Pod>(
    pages: &Arc<Mapping>,
    offset: u32,
    entries: u32,
    wanted: u32,
) -> Option<Option<Slots<T>>> {
    match wanted {
        0 => Some(None),
        _ if entries < wanted => None,
        _ => Slots::new(pages, offset, entries).map(Some),
    }
}

fn entries<T: Pod>(slots: &Option<Slots<T>>) -> u32 {
    slots.as_ref().map_or(0, Slots::entries)
}

/// Work requests on their way to the kernel.
///
/// Between two system calls it is empty: the kernel copies what it takes, and what
/// it does not take is put there again.
#[derive(Debug)]
pub(crate) struct SendRing {
    /// `None`: nothing can be submitted.
    slots: Option<Slots<uapi::SendWr>>,
    /// Requests that the kernel has taken so far.
    tail: u32,
}

impl SendRing {
    /// Requests that one system call can submit.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        entries(&self.slots).min(MAX_BATCH) as usize
    }

    /// Puts a request into a place, counted from the first that the kernel has not
    /// taken.
    #[inline]
    pub(crate) fn put(&mut self, at: u32, wr: &uapi::SendWr) {
        if let Some(slots) = &self.slots {
            slots.store(self.tail.wrapping_add(at), wr);
        }
    }

    /// The kernel has taken so many.
    #[inline]
    pub(crate) fn took(&mut self, count: u32) {
        self.tail = self.tail.wrapping_add(count);
    }
}

/// Completions on their way to the user.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    /// `None`: nothing completes there.
    slots: Option<Slots<uapi::Wc>>,
    /// The kernel's.
    tail: Index,
    /// Ours: `taken`, for the kernel to see.
    head: Index,
    taken: u32,
    /// `tail` when it was looked at last.
    seen: u32,
}

impl CompletionRing {
    /// Places that it has.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        entries(&self.slots) as usize
    }

    /// Completions that are there. The kernel's index is looked at only if fewer
    /// than `wanted` are known of.
    #[inline]
    pub(crate) fn ready(&mut self, wanted: usize) -> usize {
        let known = |this: &Self| {
            let count = this.seen.wrapping_sub(this.taken);
            // More than there are places is nonsense.
            count.min(entries(&this.slots)) as usize
        };
        if known(self) < wanted {
            self.seen = self.tail.load();
        }
        known(self)
    }

    /// Takes at most `max` completions, oldest first; answers with how many.
    #[inline]
    pub(crate) fn take(&mut self, max: usize, mut into: impl FnMut(usize, uapi::Wc)) -> usize {
        let count = self.ready(max).min(max);
        let Some(slots) = self.slots.as_ref().filter(|_| count != 0) else {
            return 0;
        };
        for at in 0..count {
            into(at, slots.load(self.taken));
            self.taken = self.taken.wrapping_add(1);
        }
        // The kernel may use the places again: they were read.
        self.head.store(self.taken);
        count
    }

    /// Throws away the completions that are there and that `is_dead` names; the others keep
    /// their order. (`mlx5_cq_clean` of rdma-core)
    ///
    /// They move up to the newest place, so that the kernel sees free places where it
    /// looks for them. The kernel writes none of the places that hold completions.
    pub(crate) fn purge(&mut self, mut is_dead: impl FnMut(&uapi::Wc) -> bool) {
        let count = self.ready(usize::MAX);
        let Some(slots) = &self.slots else {
            return;
        };
        // Entries from the oldest on are numbered from `taken`.
        let mut free = count;
        for at in (0..count).rev() {
            let wc = slots.load(self.taken.wrapping_add(at as u32));
            if !is_dead(&wc) {
                free -= 1;
                if free != at {
                    slots.store(self.taken.wrapping_add(free as u32), &wc);
                }
            }
        }
        if free != 0 {
            self.taken = self.taken.wrapping_add(free as u32);
            self.head.store(self.taken);
        }
    }
}

/// Receive buffers on their way to the kernel.
#[derive(Debug)]
pub(crate) struct RecvRing {
    /// `None`: nothing is received.
    slots: Option<Slots<uapi::RecvWr>>,
    /// Ours: `posted`, for the kernel to see.
    tail: Index,
    /// The kernel's.
    head: Index,
    /// Buffers that may be posted.
    capacity: u32,
    posted: u32,
    /// `head` when it was looked at last.
    seen: u32,
}

impl RecvRing {
    /// Whether it can ever hold a buffer.
    pub(crate) fn is_there(&self) -> bool {
        self.slots.is_some()
    }

    /// Buffers that may be posted.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Buffers that the kernel has taken since the ring was made (free-running).
    pub(crate) fn taken(&self) -> u32 {
        self.head.load()
    }

    /// Buffers that can be put there. The kernel's index is looked at only if fewer
    /// than `wanted` are known to fit.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        let known = |this: &Self| {
            let waiting = this.posted.wrapping_sub(this.seen);
            this.capacity.saturating_sub(waiting) as usize
        };
        if known(self) < wanted {
            self.seen = self.head.load();
        }
        known(self)
    }

    /// Puts a buffer into a place, counted from the last that was published. There
    /// has to be room for it.
    #[inline]
    pub(crate) fn put(&mut self, at: u32, wr: &uapi::RecvWr) {
        if let Some(slots) = &self.slots {
            slots.store(self.posted.wrapping_add(at), wr);
        }
    }

    /// Gives the kernel the first `count` that were put there.
    #[inline]
    pub(crate) fn publish(&mut self, count: u32) {
        if count > 0 {
            self.posted = self.posted.wrapping_add(count);
            self.tail.store(self.posted);
        }
    }
}
