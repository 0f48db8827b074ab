// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_create_vqp`, `weft_qconnect`, `weft_destroy_vqp`.

use super::device::{Device, Session};
use super::port::Accepted;
use super::verbs::{IbvGid, QpCap};
use super::{deref, guarded, handle, status, take};
use crate::ioctl;
use crate::ring::{CompletionRing, RecvRing, Rings, SendRing};
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_core::uapi::{self, Pod, MAX_INLINE, MAX_RECV_SGE, MAX_SGE, RINGS_NONE};

/// `struct weft_vqp`. Calls on it may be made by several threads at once: each
/// ring has a lock. No thread holds two of them.
#[derive(Debug)]
pub struct Vqp {
    pub(super) send: Mutex<SendRing>,
    pub(super) done: Mutex<CompletionRing>,
    pub(super) recv: Mutex<RecvRing>,
    pub(super) accepted: Mutex<Accepted>,
    pub(super) handle: Handle,
    pub(super) cap: QpCap,
    /// Every request is signalled.
    pub(super) signal_all: bool,
    /// The program's, never looked at.
    context: *mut c_void,
}

/// The kernel's side of a VQP, destroyed on drop.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) session: Arc<Session>,
    pub(super) number: u32,
    /// Dropped after the VQP is destroyed.
    rings: RingsHandle,
}

/// Rings, destroyed on drop.
#[derive(Debug)]
struct RingsHandle {
    session: Arc<Session>,
    number: u32,
}

/// Rings that no VQP has yet.
#[derive(Debug)]
pub(super) struct NewRings {
    handle: RingsHandle,
    rings: Rings,
}

impl NewRings {
    /// The handle, for the module.
    pub(super) fn number(&self) -> u32 {
        self.handle.number
    }
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

/// A lock whose data is whole even if a thread has panicked with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let rings = attr.rings(session)?;
        let mut arg = attr.asked(rings.number());
        ioctl::vqp_create(session.fd(), &mut arg)?;
        Ok(Vqp::adopt(session, attr, rings, arg.vqp))
    })
}

impl VqpInitAttr {
    /// Makes rings for such a VQP.
    pub(super) fn rings(&self, session: &Arc<Session>) -> Result<NewRings, Errno> {
        let cap = &self.cap;
        let elements =
            cap.max_send_sge as usize > MAX_SGE || cap.max_recv_sge as usize > MAX_RECV_SGE;
        let is_none = cap.max_send_wr == 0 || self.reserved != [0; 8];
        if elements || cap.max_inline_data > MAX_INLINE || is_none {
            return Err(Errno::EINVAL);
        }
        let mut arg = uapi::RingsCreate {
            max_send_wr: cap.max_send_wr,
            max_wc: cap.max_send_wr.saturating_add(cap.max_recv_wr),
            max_recv_wr: cap.max_recv_wr,
            ..Pod::zeroed()
        };
        let lot = session.lot();
        lot.with_room(|| ioctl::rings_create(session.fd(), &mut arg))?;
        // Destroyed on drop from here on.
        let handle = RingsHandle {
            session: Arc::clone(session),
            number: arg.rings,
        };
        let rings = Rings::map(session.fd(), lot, &arg)?;
        Ok(NewRings { handle, rings })
    }

    /// What the module is asked for, on those rings.
    pub(super) fn asked(&self, rings: u32) -> uapi::VqpCreate {
        uapi::VqpCreate {
            cq: rings,
            rq: match self.cap.max_recv_wr {
                0 => RINGS_NONE,
                _ => rings,
            },
            max_send_wr: self.cap.max_send_wr,
            ..Pod::zeroed()
        }
    }
}

impl Vqp {
    /// Takes what the module has made, and says in `attr` what that has, which is no
    /// less than was asked for, as in verbs.
    #[expect(clippy::cast_possible_truncation, reason = "small constants")]
    pub(super) fn adopt(
        session: &Arc<Session>,
        attr: &mut VqpInitAttr,
        rings: NewRings,
        number: u32,
    ) -> Self {
        let NewRings { handle, rings } = rings;
        // Destroyed on drop from here on.
        let handle = Handle {
            session: Arc::clone(session),
            number,
            rings: handle,
        };
        attr.cap = QpCap {
            max_send_sge: MAX_SGE as u32,
            max_recv_sge: if attr.cap.max_recv_wr > 0 {
                MAX_RECV_SGE as u32
            } else {
                0
            },
            max_inline_data: MAX_INLINE,
            ..attr.cap
        };
        Self {
            send: Mutex::new(rings.send),
            done: Mutex::new(rings.done),
            recv: Mutex::new(rings.recv),
            accepted: Mutex::default(),
            handle,
            cap: attr.cap,
            signal_all: attr.sq_sig_all != 0,
            context: attr.vqp_context,
        }
    }

    /// One `IOC_ENTER`; answers with how many requests were taken.
    pub(super) fn enter(&self, count: u32, min: u32, timeout_ns: u64) -> Result<u32, Errno> {
        let rings = &self.handle.rings;
        let both = (rings.number, rings.number);
        ioctl::enter(rings.session.fd(), both, count, min, timeout_ns)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut arg = uapi::VqpHandle {
            vqp: self.number,
            ..Pod::zeroed()
        };
        // It fails only if the VQP went before, with its node.
        let _ = ioctl::vqp_destroy(self.session.fd(), &mut arg);
    }
}

impl Drop for RingsHandle {
    fn drop(&mut self) {
        let mut arg = uapi::RingsHandle {
            rings: self.number,
            ..Pod::zeroed()
        };
        // It fails only if they went before.
        let _ = ioctl::rings_destroy(self.session.fd(), &mut arg);
    }
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
        unsafe { take(vqp) }.map(drop)
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
            vqp: vqp.handle.number,
            port,
            gid,
            ..Pod::zeroed()
        };
        ioctl::qconnect(vqp.handle.session.fd(), &mut arg)
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
    guarded(|| unsafe { deref(vqp) }).map_or(u32::MAX, |vqp| vqp.handle.number)
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
