// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C ABI: what `include/weft.h` declares and `libweft.so` exports.
//!
//! The header is the documentation; names, structs and errors follow
//! libibverbs. Handles are boxes that C holds by pointer. A null pointer where
//! there has to be something is `EINVAL`; any other pointer is believed, as in
//! every C library. No panic gets out: [`status`], [`count`] and [`handle`]
//! stand between each function and its caller.
//!
//! Everything here goes to the module through `crate::ioctl` and `crate::ring` and
//! hands its errno on as it is, but for a full queue, which verbs call `ENOMEM`.

mod completion;
mod device;
mod error;
mod mr;
mod node;
mod port;
mod recv;
mod send;
#[cfg(test)]
mod tests;
pub mod verbs;
mod vqp;

pub use completion::{weft_enter, weft_poll_cq, weft_wait_cq};
pub use device::{
    weft_abi_version, weft_close_device, weft_device_fd, weft_open_device, weft_query_device,
    Device, DeviceAttr,
};
pub use error::weft_strerror;
pub use mr::{weft_dereg_mr, weft_reg_mr, Mr};
pub use node::{weft_query_node, NodeAttr};
pub use port::{weft_accept, weft_bind, weft_forget, weft_pop_msgs, Msg};
pub use recv::weft_post_recv;
pub use send::weft_post_send;
pub use vqp::{
    weft_create_vqp, weft_destroy_vqp, weft_qconnect, weft_vqp_context, weft_vqp_num, Vqp,
    VqpInitAttr,
};

use nix::errno::Errno;
use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

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

/// Stores a result where C wants it.
///
/// # Safety
///
/// `place` is null, or room for a `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Errno> {
    if place.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises that there is room.
    unsafe { place.write(value) };
    Ok(())
}
