// SPDX-License-Identifier: GPL-2.0

//! Completion queues from which ib_core takes completions by itself, in a softirq, and
//! hands each to the entry that its request was posted with (`ib_alloc_cq`,
//! `IB_POLL_SOFTIRQ`).

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::error::from_err_ptr;
use kernel::prelude::*;

use crate::bindings;
use crate::rdma::{Completes, Device};

/// Hears of the completions of a queue.
pub(crate) trait Hears: Sync {
    /// A request has ended, or a message has come. Softirq context.
    fn ended(&self, end: EndOf);
}

/// The end of a request.
pub(crate) struct EndOf {
    /// The number of its entry.
    pub(crate) number: u32,
    /// How it has ended.
    pub(crate) status: bindings::ib_wc_status,
    /// Of a message that has come well: its bytes.
    pub(crate) len: u32,
}

/// A request is posted with one. It stays where it is as long as the queue lives.
///
/// # Invariants
///
/// `cqe` is the first field, and calls [`ended`] for a queue of the same `T`.
#[repr(C)]
pub(crate) struct Entry<T> {
    cqe: bindings::ib_cqe,
    number: u32,
    _target: PhantomData<fn(&T)>,
}

impl<T: Hears> Entry<T> {
    /// The entry with this number.
    pub(crate) fn new(number: u32) -> Self {
        // INVARIANT: it calls that.
        Self {
            cqe: bindings::ib_cqe {
                done: Some(ended::<T>),
            },
            number,
            _target: PhantomData,
        }
    }

    /// For a request.
    pub(crate) fn as_ptr(&self) -> *mut bindings::ib_cqe {
        (&raw const self.cqe).cast_mut()
    }
}

/// A completion queue.
///
/// # Invariants
///
/// `raw` is valid.
pub(crate) struct SoftirqCq(NonNull<bindings::ib_cq>);

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl Send for SoftirqCq {}
// SAFETY: as above.
unsafe impl Sync for SoftirqCq {}

// SAFETY: valid by the invariant.
unsafe impl Completes for SoftirqCq {
    fn as_ptr(&self) -> *mut bindings::ib_cq {
        self.0.as_ptr()
    }
}

impl SoftirqCq {
    /// A queue of `entries` completions, of which `target` hears.
    ///
    /// # Safety
    ///
    /// `target` stays valid, where it is, until the queue is dropped. Requests whose
    /// completions go there are posted with an [`Entry`] of the same `T`, which stays
    /// valid as long.
    pub(crate) unsafe fn new<T: Hears>(
        device: Device,
        entries: u32,
        target: *const T,
    ) -> Result<Self> {
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        // SAFETY: the device is valid, and so is the target as the caller promises.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                device.as_ptr(),
                target.cast_mut().cast(),
                entries,
                0,
                bindings::ib_poll_context_IB_POLL_SOFTIRQ,
                c"weft".as_char_ptr(),
            )
        })?;
        NonNull::new(raw).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for SoftirqCq {
    fn drop(&mut self) {
        // SAFETY: ours, and the queue pairs on it are gone: they own it. May sleep: it
        // waits until no completion of it is being handled.
        unsafe { bindings::ib_free_cq(self.0.as_ptr()) };
    }
}

/// # Safety
///
/// Called by ib_core, with a completion of a request that was posted with an [`Entry<T>`]
/// on a queue that [`SoftirqCq::new`] has made for a `T`.
unsafe extern "C" fn ended<T: Hears>(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: ib_core lends us a completion, whose request was posted with an entry.
    let (wc, entry) = unsafe { (&*wc, (*wc).__bindgen_anon_1.wr_cqe.cast::<Entry<T>>()) };
    let is_ok = wc.status == bindings::ib_wc_status_IB_WC_SUCCESS;
    let end = EndOf {
        // SAFETY: the entry's first field is what the request was posted with, and it is
        // valid as long as the queue.
        number: unsafe { (*entry).number },
        status: wc.status,
        // Else a driver need not have written it (`ibv_poll_cq(3)`).
        len: if is_ok { wc.byte_len } else { 0 },
    };
    // SAFETY: the context is the target, valid until the queue is dropped.
    unsafe { &*bindings::weft_ib_cq_context(cq).cast::<T>() }.ended(end);
}
