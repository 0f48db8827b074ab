// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_start`: a device, a CQ and registered memory in one system call and one `mmap`.

use super::cq::Cq;
use super::device::{open_session, Device};
use super::mr::Mr;
use super::queues::{Queues, Sizes};
use super::sized::{self, Extensible};
use super::status;
use super::verbs::IbvGid;
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use weft_core::gid::Gid;
use weft_core::uapi;

/// `struct weft_start_attr`.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct StartAttr {
    pub size: usize,
    pub node: c_int,
    pub cqe: c_int,
    pub cq_context: *mut c_void,
    pub length: usize,
    pub access: c_int,
    pub reserved: u32,
    pub gid: *const IbvGid,
}

// SAFETY: it is, and has numbers and pointers.
unsafe impl Extensible for StartAttr {
    const MIN_SIZE: usize = offset_of!(Self, gid);
}

/// See `weft.h`.
///
/// # Safety
///
/// Each pointer is null or points to what it says; `attr` to as many bytes as its size.
#[no_mangle]
pub unsafe extern "C" fn weft_start(
    attr: *const StartAttr,
    device: *mut *mut Device,
    cq: *mut *mut Cq,
    mr: *mut *mut Mr,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let attr = unsafe { sized::read(attr) }?;
        let to = [device.cast::<c_void>(), cq.cast(), mr.cast()];
        if to.iter().any(|to| to.is_null()) || attr.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: null, or the caller promises it.
        let peer = unsafe { attr.gid.as_ref() }.map_or(Gid::default(), |gid| gid.raw);
        let (session, new_cq, new_mr) = start(&attr, peer)?;
        // SAFETY: not null, and the caller promises the rest.
        unsafe { device.write(Box::into_raw(Box::new(Device { session }))) };
        // SAFETY: as above.
        unsafe { cq.write(Arc::into_raw(Arc::new(new_cq)).cast_mut()) };
        // SAFETY: as above.
        unsafe { mr.write(Box::into_raw(Box::new(new_mr))) };
        Ok(())
    })
}

fn start(attr: &StartAttr, peer: Gid) -> Result<(Arc<super::device::Session>, Cq, Mr), Errno> {
    let memory_bytes = u32::try_from(attr.length).map_err(|_| Errno::EINVAL)?;
    if memory_bytes == 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = uapi::RingsCreate {
        memory_bytes,
        memory_access: u32::try_from(attr.access).map_err(|_| Errno::EINVAL)?,
        ..Sizes::of_cq(attr.cqe)?.to_raw()
    };
    let (session, said) = open_session(attr.node, wanted, peer)?;
    let session = Arc::new(session);
    let (queues, mapping) = Queues::with_memory(&session, &said)?;
    let at = said.memory_offset as usize;
    if at
        .checked_add(attr.length)
        .is_none_or(|end| end > mapping.len())
    {
        return Err(Errno::EPROTO);
    }
    // SAFETY: within the mapping, as was just looked at.
    let addr: NonNull<u8> = unsafe { mapping.base().add(at) };
    let mr = Mr::of_queues(&session, addr, &said, mapping);
    let cq = Cq::new(queues, attr.cq_context);
    Ok((session, cq, mr))
}
