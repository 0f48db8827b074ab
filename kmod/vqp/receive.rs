// SPDX-License-Identifier: GPL-2.0

//! The receiving side: ports, receive buffers, messages (krcore §4.4).

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use weft_core::dc::wire::{Message, Receiver};
use weft_core::uapi::{self, RecvWr, Wc, WcStatus};
use weft_core::vqp::ReceiveUse;

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

    /// Whether it receives.
    pub(crate) fn receives(&self) -> bool {
        self.rq.is_some()
    }

    /// The names under which it receives.
    pub(crate) fn receivers(&self) -> [Option<Receiver>; 2] {
        let port = self.bound.get().map(|bound| Receiver::Port(bound.port()));
        let flow = self.receives().then_some(Receiver::Flow(self.flow));
        [flow, port]
    }

    /// It was destroyed. When this returns nobody hears of its requests any more, and
    /// nothing lands in its receive buffers, also of messages that are not all there: the
    /// process may use the memory for something else.
    pub(crate) fn stop(&self) {
        // Each side stores before it looks: one of them sees the other.
        let deafen = || self.deaf.store(true, Ordering::SeqCst);
        self.cq.silently(deafen);
        if let Some(branches) = &self.branches {
            branches.stop();
        }
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
        let (rq, _) = self.rq.as_ref()?;
        rq.claim(&self.cq, || self.is_deaf())
    }

    fn lands(&self) -> bool {
        self.landing.fetch_add(1, Ordering::SeqCst);
        let lands = !self.is_deaf();
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
        // A buffer of others comes back, whatever has become of this VQP.
        let is_own = matches!(self.rq, Some((_, ReceiveUse::Own)));
        let is_deaf = || is_own && self.is_deaf();
        self.cq.complete(Some(&wc), is_deaf);
        self.cq.notify();
    }

    fn node_gone(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.fail_receives();
        self.cq.notify();
    }
}
