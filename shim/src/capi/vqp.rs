// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_create_vqp`, `weft_qconnect`, `weft_destroy_vqp`.

use super::device::{Device, Session, MAX_SGE};
use super::verbs::{IbvGid, QpCap};
use super::{deref, guarded, handle, status, take};
use crate::ioctl;
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use weft_core::uapi::{self, Pod};

/// `struct weft_vqp`. Calls on it may be made by several threads at once.
#[derive(Debug)]
pub struct Vqp {
    pub(super) session: Arc<Session>,
    pub(super) number: u32,
    /// Every request is signalled.
    pub(super) signal_all: bool,
    /// The program's, never looked at.
    context: *mut c_void,
}

/// `struct weft_vqp_init_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct VqpInitAttr {
    pub vqp_context: *mut c_void,
    pub cap: QpCap,
    pub sq_sig_all: c_int,
    pub reserved: [u32; 8],
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device, `attr` null or what the VQP is made with, which
/// this writes to.
#[no_mangle]
pub unsafe extern "C" fn weft_create_vqp(
    device: *const Device,
    attr: *mut VqpInitAttr,
) -> *mut Vqp {
    handle(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        // SAFETY: the caller promises it, and no other reference exists.
        let attr = unsafe { attr.as_mut() }.ok_or(Errno::EINVAL)?;
        let given = granted(attr)?;
        let mut arg = uapi::VqpCreate {
            max_send_wr: given.max_send_wr,
            ..Pod::zeroed()
        };
        ioctl::vqp_create(session.fd(), &mut arg)?;
        attr.cap = given;
        Ok(Vqp {
            session: Arc::clone(session),
            number: arg.vqp,
            signal_all: attr.sq_sig_all != 0,
            context: attr.vqp_context,
        })
    })
}

/// What a VQP has that is asked for this much: at least that, as in verbs.
fn granted(attr: &VqpInitAttr) -> Result<QpCap, Errno> {
    let asked = &attr.cap;
    let too_much = asked.max_send_sge > MAX_SGE || asked.max_recv_wr > 0;
    if too_much || asked.max_inline_data > 0 || attr.reserved != [0; 8] {
        return Err(Errno::EINVAL);
    }
    Ok(QpCap {
        max_send_wr: asked.max_send_wr,
        max_send_sge: MAX_SGE,
        ..QpCap::default()
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, which the caller gives up.
#[no_mangle]
pub unsafe extern "C" fn weft_destroy_vqp(vqp: *mut Vqp) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let vqp = unsafe { take(vqp) }?;
        let mut arg = uapi::VqpHandle {
            vqp: vqp.number,
            ..Pod::zeroed()
        };
        // It fails only if the VQP went before, with its node.
        let _ = ioctl::vqp_destroy(vqp.session.fd(), &mut arg);
        Ok(())
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, `gid` null or a GID.
#[no_mangle]
pub unsafe extern "C" fn weft_qconnect(vqp: *const Vqp, gid: *const IbvGid, port: u32) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let vqp = unsafe { deref(vqp) }?;
        // SAFETY: the caller promises it.
        let gid = unsafe { deref(gid) }?.raw;
        let mut arg = uapi::QConnect {
            vqp: vqp.number,
            port,
            gid,
            ..Pod::zeroed()
        };
        ioctl::qconnect(vqp.session.fd(), &mut arg)
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP.
#[no_mangle]
pub unsafe extern "C" fn weft_vqp_num(vqp: *const Vqp) -> u32 {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { deref(vqp) }).map_or(u32::MAX, |vqp| vqp.number)
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP.
#[no_mangle]
pub unsafe extern "C" fn weft_vqp_context(vqp: *const Vqp) -> *mut c_void {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { deref(vqp) }).map_or(std::ptr::null_mut(), |vqp| vqp.context)
}
