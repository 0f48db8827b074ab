// SPDX-License-Identifier: GPL-2.0

//! Network namespaces that go. A node's UDP socket is one of the kernel's: it does not
//! keep its namespace, and has to be closed before that goes. Connections of rdma_cm do
//! keep it; a port's agent gives them up when nobody uses the namespace any more.

use core::cell::UnsafeCell;

use kernel::error::to_result;
use kernel::prelude::*;

use super::{port_agent, registry};
use crate::bindings;

/// The kernel's record of us, which it links into a list.
struct Operations(UnsafeCell<bindings::pernet_operations>);

// SAFETY: written by `Namespaces::register` before the kernel knows of it, and by the
// kernel, under its lock, afterwards.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = {
    // SAFETY: all its fields may be NULL or zero.
    Operations(UnsafeCell::new(unsafe {
        core::mem::MaybeUninit::zeroed().assume_init()
    }))
};

/// Stops the nodes of namespaces that go, until it is dropped.
pub(crate) struct Namespaces(());

impl Namespaces {
    /// Only the module's initialisation does it, once.
    pub(crate) fn register() -> Result<Self> {
        let operations = OPERATIONS.0.get();
        // SAFETY: the kernel does not know of it yet, and nobody else writes it.
        unsafe { (*operations).exit = Some(exit) };
        // As those of a device: they run before the network devices go.
        // SAFETY: a static lives as long as the module, and `drop` comes before the
        // module goes.
        to_result(unsafe { bindings::register_pernet_device(operations) })?;
        Ok(Self(()))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // SAFETY: registered by `register`.
        unsafe { bindings::unregister_pernet_device(OPERATIONS.0.get()) };
    }
}

/// # Safety
///
/// Called by the kernel, for a namespace that goes.
unsafe extern "C" fn exit(net: *mut bindings::net) {
    // SAFETY: the namespace is valid during the call.
    let netns = unsafe { bindings::weft_net_inum(net) };
    while let Some(node) = registry::find(|node| node.netns == netns) {
        port_agent::retire(&node);
    }
}
