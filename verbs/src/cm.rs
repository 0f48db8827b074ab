// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections by rdma_cm(7).
//!
//! A listener shares its [`EventChannel`] with the connections that come of it.
//! The channel never blocks: wait for its descriptor, then take events. The
//! active side, a [`Route`], has none and waits for each step.

mod client;
mod event;
mod id;
mod sockaddr;

pub use client::Route;
pub use event::{CmEvent, ConnectRequest, EventChannel};
pub(crate) use id::CmId;
pub use id::{ConnectionId, Listener, ServerConnection};

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{sys, Error, Result};

/// The devices that librdmacm has open. Clones share one list; the last one lets
/// the library close them.
#[derive(Clone, Debug)]
pub(crate) struct CmContexts(Arc<ContextList>);

/// # Invariants
///
/// `list` came from `rdma_get_devices`, has `count` entries, and is freed once.
#[derive(Debug)]
struct ContextList {
    list: NonNull<*mut sys::ibv_context>,
    count: usize,
}

// SAFETY: the list does not change after it is made, and libibverbs' contexts
// are thread safe.
unsafe impl Send for ContextList {}
// SAFETY: as above.
unsafe impl Sync for ContextList {}

impl CmContexts {
    /// Opens every device there is. (`rdma_get_devices`)
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`].
    pub(crate) fn open() -> Result<Self> {
        let mut count: c_int = 0;
        // SAFETY: `count` is writable.
        let list = unsafe { sys::rdma_get_devices(&mut count) };
        let Some(list) = NonNull::new(list) else {
            let error = Error::last("rdma_get_devices");
            return Err(match error.errno() {
                Some(libc::ENODEV | libc::ENOENT) => Error::NoDevice,
                _ => error,
            });
        };
        // INVARIANT: list and count are from the same call.
        let contexts = Self(Arc::new(ContextList {
            list,
            count: usize::try_from(count).unwrap_or(0),
        }));
        if contexts.0.count == 0 {
            return Err(Error::NoDevice);
        }
        Ok(contexts)
    }

    /// Whether `context` is one of these.
    pub(crate) fn holds(&self, context: NonNull<sys::ibv_context>) -> bool {
        // SAFETY: the invariant gives the list's length.
        let list = unsafe { std::slice::from_raw_parts(self.0.list.as_ptr(), self.0.count) };
        list.contains(&context.as_ptr())
    }
}

impl Drop for ContextList {
    fn drop(&mut self) {
        // SAFETY: from `rdma_get_devices`, freed here only (invariant).
        unsafe { sys::rdma_free_devices(self.list.as_ptr()) };
    }
}
