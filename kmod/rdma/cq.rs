// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::bindings;
use crate::clock::now_ns;
use crate::rdma::Device;
use crate::sync::{new_event_count, reschedule_if_needed, EventCount, Woken};

/// How long a completion is looked for before sleeping: longer than a READ takes,
/// on soft-RoCE and a busy host too.
const SPIN_NS: u64 = 1_000_000;

/// Hears that an armed completion queue has got a completion.
pub(crate) trait Notified: Sync {
    /// Any context (Documentation/infiniband/core_locking.rst; mlx5 calls it in the
    /// interrupt), and soft-RoCE calls it with the queue's lock held: polling or arming
    /// the queue here would wait for ever.
    fn on_completion(&self);
}

impl Notified for EventCount {
    fn on_completion(&self) {
        self.notify();
    }
}

/// A completion queue that queue pairs can be made for.
///
/// # Safety
///
/// [`Completes::as_ptr`] answers a valid queue, as long as the value lives.
pub(crate) unsafe trait Completes: Send + Sync {
    /// For ib_core.
    fn as_ptr(&self) -> *mut bindings::ib_cq;
}

// SAFETY: valid by the invariant.
unsafe impl Completes for Cq {
    fn as_ptr(&self) -> *mut bindings::ib_cq {
        Self::as_ptr(self)
    }
}

/// A completion queue that its owner polls, and that calls when it was armed.
///
/// # Invariants
///
/// `raw` is valid.
pub(crate) struct Cq(NonNull<bindings::ib_cq>);

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue of `entries` completions that calls `target`.
    ///
    /// # Safety
    ///
    /// `target` stays valid, where it is, until the queue is dropped.
    pub(crate) unsafe fn new<T: Notified>(
        device: Device,
        entries: u32,
        target: *const T,
    ) -> Result<Self> {
        let attr = bindings::ib_cq_init_attr {
            cqe: entries,
            ..Default::default()
        };
        // SAFETY: the device is valid, the attributes are copied, and the target
        // is valid as the caller promises.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                device.as_ptr(),
                Some(on_completion::<T>),
                None,
                target.cast_mut().cast(),
                &attr,
                c"weft".as_char_ptr(),
            )
        })?;
        NonNull::new(raw).map(Self).ok_or(ENOMEM)
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::ib_cq {
        self.0.as_ptr()
    }

    /// Asks for a call at the next completion. `false`: one may have come before,
    /// look again. `true`: what has come since the last poll makes a call too, also by
    /// drivers that never answer the former (`ib_req_notify_cq` in rdma/ib_verbs.h).
    pub(crate) fn arm(&self) -> bool {
        // SAFETY: the queue is valid.
        unsafe { bindings::weft_ib_arm_cq(self.as_ptr()) == 0 }
    }

    /// Whether there may be completions: a look that costs little.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        // SAFETY: the queue is valid.
        unsafe { bindings::weft_ib_has_wc(self.as_ptr()) }
    }

    /// Takes completions out, as many as there is room for; answers how many. To be
    /// called if [`Cq::has_some`]: it may take the lock of the thread that completes.
    pub(crate) fn poll<const N: usize>(&self, out: &mut [WorkCompletion; N]) -> usize {
        // Not cleared: what is looked at, the driver has written.
        let mut wcs = [const { MaybeUninit::<bindings::ib_wc>::uninit() }; N];
        // SAFETY: the queue is valid, and `wcs` has so many places, which the
        // driver only writes.
        let count =
            unsafe { bindings::weft_ib_poll_cq(self.as_ptr(), N as i32, wcs.as_mut_ptr().cast()) };
        // An error is no completion.
        let count = usize::try_from(count).unwrap_or(0);
        for (to, wc) in out.iter_mut().zip(wcs.iter().take(count)) {
            // SAFETY: the driver wrote so many.
            let wc = unsafe { wc.assume_init_ref() };
            // Of a request that has failed a driver writes no more than number, status, queue
            // pair and its own error (`ibv_poll_cq(3)`).
            let has_imm = wc.status == bindings::ib_wc_status_IB_WC_SUCCESS
                && wc.wc_flags & bindings::ib_wc_flags_IB_WC_WITH_IMM as i32 != 0;
            *to = WorkCompletion {
                // SAFETY: requests are posted with a number, never with a pointer.
                wr_id: unsafe { wc.__bindgen_anon_1.wr_id },
                status: wc.status,
                imm: has_imm
                    // SAFETY: by the flag it is this that the driver wrote.
                    .then(|| u32::from_be(unsafe { wc.ex.imm_data })),
            };
        }
        count
    }
}

/// The fields of a completion that are used.
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkCompletion {
    /// The number that the request was posted with.
    pub(crate) wr_id: u64,
    pub(crate) status: bindings::ib_wc_status,
    /// The immediate data of a message.
    pub(crate) imm: Option<u32>,
}

impl WorkCompletion {
    /// A place that the device has not written.
    pub(crate) const NONE: Self = Self {
        wr_id: 0,
        status: 0,
        imm: None,
    };
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: ours, and the queue pairs on it are gone: they own it.
        unsafe { bindings::ib_destroy_cq_user(self.as_ptr(), core::ptr::null_mut()) };
    }
}

/// A completion queue with a counter of its calls, to sleep on. Fields are dropped in
/// order.
pub(crate) struct EventCq {
    cq: Arc<Cq>,
    /// Dropped after the queue that calls it.
    events: Pin<KBox<EventCount>>,
}

impl EventCq {
    /// A queue of `entries` completions.
    pub(crate) fn new(device: Device, entries: u32) -> Result<Self> {
        let events = KBox::pin_init(new_event_count!("weft_cq_events"), GFP_KERNEL)?;
        // SAFETY: `events` is pinned, and dropped after the queue.
        let cq = unsafe { Cq::new(device, entries, &raw const *events) }?;
        let cq = Arc::new(cq, GFP_KERNEL)?;
        Ok(Self { cq, events })
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::ib_cq {
        self.cq.as_ptr()
    }

    /// A share of the queue, for a queue pair.
    ///
    /// # Safety
    ///
    /// It is dropped before this value, which has what the queue calls.
    pub(super) unsafe fn share(&self) -> Arc<Cq> {
        self.cq.clone()
    }

    /// Waits for the end of the request with this number, the only one that is waited
    /// for: polls for a moment, which is as long as it should take, then sleeps until the
    /// completion queue's event, or a signal if that may end the wait. Polling yields,
    /// because soft-RoCE's threads may want this CPU.
    ///
    /// # Errors
    ///
    /// `EIO` (error completion), `ETIMEDOUT`, `EINTR`; after the last two it may be on its
    /// way still.
    pub(super) fn wait_for(&self, number: u64, timeout_ns: u64, by_signal: bool) -> Result {
        let start_ns = now_ns();
        loop {
            if let Some(outcome) = self.outcome_of(number) {
                return outcome;
            }
            let waited_ns = now_ns().saturating_sub(start_ns);
            if waited_ns < SPIN_NS {
                // SAFETY: process context, and no spin lock is held.
                unsafe { reschedule_if_needed(true) };
                continue;
            }
            let seen = self.events.seen();
            // Completions that came before it was armed are found by the next poll.
            if self.cq.arm() {
                let left_ns = timeout_ns.saturating_sub(waited_ns);
                if let Some(outcome) = self.outcome_of(number) {
                    return outcome;
                }
                if left_ns == 0 {
                    return Err(ETIMEDOUT);
                }
                match self.events.wait(seen, left_ns, by_signal) {
                    Woken::Event => {}
                    Woken::TimedOut => return Err(ETIMEDOUT),
                    Woken::Signal => return Err(EINTR),
                }
            }
        }
    }

    /// The outcome of a request, if its completion is there.
    pub(super) fn outcome_of(&self, number: u64) -> Option<Result> {
        while let Some((done, status)) = self.poll() {
            if done == number {
                let ok = status == bindings::ib_wc_status_IB_WC_SUCCESS;
                return Some(if ok { Ok(()) } else { Err(EIO) });
            }
        }
        None
    }

    /// The next completion: the request's number, and its status.
    fn poll(&self) -> Option<(u64, bindings::ib_wc_status)> {
        let mut wcs = [WorkCompletion::default()];
        if !self.cq.has_some() {
            return None;
        }
        let count = self.cq.poll(&mut wcs);
        let [wc] = wcs;
        (count == 1).then_some((wc.wr_id, wc.status))
    }
}

/// # Safety
///
/// Called by ib_core, for a queue that [`Cq::new`] has made for a `T`.
unsafe extern "C" fn on_completion<T: Notified>(
    _cq: *mut bindings::ib_cq,
    context: *mut kernel::ffi::c_void,
) {
    // SAFETY: the context is the target of a `Cq` that is not yet dropped.
    unsafe { &*context.cast::<T>() }.on_completion();
}
