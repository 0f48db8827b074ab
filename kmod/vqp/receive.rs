// SPDX-License-Identifier: GPL-2.0

//! The receiving side: ports, receive buffers, messages (krcore §4.4).

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use weft_core::dc::wire::{Message, Receiver};
use weft_core::uapi::{self, RecvWr, Wc, WcStatus};
use weft_core::vqp::Queues;

use super::{Sender, Senders, Vqp};
use crate::dc::{Arrival, Receives};

impl Vqp {
    /// Makes it the receiver of a port; it can be that of one. The session's lock
    /// is held.
    pub(crate) fn bind(&self, senders: Pin<KBox<Senders>>) {
        self.bound.set(senders);
    }

    /// Whether it is bound to a port.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.get().is_some()
    }

    /// Whether it has a receive ring.
    pub(crate) fn receives(&self) -> bool {
        self.rings.rq_entries() != 0
    }

    /// The names under which it receives.
    pub(crate) fn receivers(&self) -> [Option<Receiver>; 2] {
        let port = self.bound.get().map(|bound| Receiver::Port(bound.port()));
        let flow = self.receives().then_some(Receiver::Flow(self.flow));
        [flow, port]
    }

    /// It was destroyed. When this returns nothing lands in its receive buffers any
    /// more, also of messages that are not all there: the process may use the memory
    /// for something else.
    pub(crate) fn stop_receiving(&self) {
        // Each side stores before it looks: one of them sees the other.
        self.deaf.store(true, Ordering::SeqCst);
        while self.landing.load(Ordering::SeqCst) != 0 {
            // A softirq on another CPU copies a chunk.
            core::hint::spin_loop();
        }
    }

    /// The sender of a message to this bound VQP.
    ///
    /// # Errors
    ///
    /// `EINVAL` (it is not bound), `ENOENT`.
    pub(crate) fn sender(&self, number: u32) -> Result<Sender> {
        self.bound.get().ok_or(EINVAL)?.find(number).ok_or(ENOENT)
    }

    /// Hands back what was posted to receive.
    pub(super) fn flush_receives(&self, queues: &mut Queues, status: WcStatus) {
        // At most as many as there are places for completions. Those that the user
        // has given back meanwhile are among them.
        queues.reaped_to(self.rings.cq_head());
        while let Some(index) = queues.claim(self.rings.rq_tail()) {
            self.rings.set_rq_head(queues.rq_head());
            let wr_id = self.rings.recv_wr(index).wr_id;
            if let Some(place) = queues.received() {
                self.rings
                    .push(place, &self.wc(wr_id, status, uapi::WC_RECV));
            }
        }
    }
}

impl Receives for Vqp {
    fn owner(&self) -> u64 {
        self.owner.session
    }

    fn admits(&self, arrival: &Arrival) -> bool {
        if self.is_bound() {
            return true;
        }
        // A connected VQP hears its peer alone.
        let connection = self.connection.get();
        !self.failed.load(Ordering::Relaxed)
            && connection.is_some_and(|connection| {
                connection.peer.is_at(arrival.from, arrival.message.sender)
            })
    }

    fn claim(&self) -> Option<RecvWr> {
        let mut queues = self.queues.lock();
        queues.reaped_to(self.rings.cq_head());
        let index = queues.claim(self.rings.rq_tail())?;
        self.rings.set_rq_head(queues.rq_head());
        Some(self.rings.recv_wr(index))
    }

    fn lands(&self) -> bool {
        self.landing.fetch_add(1, Ordering::SeqCst);
        let lands = !self.deaf.load(Ordering::SeqCst);
        if !lands {
            self.landed();
        }
        lands
    }

    fn landed(&self) {
        self.landing.fetch_sub(1, Ordering::SeqCst);
    }

    fn received(&self, buffer: &RecvWr, arrival: &Arrival, status: WcStatus) {
        let Message { imm, total, .. } = arrival.message;
        let opcode = if arrival.is_write {
            uapi::WC_RECV_RDMA_WITH_IMM
        } else {
            uapi::WC_RECV
        };
        let src = self.bound.get().map(|senders| {
            senders.number(&Sender {
                from: arrival.from,
                node: arrival.message.sender,
                flow: arrival.flow,
            })
        });
        let mut wc = Wc {
            flags: imm.map_or(0, |_| uapi::WC_WITH_IMM),
            imm: imm.unwrap_or(0),
            src: src.unwrap_or(uapi::SRC_NONE),
            ..self.wc(buffer.wr_id, status, opcode)
        };
        if status == WcStatus::Success {
            wc.byte_len = total;
        }
        let mut queues = self.queues.lock();
        if let Some(index) = queues.received() {
            self.rings.push(index, &wc);
        }
        drop(queues);
        self.notify();
    }

    fn node_gone(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.flush_receives(&mut self.queues.lock(), WcStatus::WrFlushErr);
        self.notify();
    }
}
