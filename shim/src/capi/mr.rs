// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_reg_mr` and `weft_dereg_mr`.

use super::device::{Device, Session};
use super::{deref, handle, status, take};
use crate::ioctl;
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use weft_core::uapi::{self, Pod};

/// `struct weft_mr`, and behind it what C does not see.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct Mr {
    pub addr: *mut c_void,
    pub length: usize,
    pub lkey: u32,
    pub rkey: u32,
    session: Arc<Session>,
    /// What deregistration names, whatever C made of `lkey`.
    key: u32,
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device. While the region exists, the program takes its
/// memory for written by peers at any time.
#[no_mangle]
pub unsafe extern "C" fn weft_reg_mr(
    device: *const Device,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut Mr {
    handle(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        if addr.is_null() {
            return Err(Errno::EINVAL);
        }
        let mut arg = uapi::MrReg {
            addr: addr.expose_provenance() as u64,
            len: length as u64,
            access: u32::try_from(access).map_err(|_| Errno::EINVAL)?,
            ..Pod::zeroed()
        };
        // SAFETY: the caller answers for the memory; Rust code does not touch it.
        unsafe { ioctl::mr_reg(session.fd(), &mut arg) }?;
        Ok(Mr {
            addr,
            length,
            lkey: arg.lkey,
            rkey: arg.rkey,
            session: Arc::clone(session),
            key: arg.lkey,
        })
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `mr` is null or a region, which the caller gives up.
#[no_mangle]
pub unsafe extern "C" fn weft_dereg_mr(mr: *mut Mr) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let mr = unsafe { take(mr) }?;
        let mut arg = uapi::MrDereg {
            lkey: mr.key,
            ..Pod::zeroed()
        };
        // It fails only if the region went before, with its node.
        let _ = ioctl::mr_dereg(mr.session.fd(), &mut arg);
        Ok(())
    })
}
