// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_bind`, `weft_accept`, `weft_pop_msgs`: messages from any number of senders
//! (krcore §4.1).

use super::completion::{wait, wide, Reap};
use super::queues::lock;
use super::sized;
use super::verbs::{QpCap, Wc};
use super::vqp::{Plan, Vqp, VqpInitAttr};
use super::{count, deref, handle, status, take};
use crate::ioctl;
use nix::errno::Errno;
use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use weft_core::uapi::{self, Pod, SRC_NONE};

/// VQPs to senders that a bound VQP keeps for `weft_pop_msgs`.
const MAX_ACCEPTED: usize = 128;

/// `struct weft_msg`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct Msg {
    pub wc: Wc,
    pub from: *mut Vqp,
    pub error: c_int,
    pub reserved: [u32; 3],
}

/// The VQPs that a bound VQP has accepted, by sender.
///
/// # Invariants
///
/// The pointers are those of boxes that this owns.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    vqps: HashMap<u32, NonNull<Vqp>>,
}

// SAFETY: it owns the VQPs, whose calls any thread may make.
unsafe impl Send for Accepted {}

impl Drop for Accepted {
    fn drop(&mut self) {
        for (_, vqp) in self.vqps.drain() {
            // SAFETY: by the invariant; the program gave the bound VQP up, and with
            // it these.
            drop(unsafe { Box::from_raw(vqp.as_ptr()) });
        }
    }
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP.
#[no_mangle]
pub unsafe extern "C" fn weft_bind(vqp: *const Vqp, port: u32) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let vqp = unsafe { deref(vqp) }?;
        let mut arg = uapi::QBind {
            vqp: vqp.number,
            port,
            ..Pod::zeroed()
        };
        ioctl::qbind(vqp.session().fd(), &mut arg)
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `bound` is null or a VQP, `attr` null or what the VQP is made with, which this
/// writes to.
#[no_mangle]
pub unsafe extern "C" fn weft_accept(
    bound: *const Vqp,
    src: u32,
    attr: *mut VqpInitAttr,
) -> *mut Vqp {
    handle(|| {
        // SAFETY: the caller promises it.
        let bound = unsafe { deref(bound) }?;
        // SAFETY: the caller promises it.
        let asked = unsafe { sized::read(attr) }?;
        if asked.flags != 0 || asked.port != 0 || !asked.gid.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises it of what the attributes point to.
        let vqp = accept(bound, src, unsafe { asked.plan(bound.session()) }?)?;
        // SAFETY: the caller promises it.
        unsafe { VqpInitAttr::say(attr, &vqp) };
        Ok(vqp)
    })
}

fn accept(bound: &Vqp, src: u32, plan: Plan) -> Result<Vqp, Errno> {
    let mut arg = uapi::Accept {
        vqp: plan.asked(),
        bound: bound.number,
        src,
    };
    ioctl::accept(bound.session().fd(), &mut arg)?;
    Ok(plan.adopt(arg.vqp.vqp))
}

/// See `weft.h`.
///
/// # Safety
///
/// `bound` is null or a VQP, `msgs` null or room for `num_msgs`.
#[no_mangle]
pub unsafe extern "C" fn weft_pop_msgs(
    bound: *const Vqp,
    num_msgs: c_int,
    msgs: *mut Msg,
    timeout_ms: c_int,
) -> c_int {
    count(|| {
        // SAFETY: the caller promises it.
        let bound = unsafe { deref(bound) }?;
        let min = c_int::from(num_msgs > 0 && timeout_ms != 0);
        let reap = Reap::new(num_msgs, msgs.is_null(), min, timeout_ms)?;
        if !bound.cq.is_private() {
            return Err(Errno::EINVAL);
        }
        let queues = &bound.cq.queues;
        wait(queues, &reap)?;
        let (popped, _) = lock(&queues.done).take(reap.room, |at, raw| {
            let msg = Msg {
                wc: wide(&raw),
                from: ptr::null_mut(),
                // Whose it is, until that is found out below.
                error: 0,
                reserved: [0; 3],
            };
            // SAFETY: within the caller's room.
            unsafe { msgs.add(at).write(msg) };
        });
        for at in 0..popped {
            // SAFETY: written above.
            let msg = unsafe { &mut *msgs.add(at) };
            match sender(bound, msg.wc.src_qp) {
                Ok(vqp) => msg.from = vqp,
                Err(errno) => msg.error = errno as c_int,
            }
        }
        Ok(popped)
    })
}

/// The VQP to a sender, accepted if it was not before.
fn sender(bound: &Vqp, src: u32) -> Result<*mut Vqp, Errno> {
    if src == SRC_NONE {
        return Err(Errno::ENOENT);
    }
    let mut accepted = lock(&bound.accepted);
    if let Some(vqp) = accepted.vqps.get(&src) {
        return Ok(vqp.as_ptr());
    }
    if accepted.vqps.len() >= MAX_ACCEPTED {
        return Err(Errno::EMFILE);
    }
    // What the sender sends arrives at the bound VQP.
    let cap = QpCap {
        max_recv_wr: 0,
        ..bound.cap
    };
    let plan = Plan::alone(bound.session(), cap, bound.signal_all)?;
    let vqp = Box::new(accept(bound, src, plan)?);
    let vqp = NonNull::from(Box::leak(vqp));
    // INVARIANT: it was a box.
    accepted.vqps.insert(src, vqp);
    Ok(vqp.as_ptr())
}

/// See `weft.h`.
///
/// # Safety
///
/// `bound` is null or a VQP. The program gives up what it has of that sender.
#[no_mangle]
pub unsafe extern "C" fn weft_forget(bound: *const Vqp, src: u32) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let bound = unsafe { deref(bound) }?;
        let vqp = lock(&bound.accepted).vqps.remove(&src);
        // SAFETY: by the invariant it came from a box, and the caller gives it up.
        unsafe { take(vqp.ok_or(Errno::ENOENT)?.as_ptr()) }.map(drop)
    })
}
