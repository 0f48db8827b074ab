// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C ABI: what `include/weft.h` declares and `libweft.so` exports.
//!
//! The header is the documentation; names, structs and errors follow
//! libibverbs. Handles are boxes that C holds by pointer. A null pointer where
//! there has to be something is `EINVAL`; any other pointer is believed, as in
//! every C library. CQs and SRQs are counted references: of the program, and of each VQP
//! that uses them. No panic gets out: `status`, `count`, `handle` and `shared`
//! stand between each function and its caller.
//!
//! Everything here goes to the module through `crate::ioctl` and `crate::ring` and
//! hands its errno on as it is, but for a full queue, which verbs call `ENOMEM`.

mod completion;
mod cq;
mod device;
mod error;
mod mr;
mod node;
mod peer;
mod port;
mod post;
mod queues;
mod recv;
mod send;
mod sized;
mod srq;
mod start;
#[cfg(test)]
mod tests;
pub mod verbs;
mod vqp;

pub use completion::{weft_enter, weft_enter_list, weft_poll_cq, weft_wait_cq};
pub use cq::{weft_cq_context, weft_create_cq, weft_destroy_cq, weft_notify_cq, weft_vqp_cq, Cq};
pub use device::{
    weft_abi_version, weft_close_device, weft_device_fd, weft_open_device, weft_query_device,
    Device, DeviceAttr,
};
pub use error::weft_strerror;
pub use mr::{weft_bind_mw, weft_dealloc_mw, weft_dereg_mr, weft_reg_mr, Mr, Mw};
pub use node::{weft_query_node, NodeAttr};
pub use peer::{weft_close_peer, weft_open_peer, weft_peer_num, Peer};
pub use port::{weft_accept, weft_bind, weft_forget, weft_pop_msgs, Msg};
pub use post::{weft_post_list, weft_post_send, weft_post_send_to, Post};
pub use recv::weft_post_recv;
pub use srq::{
    weft_create_srq, weft_destroy_srq, weft_post_srq_recv, weft_srq_context, Srq, SrqInitAttr,
};
pub use start::{weft_start, StartAttr};
pub use vqp::{
    weft_create_vqp, weft_destroy_vqp, weft_qconnect, weft_vqp_context, weft_vqp_num, Vqp,
    VqpInitAttr,
};

use nix::errno::Errno;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// Runs a function that answers 0 or an errno.
fn status(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match guarded(body) {
        Ok(()) => 0,
        Err(errno) => errno as c_int,
    }
}

/// Runs a function that answers a count or a negative errno.
fn count(body: impl FnOnce() -> Result<usize, Errno>) -> c_int {
    let counted = guarded(|| c_int::try_from(body()?).map_err(|_| Errno::EOVERFLOW));
    counted.unwrap_or_else(|errno| -(errno as c_int))
}

/// Runs a function that answers a new handle, or null with `errno` set.
fn handle<T>(body: impl FnOnce() -> Result<T, Errno>) -> *mut T {
    match guarded(body) {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(errno) => {
            errno.set();
            std::ptr::null_mut()
        }
    }
}

/// Runs a function that answers a new object that VQPs will refer to, or null with `errno`
/// set.
fn shared<T>(body: impl FnOnce() -> Result<T, Errno>) -> *mut T {
    match guarded(body) {
        Ok(value) => Arc::into_raw(Arc::new(value)).cast_mut(),
        Err(errno) => {
            errno.set();
            std::ptr::null_mut()
        }
    }
}

/// Another reference to what [`shared`] gave away; `None` if it is null.
///
/// # Safety
///
/// `pointer` is null, or came from [`shared`] and there still is a reference to it.
unsafe fn add_reference<T>(pointer: *const T) -> Option<Arc<T>> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller promises that there is one, which stays the other owner's.
    let there = ManuallyDrop::new(unsafe { Arc::from_raw(pointer) });
    Some(Arc::clone(&there))
}

/// Takes back what [`shared`] gave away, unless VQPs refer to it: `EBUSY`.
///
/// # Safety
///
/// `pointer` is null, or came from [`shared`]; no VQP begins to refer to it meanwhile, and
/// if this succeeds it is not used any more.
unsafe fn destroy<T>(pointer: *const T) -> Result<(), Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises it. The reference is the program's, which keeps it if
    // this fails.
    let own = ManuallyDrop::new(unsafe { Arc::from_raw(pointer) });
    if Arc::strong_count(&own) > 1 {
        return Err(Errno::EBUSY);
    }
    drop(ManuallyDrop::into_inner(own));
    Ok(())
}

/// Nothing here is meant to panic. Should it, the handles are still whole: what
/// changes of them are indices of rings, each by one store.
fn guarded<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO))
}

/// What C points to.
///
/// # Safety
///
/// `pointer` is null, or points to a `T` that nobody writes during `'a`.
unsafe fn deref<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: the caller promises it.
    unsafe { pointer.as_ref() }.ok_or(Errno::EINVAL)
}

/// Takes back what [`handle`] gave away.
///
/// # Safety
///
/// `pointer` is null, or came from [`handle`] and is not used any more.
unsafe fn take<T>(pointer: *mut T) -> Result<Box<T>, Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `handle` made it of a box, and the caller gives it up.
    Ok(unsafe { Box::from_raw(pointer) })
}
