// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_query_node`.

use super::device::Device;
use super::sized::{self, Extensible};
use super::verbs::IbvGid;
use super::{deref, status};
use crate::ioctl;
use nix::errno::Errno;
use std::ffi::c_int;
use std::mem::offset_of;
use weft_core::uapi::{self, Pod};

/// `struct weft_node_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct NodeAttr {
    pub size: usize,
    pub gid: IbvGid,
    pub netns: u64,
    pub device: [u8; 64],
    pub index: u32,
    pub port: u32,
    pub dct_number: u32,
    pub incarnation: u32,
    pub udp_port: u32,
    pub vqps: u32,
    pub mrs: u32,
    pub cached_peers: u32,
    pub published: u32,
    pub reserved: u32,
}

// SAFETY: it is, and has numbers only.
unsafe impl Extensible for NodeAttr {
    const MIN_SIZE: usize = offset_of!(Self, reserved);
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device, `attr` null or room for the attributes.
#[no_mangle]
pub unsafe extern "C" fn weft_query_node(
    device: *const Device,
    node: c_int,
    attr: *mut NodeAttr,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        // SAFETY: the caller promises it.
        unsafe { sized::size(attr) }?;
        let index = match node {
            -1 => session.node,
            node => u32::try_from(node).map_err(|_| Errno::EINVAL)?,
        };
        let mut raw = uapi::NodeInfo {
            index,
            ..Pod::zeroed()
        };
        ioctl::node(session.fd(), &mut raw)?;
        // SAFETY: the caller promises it.
        unsafe { sized::write(attr, &attributes(&raw)) }
    })
}

fn attributes(raw: &uapi::NodeInfo) -> NodeAttr {
    let mut device = raw.device;
    // The module ends it; C relies on that.
    device[63] = 0;
    NodeAttr {
        size: size_of::<NodeAttr>(),
        gid: IbvGid { raw: raw.gid },
        netns: raw.netns,
        device,
        index: raw.index,
        port: raw.port,
        dct_number: raw.dct_number,
        incarnation: raw.incarnation,
        udp_port: raw.udp_port,
        vqps: raw.vqps,
        mrs: raw.mrs,
        cached_peers: raw.cached_peers,
        published: raw.published,
        reserved: 0,
    }
}
