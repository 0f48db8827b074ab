// SPDX-License-Identifier: GPL-2.0

//! An eventfd that is signalled when completions come to a ring, as the completion channel
//! of a completion queue of verbs is; at once or moderated (`ibv_modify_cq`).

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use weft_core::uapi::CqNotify;
use weft_core::vqp::{Moderation, Telling};

use crate::sync::{EventFd, Timed, Timer};

/// The eventfd of a completion ring. It may go in a softirq.
#[pin_data(PinnedDrop)]
pub(super) struct Channel {
    eventfd: EventFd,
    moderation: Moderation,
    period_ns: u64,
    #[pin]
    timer: Timer<Self>,
}

// SAFETY: the offset is the field's own; `drop` cancels the timer.
unsafe impl Timed for Channel {
    const OFFSET: usize = core::mem::offset_of!(Self, timer);

    fn time_is_over(&self) {
        if self.moderation.time_is_over() {
            self.eventfd.signal();
        }
    }
}

impl Channel {
    /// One that tells of completions after those before `tail`, as a request says that was
    /// checked.
    pub(super) fn new(eventfd: EventFd, request: &CqNotify, tail: u32) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                eventfd,
                moderation: Moderation::new(request.count, tail),
                period_ns: u64::from(request.period_us) * 1000,
                timer <- Timer::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// There are completions up to the index `tail`. By one thread at a time; any context.
    pub(super) fn arrived(&self, tail: u32) {
        match self.moderation.arrived(tail) {
            Telling::Nothing => {}
            Telling::Now => self.eventfd.signal(),
            Telling::StartTimer => self.timer.start(self.period_ns),
        }
    }

    /// Tells of completions that were there before it.
    pub(super) fn signal(&self) {
        self.eventfd.signal();
    }
}

#[pinned_drop]
impl PinnedDrop for Channel {
    fn drop(self: Pin<&mut Self>) {
        self.timer.cancel();
    }
}
