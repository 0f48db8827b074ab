// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_reg_mr` and `weft_dereg_mr`, the memory of `weft_start`, and memory windows.

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
        session.lot().with_room(|| {
            // SAFETY: the caller answers for the memory; Rust code does not touch it.
            unsafe { ioctl::mr_reg(session.fd(), &mut arg) }
        })?;
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
        let region = unsafe { deref(mr) }?;
        // With windows it stays; else it fails only if the region went before, with its node.
        if deregister(&region.session, region.key) == Err(Errno::EBUSY) {
            return Err(Errno::EBUSY);
        }
        // SAFETY: as above; `region` is not used any more.
        unsafe { take(mr) }.map(drop)
    })
}

fn deregister(session: &Session, key: u32) -> Result<(), Errno> {
    let mut arg = uapi::MrDereg {
        lkey: key,
        ..Pod::zeroed()
    };
    ioctl::mr_dereg(session.fd(), &mut arg)
}

/// `struct weft_mw`, and behind it what C does not see.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct Mw {
    pub rkey: u32,
    session: Arc<Session>,
    /// The key that [`weft_dealloc_mw`] ends, whatever C made of `rkey`.
    key: u32,
}

/// See `weft.h`.
///
/// # Safety
///
/// `mr` is null or a region.
#[no_mangle]
pub unsafe extern "C" fn weft_bind_mw(
    mr: *const Mr,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut Mw {
    handle(|| {
        // SAFETY: the caller promises it.
        let region = unsafe { deref(mr) }?;
        let start = (addr.addr()).checked_sub(region.addr.addr());
        let mut arg = uapi::MwBind {
            addr: start.ok_or(Errno::EINVAL)? as u64 + region.iova,
            len: length as u64,
            lkey: region.key,
            access: u32::try_from(access).map_err(|_| Errno::EINVAL)?,
            ..Pod::zeroed()
        };
        ioctl::mw_bind(region.session.fd(), &mut arg)?;
        Ok(Mw {
            rkey: arg.rkey,
            session: Arc::clone(&region.session),
            key: arg.rkey,
        })
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `mw` is null or a window, which the caller gives up.
#[no_mangle]
pub unsafe extern "C" fn weft_dealloc_mw(mw: *mut Mw) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let window = unsafe { take(mw) }?;
        // It fails only if the window went before, with its node.
        let _ = deregister(&window.session, window.key);
        Ok(())
    })
}
