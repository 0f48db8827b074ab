// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_open_peer`: the address handles of unconnected VQPs.

use super::device::{Device, Session};
use super::verbs::IbvGid;
use super::{deref, guarded, handle, status, take};
use crate::ioctl;
use nix::errno::Errno;
use std::ffi::c_int;
use std::sync::Arc;
use weft_core::uapi::{self, Pod};

/// `struct weft_peer`.
#[derive(Debug)]
pub struct Peer {
    pub(super) session: Arc<Session>,
    pub(super) number: u32,
}

/// See `weft.h`.
///
/// # Safety
///
/// `device` is null or a device, `gid` null or a GID.
#[no_mangle]
pub unsafe extern "C" fn weft_open_peer(
    device: *const Device,
    gid: *const IbvGid,
    port: u32,
) -> *mut Peer {
    handle(|| {
        // SAFETY: the caller promises it.
        let session = &unsafe { deref(device) }?.session;
        // SAFETY: the caller promises it.
        let gid = unsafe { deref(gid) }?.raw;
        let mut arg = uapi::PeerOpen {
            gid,
            port,
            ..Pod::zeroed()
        };
        ioctl::peer_open(session.fd(), &mut arg)?;
        Ok(Peer {
            session: Arc::clone(session),
            number: arg.peer,
        })
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `peer` is null or a peer, which the caller gives up.
#[no_mangle]
pub unsafe extern "C" fn weft_close_peer(peer: *mut Peer) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let peer = unsafe { take(peer) }?;
        let mut arg = uapi::PeerHandle {
            peer: peer.number,
            ..Pod::zeroed()
        };
        // It fails only if the session's node has gone.
        let _ = ioctl::peer_close(peer.session.fd(), &mut arg);
        Ok(())
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// `peer` is null or a peer.
#[no_mangle]
pub unsafe extern "C" fn weft_peer_num(peer: *const Peer) -> u32 {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { deref(peer) }).map_or(u32::MAX, |peer| peer.number)
}

impl Peer {
    /// The peer that a request of a session names.
    ///
    /// # Errors
    ///
    /// `EINVAL`: another session has opened it.
    pub(super) fn number_in(&self, session: &Arc<Session>) -> Result<u32, Errno> {
        if Arc::ptr_eq(&self.session, session) {
            Ok(self.number)
        } else {
            Err(Errno::EINVAL)
        }
    }
}
