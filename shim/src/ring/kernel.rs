// SPDX-License-Identifier: MIT OR Apache-2.0

//! What plays the kernel in tests, on rings in ordinary memory.

use super::lot::Mapping;
use super::shared::{Index, Slots};
use super::Rings;
use crate::memory::Pages;
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::sync::Arc;
use weft_core::uapi::{self, Pod, RingHeader};

/// The kernel's side.
pub(super) struct Kernel {
    sq: Slots<uapi::SendWr>,
    cq: Slots<uapi::Wc>,
    rq: Option<Slots<uapi::RecvWr>>,
    cq_tail: Index,
    cq_head: Index,
    rq_tail: Index,
    rq_head: Index,
    copied: u32,
    completed: u32,
    received: u32,
}

/// What a kernel says of rings for so many requests and buffers.
pub(super) fn said(max_send_wr: u32, max_recv_wr: u32) -> uapi::RingsCreate {
    let mut at = size_of::<RingHeader>() as u32;
    let mut ring = |entries: u32, size: usize| {
        let from = at;
        at += entries * size as u32;
        from
    };
    let sq_entries = max_send_wr.next_power_of_two();
    let cq_entries = (max_send_wr + max_recv_wr).next_power_of_two();
    let rq_entries = match max_recv_wr {
        0 => 0,
        some => some.next_power_of_two(),
    };
    uapi::RingsCreate {
        max_send_wr,
        max_wc: max_send_wr + max_recv_wr,
        max_recv_wr,
        sq_entries,
        cq_entries,
        rq_entries,
        sq_offset: ring(sq_entries, size_of::<uapi::SendWr>()),
        cq_offset: ring(cq_entries, size_of::<uapi::Wc>()),
        rq_offset: ring(rq_entries, size_of::<uapi::RecvWr>()),
        ring_bytes: at,
        ..Pod::zeroed()
    }
}

/// Memory for such rings.
pub(super) fn memory(said: &uapi::RingsCreate) -> Arc<Mapping> {
    let len = NonZeroUsize::new(said.ring_bytes as usize).unwrap();
    Arc::new(Mapping::of(Pages::map(len).unwrap()))
}

/// Both sides, after so many entries have gone through each ring.
pub(super) fn pair(max_send_wr: u32, max_recv_wr: u32, start: u32) -> (Rings, Kernel) {
    let said = said(max_send_wr, max_recv_wr);
    let pages = memory(&said);
    let mut user = Rings::new(&pages, &said).unwrap();
    let index = |offset| Index::new(&pages, offset).unwrap();
    let kernel = Kernel {
        sq: Slots::new(&pages, said.sq_offset, said.sq_entries).unwrap(),
        cq: Slots::new(&pages, said.cq_offset, said.cq_entries).unwrap(),
        rq: Slots::new(&pages, said.rq_offset, said.rq_entries),
        cq_tail: index(offset_of!(RingHeader, cq_tail)),
        cq_head: index(offset_of!(RingHeader, cq_head)),
        rq_tail: index(offset_of!(RingHeader, rq_tail)),
        rq_head: index(offset_of!(RingHeader, rq_head)),
        copied: start,
        completed: start,
        received: start,
    };
    let both = [
        &kernel.cq_tail,
        &kernel.cq_head,
        &kernel.rq_tail,
        &kernel.rq_head,
    ];
    both.map(|index| index.store(start));
    user.send.tail = start;
    (user.done.taken, user.done.seen) = (start, start);
    (user.recv.posted, user.recv.seen) = (start, start);
    (user, kernel)
}

impl Kernel {
    /// Copies the next requests.
    pub(super) fn copy(&mut self, count: u32) -> Vec<uapi::SendWr> {
        let from = self.copied;
        self.copied = from.wrapping_add(count);
        (0..count)
            .map(|at| self.sq.load(from.wrapping_add(at)))
            .collect()
    }

    /// Writes a completion, if there is room.
    pub(super) fn complete(&mut self, wc: &uapi::Wc) -> bool {
        let waiting = self.completed.wrapping_sub(self.cq_head.load());
        if waiting >= self.cq.entries() {
            return false;
        }
        self.cq.store(self.completed, wc);
        self.completed = self.completed.wrapping_add(1);
        self.cq_tail.store(self.completed);
        true
    }

    /// Copies the next receive buffer, if there is one.
    pub(super) fn receive(&mut self) -> Option<uapi::RecvWr> {
        if self.rq_tail.load() == self.received {
            return None;
        }
        let wr = self.rq.as_ref()?.load(self.received);
        self.received = self.received.wrapping_add(1);
        self.rq_head.store(self.received);
        Some(wr)
    }

    /// Writes nonsense into the kernel's indices.
    pub(super) fn lie(&self, cq_tail: u32, rq_head: u32) {
        self.cq_tail.store(cq_tail);
        self.rq_head.store(rq_head);
    }
}
