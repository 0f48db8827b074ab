// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_open_device` and what concerns the session.

use super::sized::{self, Extensible};
use super::verbs::IbvGid;
use super::{deref, handle, status, take};
use crate::ioctl;
use crate::ring::Lot;
use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use weft_core::gid::Gid;
use weft_core::uapi::{
    self, Pod, ABI_VERSION, DEVICE_PATH, MAX_INLINE, MAX_MRS_PER_SESSION, MAX_MR_BYTES,
    MAX_MSG_BYTES, MAX_MWS_PER_SESSION, MAX_NODES, MAX_PEERS_PER_USER, MAX_PORT, MAX_RECV_SGE,
    MAX_RECV_WR, MAX_RINGS_PER_SESSION, MAX_SEND_WR, MAX_SGE, MAX_VQPS_PER_USER, MAX_WC, NODE_ANY,
};

/// `WEFT_ABI_VERSION`: the number in the library's soname.
pub(super) const C_ABI_VERSION: u32 = 1;

/// `struct weft_device`. VQPs and regions made from it keep the session open.
#[derive(Debug)]
pub struct Device {
    pub(super) session: Arc<Session>,
}

/// An open `/dev/weft`.
#[derive(Debug)]
pub(super) struct Session {
    fd: OwnedFd,
    pub(super) node: u32,
    nodes: u32,
    lot: Arc<Lot>,
}

impl Session {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Rings that are mapped and that no VQP has.
    pub(super) fn lot(&self) -> &Arc<Lot> {
        &self.lot
    }
}

#[cfg(test)]
impl Session {
    /// One whose calls the kernel refuses.
    pub(super) fn of_null() -> Arc<Self> {
        Arc::new(Self {
            fd: std::fs::File::open("/dev/null").unwrap().into(),
            node: 0,
            nodes: 0,
            lot: Lot::new(),
        })
    }
}

/// `struct weft_device_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct DeviceAttr {
    pub size: usize,
    pub gid: IbvGid,
    pub max_mr_size: u64,
    pub node: u32,
    pub node_count: u32,
    pub max_nodes: u32,
    pub max_vqp: u32,
    pub max_vqp_wr: u32,
    pub max_sge: u32,
    pub max_mr: u32,
    pub max_msg_sz: u32,
    pub max_inline_data: u32,
    pub max_recv_wr: u32,
    pub max_recv_sge: u32,
    pub max_port: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_peer: u32,
    pub max_mw: u32,
}

// SAFETY: it is, and has numbers only.
unsafe impl Extensible for DeviceAttr {
    const MIN_SIZE: usize = offset_of!(Self, max_cq);
}

/// See `weft.h`.
#[no_mangle]
pub extern "C" fn weft_abi_version() -> u32 {
    C_ABI_VERSION
}

/// See `weft.h`.
#[no_mangle]
pub extern "C" fn weft_open_device(node: c_int) -> *mut Device {
    handle(|| {
        let (session, _) = open_session(node, uapi::RingsCreate::zeroed(), Gid::default())?;
        let session = Arc::new(session);
        Ok(Device { session })
    })
}

/// A session, with the rings and the memory that are wanted, and what the module says of
/// these. `peer`: whom it will connect to, or zero.
pub(super) fn open_session(
    node: c_int,
    rings: uapi::RingsCreate,
    peer: Gid,
) -> Result<(Session, uapi::RingsCreate), Errno> {
    let node = match node {
        -1 => NODE_ANY,
        node => u32::try_from(node).map_err(|_| Errno::EINVAL)?,
    };
    let fd = open(DEVICE_PATH, OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut arg = uapi::Hello {
        abi_version: ABI_VERSION,
        node,
        rings,
        peer,
        ..Pod::zeroed()
    };
    ioctl::hello(fd.as_fd(), &mut arg)?;
    let session = Session {
        fd,
        node: arg.node,
        nodes: arg.node_count,
        lot: Lot::new(),
    };
    Ok((session, arg.rings))
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device, which the caller gives up.
#[no_mangle]
pub unsafe extern "C" fn weft_close_device(device: *mut Device) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        unsafe { take(device) }.map(drop)
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device, `attr` null or room for the attributes.
#[no_mangle]
pub unsafe extern "C" fn weft_query_device(device: *const Device, attr: *mut DeviceAttr) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        // SAFETY: the caller promises it.
        unsafe { sized::size(attr) }?;
        let value = attributes(session)?;
        // SAFETY: the caller promises it.
        unsafe { sized::write(attr, &value) }
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device.
#[no_mangle]
pub unsafe extern "C" fn weft_device_fd(device: *const Device) -> c_int {
    // SAFETY: the caller promises it.
    match unsafe { deref(device) } {
        Ok(device) => device.session.fd().as_raw_fd(),
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "small constants")]
fn attributes(session: &Session) -> Result<DeviceAttr, Errno> {
    let mut node = uapi::NodeInfo {
        index: session.node,
        ..Pod::zeroed()
    };
    ioctl::node(session.fd(), &mut node)?;
    Ok(DeviceAttr {
        size: size_of::<DeviceAttr>(),
        gid: IbvGid { raw: node.gid },
        max_mr_size: MAX_MR_BYTES,
        node: session.node,
        node_count: session.nodes,
        max_nodes: MAX_NODES as u32,
        max_vqp: MAX_VQPS_PER_USER,
        max_vqp_wr: MAX_SEND_WR,
        max_sge: MAX_SGE as u32,
        max_mr: MAX_MRS_PER_SESSION as u32,
        max_msg_sz: MAX_MSG_BYTES,
        max_inline_data: MAX_INLINE,
        max_recv_wr: MAX_RECV_WR,
        max_recv_sge: MAX_RECV_SGE as u32,
        max_port: MAX_PORT,
        max_cq: MAX_RINGS_PER_SESSION as u32,
        max_cqe: MAX_WC,
        max_srq: MAX_RINGS_PER_SESSION as u32,
        max_srq_wr: MAX_RECV_WR,
        max_peer: MAX_PEERS_PER_USER,
        max_mw: MAX_MWS_PER_SESSION as u32,
    })
}
