// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_create_vqp`, `weft_qconnect`, `weft_destroy_vqp`.

use super::cq::Cq;
use super::device::{Device, Session};
use super::port::Accepted;
use super::queues::{lock, Queues, Sizes};
use super::sized::{self, Extensible};
use super::srq::Srq;
use super::verbs::{IbvGid, QpCap};
use super::{add_reference, deref, guarded, handle, status, take};
use crate::ioctl;
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::{self, addr_of_mut};
use std::sync::{Arc, Mutex};
use weft_core::uapi::{
    self, Pod, MAX_INLINE, MAX_RECV_SGE, MAX_SGE, RINGS_NONE, VQP_SHARED_RECEIVE, VQP_UNCONNECTED,
};

/// `WEFT_VQP_UNCONNECTED`.
pub(super) const UNCONNECTED: u32 = 1;

/// `struct weft_vqp`. Calls on it may be made by several threads at once: each ring has a
/// lock.
#[derive(Debug)]
pub struct Vqp {
    pub(super) number: u32,
    pub(super) cq: Arc<Cq>,
    pub(super) receive: Receive,
    pub(super) accepted: Mutex<Accepted>,
    pub(super) cap: QpCap,
    /// Every request is signalled.
    pub(super) signal_all: bool,
    /// Each request names its peer.
    pub(super) is_unconnected: bool,
    /// The program's, never looked at.
    context: *mut c_void,
}

/// Where a VQP's receive buffers come from. All that depends on it:
///
/// | | `weft_post_recv` posts to | in the module | when the VQP goes, its CQ |
/// |---|---|---|---|
/// | `Nothing` | nothing | has no receive ring | forgets all its completions |
/// | `WithCq` | the CQ's rings | has a ring of its own | forgets all |
/// | `Own` | these rings | shares a ring | forgets all, and what a late message completes |
/// | `Srq` | nothing | shares a ring | forgets its requests', not its buffers' |
///
/// A CQ that is private goes with the VQP, and forgets nothing.
#[derive(Debug)]
pub(super) enum Receive {
    /// It receives nothing.
    Nothing,
    /// The rings of its CQ, which is its own too.
    WithCq,
    /// Rings that are there for this VQP alone. To the module they are shared ones: those
    /// of one VQP have to be its CQ's.
    Own(Arc<Queues>),
    /// With other VQPs.
    Srq(Arc<Srq>),
}

/// `struct weft_vqp_init_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct VqpInitAttr {
    pub size: usize,
    pub vqp_context: *mut c_void,
    pub cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub sq_sig_all: c_int,
    pub flags: u32,
    pub port: u32,
    pub gid: *const IbvGid,
}

// SAFETY: it is, and has numbers and pointers, which may be null.
unsafe impl Extensible for VqpInitAttr {
    const MIN_SIZE: usize = offset_of!(Self, flags);
}

/// What a VQP will be made of, before it exists.
pub(super) struct Plan {
    cq: Arc<Cq>,
    receive: Receive,
    cap: QpCap,
    signal_all: bool,
    is_unconnected: bool,
    context: *mut c_void,
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
        // SAFETY: the caller promises it.
        let asked = unsafe { sized::read(attr) }?;
        // SAFETY: the caller promises it of what the attributes point to.
        let plan = unsafe { asked.plan(session) }?;
        let mut arg = plan.asked();
        arg.port = asked.port;
        // SAFETY: as above.
        if let Some(gid) = unsafe { asked.gid.as_ref() } {
            if gid.raw.is_zero() {
                return Err(Errno::EINVAL);
            }
            arg.gid = gid.raw;
        }
        ioctl::vqp_create(session.fd(), &mut arg)?;
        let vqp = plan.adopt(arg.vqp);
        // SAFETY: the caller promises it.
        unsafe { VqpInitAttr::say(attr, &vqp) };
        Ok(vqp)
    })
}

impl VqpInitAttr {
    /// Makes the queues that such a VQP needs and does not share.
    ///
    /// # Safety
    ///
    /// `cq` and `srq` are null or what they should be.
    pub(super) unsafe fn plan(&self, session: &Arc<Session>) -> Result<Plan, Errno> {
        let cap = &self.cap;
        let elements =
            cap.max_send_sge as usize > MAX_SGE || cap.max_recv_sge as usize > MAX_RECV_SGE;
        let is_odd = cap.max_send_wr == 0 || self.flags & !UNCONNECTED != 0;
        if elements || cap.max_inline_data > MAX_INLINE || is_odd {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises it.
        let cq = unsafe { add_reference(self.cq) };
        // SAFETY: as above.
        let srq = unsafe { add_reference(self.srq) };
        let is_here = |queues: &Arc<Queues>| Arc::ptr_eq(queues.session(), session);
        if !cq.as_ref().is_none_or(|cq| is_here(&cq.queues))
            || !srq.as_ref().is_none_or(|srq| is_here(&srq.queues))
        {
            return Err(Errno::EINVAL);
        }
        let (cq, receive) = cap.queues(session, cq, srq)?;
        Ok(Plan {
            cq,
            receive,
            cap: *cap,
            signal_all: self.sq_sig_all != 0,
            is_unconnected: self.flags & UNCONNECTED != 0,
            context: self.vqp_context,
        })
    }

    /// Says what a VQP has, which is no less than was asked for, as in verbs.
    ///
    /// # Safety
    ///
    /// `attr` has been read, and may be written.
    pub(super) unsafe fn say(attr: *mut Self, vqp: &Vqp) {
        // SAFETY: every program has it.
        unsafe { addr_of_mut!((*attr).cap).write(vqp.cap) };
    }
}

impl QpCap {
    /// The queues of a VQP: those that it is to use, and else new ones.
    fn queues(
        &self,
        session: &Arc<Session>,
        cq: Option<Arc<Cq>>,
        srq: Option<Arc<Srq>>,
    ) -> Result<(Arc<Cq>, Receive), Errno> {
        let alone = Sizes {
            max_send_wr: self.max_send_wr,
            max_wc: self.max_send_wr,
            max_recv_wr: 0,
        };
        Ok(match (cq, srq, self.max_recv_wr) {
            (Some(cq), Some(srq), _) => (cq, Receive::Srq(srq)),
            (Some(cq), None, 0) => (cq, Receive::Nothing),
            (Some(cq), None, max_recv_wr) => {
                let sizes = Sizes {
                    max_recv_wr,
                    ..Sizes::default()
                };
                (cq, Receive::Own(Queues::create(session, sizes)?))
            }
            // Its buffers are others' too: their completions may not go with the VQP.
            (None, Some(_), _) => return Err(Errno::EINVAL),
            (None, None, 0) => (Cq::of_vqp(session, alone)?, Receive::Nothing),
            (None, None, max_recv_wr) => {
                let sizes = Sizes {
                    max_wc: alone.max_wc.saturating_add(max_recv_wr),
                    max_recv_wr,
                    ..alone
                };
                (Cq::of_vqp(session, sizes)?, Receive::WithCq)
            }
        })
    }
}

impl Plan {
    /// A VQP that has its queues to itself.
    pub(super) fn alone(
        session: &Arc<Session>,
        cap: QpCap,
        signal_all: bool,
    ) -> Result<Self, Errno> {
        let (cq, receive) = cap.queues(session, None, None)?;
        Ok(Self {
            cq,
            receive,
            cap,
            signal_all,
            is_unconnected: false,
            context: ptr::null_mut(),
        })
    }

    /// What the module is asked for.
    pub(super) fn asked(&self) -> uapi::VqpCreate {
        let cq = self.cq.queues.number();
        let (rq, receive_flags) = match &self.receive {
            Receive::Nothing => (RINGS_NONE, 0),
            Receive::WithCq => (cq, 0),
            Receive::Own(queues) => (queues.number(), VQP_SHARED_RECEIVE),
            Receive::Srq(srq) => (srq.queues.number(), VQP_SHARED_RECEIVE),
        };
        let unconnected = if self.is_unconnected {
            VQP_UNCONNECTED
        } else {
            0
        };
        uapi::VqpCreate {
            cq,
            rq,
            max_send_wr: self.cap.max_send_wr,
            flags: receive_flags | unconnected,
            ..Pod::zeroed()
        }
    }

    /// Takes what the module has made.
    #[expect(clippy::cast_possible_truncation, reason = "small constants")]
    pub(super) fn adopt(self, number: u32) -> Vqp {
        let (max_recv_wr, max_recv_sge) = match &self.receive {
            Receive::Nothing | Receive::Srq(_) => (0, 0),
            Receive::WithCq | Receive::Own(_) => (self.cap.max_recv_wr, MAX_RECV_SGE as u32),
        };
        if !self.cq.is_private() {
            let is_receiver = matches!(self.receive, Receive::Own(_));
            lock(&self.cq.queues.done).note_made(number, is_receiver);
        }
        // Destroyed on drop from here on.
        Vqp {
            number,
            cap: QpCap {
                max_send_wr: self.cap.max_send_wr,
                max_recv_wr,
                max_send_sge: MAX_SGE as u32,
                max_recv_sge,
                max_inline_data: MAX_INLINE,
            },
            cq: self.cq,
            receive: self.receive,
            accepted: Mutex::default(),
            signal_all: self.signal_all,
            is_unconnected: self.is_unconnected,
            context: self.context,
        }
    }
}

impl Vqp {
    pub(super) fn session(&self) -> &Arc<Session> {
        self.cq.queues.session()
    }

    /// The queue that `weft_post_recv` posts to.
    pub(super) fn recv_queues(&self) -> Option<&Arc<Queues>> {
        match &self.receive {
            Receive::Nothing | Receive::Srq(_) => None,
            Receive::WithCq => Some(&self.cq.queues),
            Receive::Own(queues) => Some(queues),
        }
    }
}

impl Drop for Vqp {
    fn drop(&mut self) {
        let mut arg = uapi::VqpHandle {
            vqp: self.number,
            ..Pod::zeroed()
        };
        // It fails only if the VQP went before, with its node.
        let _ = ioctl::vqp_destroy(self.session().fd(), &mut arg);
        if self.cq.is_private() {
            return;
        }
        // The module takes no buffer of its any more. Nothing is completed but those that it
        // has taken, where a message was half there, and those of an SRQ.
        let taken = match &self.receive {
            Receive::Own(queues) => Some(lock(&queues.recv).taken()),
            _ => None,
        };
        let mut done = lock(&self.cq.queues.done);
        done.forget(self.number, matches!(self.receive, Receive::Srq(_)));
        if let Some(taken) = taken {
            done.add_ghost(self.number, taken);
        }
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
            vqp: vqp.number,
            port,
            gid,
            ..Pod::zeroed()
        };
        ioctl::qconnect(vqp.session().fd(), &mut arg)
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
    guarded(|| unsafe { deref(vqp) }).map_or(ptr::null_mut(), |vqp| vqp.context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vqp_with_a_shared_receive_queue_needs_a_completion_queue() {
        let srq = Arc::new(Srq::of_null(4));
        let session = Arc::clone(srq.queues.session());
        let cap = QpCap {
            max_send_wr: 8,
            max_recv_wr: 0,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let refused = cap.queues(&session, None, Some(Arc::clone(&srq)));
        assert_eq!(refused.err(), Some(Errno::EINVAL));
        let cq = Arc::new(Cq::new(Arc::clone(&srq.queues), ptr::null_mut()));
        assert!(cap.queues(&session, Some(cq), Some(srq)).is_ok());
    }
}
