// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_create_srq`: receive queues that any number of VQPs take buffers from.

use super::device::Device;
use super::queues::{Queues, Sizes};
use super::recv::post_to;
use super::sized::{self, Extensible};
use super::verbs::{RecvWr, SrqAttr};
use super::{deref, destroy, guarded, shared, status};
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::{self, addr_of_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use weft_core::uapi::MAX_RECV_SGE;

/// `struct weft_srq`. The program has one reference to it, and each of its VQPs one.
#[derive(Debug)]
pub struct Srq {
    pub(super) queues: Arc<Queues>,
    /// The program's, never looked at.
    context: AtomicPtr<c_void>,
}

#[cfg(test)]
impl Srq {
    /// One for so many buffers, without a kernel.
    pub(super) fn of_null(max_wr: u32) -> Self {
        Self {
            queues: Queues::of_rings(crate::ring::tests::rings(1, max_wr, &[])),
            context: AtomicPtr::default(),
        }
    }
}

/// `struct weft_srq_init_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct SrqInitAttr {
    pub size: usize,
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
    pub reserved: u32,
}

// SAFETY: it is, and has numbers and a pointer to nothing of Rust's.
unsafe impl Extensible for SrqInitAttr {
    const MIN_SIZE: usize = offset_of!(Self, reserved);
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device, `attr` null or what the SRQ is made with, which this
/// writes to.
#[no_mangle]
pub unsafe extern "C" fn weft_create_srq(
    device: *const Device,
    attr: *mut SrqInitAttr,
) -> *mut Srq {
    shared(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        // SAFETY: the caller promises it.
        let asked = unsafe { sized::read(attr) }?;
        let SrqAttr {
            max_wr, max_sge, ..
        } = asked.attr;
        if max_wr == 0 || max_sge as usize > MAX_RECV_SGE || asked.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let sizes = Sizes {
            max_recv_wr: max_wr,
            ..Sizes::default()
        };
        let queues = Queues::create(session, sizes)?;
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        // SAFETY: the caller promises that it may be written; every program has it.
        unsafe {
            addr_of_mut!((*attr).attr.max_sge).write(MAX_RECV_SGE as u32);
        }
        Ok(Srq {
            queues,
            context: AtomicPtr::new(asked.srq_context),
        })
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `srq` is null or an SRQ, which the caller gives up if this answers 0.
#[no_mangle]
pub unsafe extern "C" fn weft_destroy_srq(srq: *mut Srq) -> c_int {
    // SAFETY: the caller promises it.
    status(|| unsafe { destroy(srq) })
}

/// See `weft.h`.
///
/// # Safety
///
/// `srq` is null or an SRQ.
#[no_mangle]
pub unsafe extern "C" fn weft_srq_context(srq: *const Srq) -> *mut c_void {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { deref(srq) })
        .map_or(ptr::null_mut(), |srq| srq.context.load(Ordering::Relaxed))
}

/// See `weft.h`.
///
/// # Safety
///
/// `srq` is null or an SRQ, `wr` null or a chain, `bad_wr` null or room for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_post_srq_recv(
    srq: *const Srq,
    wr: *mut RecvWr,
    bad_wr: *mut *mut RecvWr,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let srq = unsafe { deref(srq) }?;
        // SAFETY: the caller promises it.
        unsafe { post_to(Some(&srq.queues), wr, bad_wr) }
    })
}
