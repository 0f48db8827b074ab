// SPDX-License-Identifier: GPL-2.0

//! The nodes of this host, by their index. A node that stops stays in its place until
//! it has stopped, and nobody is handed it any more.

use kernel::prelude::*;
use kernel::sync::{global_lock, Arc};
use weft_core::uapi::MAX_NODES;

use super::Node;
use crate::bindings;

/// The nodes by their index.
type Nodes = [Option<Arc<Node>>; MAX_NODES];

global_lock! {
    // SAFETY: `init` initialises it before anything else runs.
    unsafe(uninit) static NODES: Mutex<Nodes> = [const { None }; MAX_NODES];
}

/// Prepares the list of nodes.
///
/// # Safety
///
/// Called once, before anything else here.
pub(crate) unsafe fn init() {
    // SAFETY: as the caller promises.
    unsafe { NODES.init() };
}

/// How many nodes there are that `is_it`.
pub(crate) fn count(is_it: impl Fn(&Node) -> bool) -> usize {
    let nodes = NODES.lock();
    let found = nodes.iter().flatten().filter(|node| is_it(node));
    found.count()
}

/// The node with this index.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn get(index: u32) -> Result<Arc<Node>> {
    let nodes = NODES.lock();
    let node = nodes.get(index as usize).and_then(Option::as_ref);
    node.filter(|node| node.is_alive()).cloned().ok_or(ENODEV)
}

/// The first node in the caller's network namespace, and its index.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn of_caller() -> Result<(u32, Arc<Node>)> {
    // SAFETY: called from a system call, so that there is a current task.
    let netns = unsafe { bindings::weft_current_net_inum() };
    let nodes = NODES.lock();
    let found = nodes.iter().enumerate().find_map(|(index, node)| {
        node.as_ref()
            .filter(|node| node.netns == netns && node.is_alive())
            .map(|node| (index as u32, node.clone()))
    });
    found.ok_or(ENODEV)
}

/// The first node that `is_it`, also if it is about to stop.
pub(super) fn find(is_it: impl Fn(&Node) -> bool) -> Option<Arc<Node>> {
    let nodes = NODES.lock();
    let found = nodes.iter().flatten().find(|node| is_it(node));
    found.cloned()
}

/// Takes a node in, under the first free index.
///
/// # Errors
///
/// `ENOSPC`: the host has [`MAX_NODES`] already.
pub(super) fn insert(node: &Arc<Node>) -> Result {
    let mut nodes = NODES.lock();
    *nodes.iter_mut().find(|slot| slot.is_none()).ok_or(ENOSPC)? = Some(node.clone());
    Ok(())
}

/// Takes a node out.
pub(super) fn remove(node: &Arc<Node>) {
    for slot in NODES.lock().iter_mut() {
        if slot.as_ref().is_some_and(|other| Arc::ptr_eq(other, node)) {
            *slot = None;
        }
    }
}
