// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_reg_mr` and `weft_dereg_mr`, and the memory of `weft_start`.

use super::device::{Device, Session};
use super::{deref, handle, status, take};
use crate::ioctl;
use crate::ring::Mapping;
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
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
    pub iova: u64,
    session: Arc<Session>,
    /// Of the CQ with which the memory came.
    _mapping: Option<Arc<Mapping>>,
    /// What deregistration names, whatever C made of `lkey`.
    key: u32,
}

impl Mr {
    /// The memory that has come with rings, which is at `addr`.
    pub(super) fn of_queues(
        session: &Arc<Session>,
        addr: NonNull<u8>,
        said: &uapi::RingsCreate,
        mapping: Arc<Mapping>,
    ) -> Self {
        Self {
            addr: addr.as_ptr().cast(),
            length: said.memory_bytes as usize,
            lkey: said.memory_key,
            rkey: said.memory_key,
            iova: said.memory_addr,
            session: Arc::clone(session),
            _mapping: Some(mapping),
            key: said.memory_key,
        }
    }
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
            iova: arg.addr,
            session: Arc::clone(session),
            _mapping: None,
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
