// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_create_cq`: completion queues that any number of VQPs use, with the submission
//! ring that those VQPs' requests go through.

use super::device::{Device, Session};
use super::queues::{Queues, Sizes};
use super::vqp::Vqp;
use super::{deref, destroy, guarded, shared, status};
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use weft_core::uapi;

/// `struct weft_cq`. The program has one reference to it, and each of its VQPs one.
#[derive(Debug)]
pub struct Cq {
    pub(super) queues: Arc<Queues>,
    /// The program's, never looked at.
    context: AtomicPtr<c_void>,
    /// It was made with a VQP: the program has no reference.
    is_vqps: bool,
}

impl Cq {
    /// One that the program makes.
    pub(super) fn new(queues: Arc<Queues>, cq_context: *mut c_void) -> Self {
        Self {
            queues,
            context: AtomicPtr::new(cq_context),
            is_vqps: false,
        }
    }

    /// One that was made with a VQP, and goes with it.
    pub(super) fn of_vqp(session: &Arc<Session>, sizes: Sizes) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            queues: Queues::create(session, sizes)?,
            context: AtomicPtr::default(),
            is_vqps: true,
        }))
    }

    /// Whether one VQP alone uses it, and can be the only one.
    pub(super) fn is_private(self: &Arc<Self>) -> bool {
        self.is_vqps && Arc::strong_count(self) == 1
    }
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device.
#[no_mangle]
pub unsafe extern "C" fn weft_create_cq(
    device: *const Device,
    cqe: c_int,
    cq_context: *mut c_void,
) -> *mut Cq {
    shared(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        let queues = Queues::create(session, Sizes::of_cq(cqe)?)?;
        Ok(Cq::new(queues, cq_context))
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `cq` is null or a CQ, which the caller gives up if this answers 0.
#[no_mangle]
pub unsafe extern "C" fn weft_destroy_cq(cq: *mut Cq) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        if unsafe { deref(cq) }?.is_vqps {
            return Err(Errno::EBUSY);
        }
        // SAFETY: it is the program's, which gives it up.
        unsafe { destroy(cq) }
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `cq` is null or a CQ.
#[no_mangle]
pub unsafe extern "C" fn weft_notify_cq(
    cq: *const Cq,
    eventfd: c_int,
    cq_count: u16,
    cq_period: u16,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let cq = unsafe { deref(cq) }?;
        let eventfd = match eventfd {
            -1 => uapi::EVENTFD_NONE,
            other => u32::try_from(other).map_err(|_| Errno::EBADF)?,
        };
        cq.queues.notify(eventfd, cq_count.into(), cq_period.into())
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `cq` is null or a CQ.
#[no_mangle]
pub unsafe extern "C" fn weft_cq_context(cq: *const Cq) -> *mut c_void {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { deref(cq) })
        .map_or(ptr::null_mut(), |cq| cq.context.load(Ordering::Relaxed))
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP.
#[no_mangle]
pub unsafe extern "C" fn weft_vqp_cq(vqp: *const Vqp) -> *mut Cq {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { deref(vqp) }).map_or(ptr::null_mut(), |vqp| Arc::as_ptr(&vqp.cq).cast_mut())
}
