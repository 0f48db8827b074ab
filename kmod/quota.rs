// SPDX-License-Identifier: GPL-2.0

//! Counts what users hold of a node, so that none of them can take it all. A session has
//! limits of its own; these are for all sessions of a user together.
//!
//! A user has a row as long as it holds something. Rows are kept in a tree that
//! grows, and their memory is charged to the cgroup of the process that first
//! takes something: many users fill nothing that others need.
//!
//! Lock order: `rows` is innermost.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::Arc;
use weft_core::uapi::{
    MAX_BLOCKS_PER_USER, MAX_MRS_PER_USER, MAX_MWS_PER_USER, MAX_PEERS_PER_USER,
    MAX_STREAMS_PER_USER, MAX_VQPS_PER_USER,
};

use crate::bindings;
use crate::sync::{new_lock, BhLock};

/// The user in whose name the machine's administrator acts.
const ROOT: u32 = 0;

/// The user that answers for what the calling task takes: a number of the initial
/// user namespace.
///
/// Of a task in a user namespace that an ordinary user has made it is that user:
/// whoever was given subordinate ids could otherwise be 65,536 users. Of nested
/// namespaces the outermost counts that root does not own. In namespaces that root
/// has made, as a container manager does that runs as root, it is the task's own
/// uid: such a manager gives each container a range of its own.
///
/// Subordinate ids exist in user namespaces alone: newuidmap(1) writes them into a
/// namespace's map, and only a task within that namespace can take one on.
pub(crate) fn current_user() -> u32 {
    // SAFETY: called from a system call, so that there is a current task.
    let mut user = unsafe { bindings::weft_current_uid() };
    // SAFETY: as above.
    let mut namespace = unsafe { bindings::weft_current_user_ns() };
    // At most 33 turns: the kernel nests them no deeper.
    while !namespace.is_null() {
        let (mut owner, mut parent) = (ROOT, core::ptr::null());
        // SAFETY: the current task holds its namespace, and each namespace its
        // parent; what the call reads is set before anybody can be in one.
        unsafe { bindings::weft_user_ns_made_by(namespace, &mut owner, &mut parent) };
        if !parent.is_null() && owner != ROOT {
            user = owner;
        }
        namespace = parent;
    }
    user
}

/// The kinds of objects that are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Virtual queue pairs.
    Vqps,
    /// Memory regions.
    Regions,
    /// Streams of DC initiators.
    Streams,
    /// Registrations with the RDMA device.
    Blocks,
    /// Peers that were opened.
    Peers,
    /// Memory windows.
    Windows,
}

const KINDS: usize = 6;
const LIMITS: [u32; KINDS] = [
    MAX_VQPS_PER_USER,
    MAX_MRS_PER_USER,
    MAX_STREAMS_PER_USER,
    MAX_BLOCKS_PER_USER,
    MAX_PEERS_PER_USER,
    MAX_MWS_PER_USER,
];

/// One user's objects, by kind.
type Row = [u32; KINDS];

/// The objects that the users of a node hold.
///
/// # Invariants
///
/// A user has a row if and only if it holds something, and a [`Held`] for it.
#[pin_data]
pub(crate) struct Quota {
    #[pin]
    rows: BhLock<RBTree<u32, Row>>,
}

/// Things of one kind that a user holds, until it is dropped: at least one.
pub(crate) struct Held {
    quota: Arc<Quota>,
    user: u32,
    kind: Kind,
    count: u32,
}

impl Quota {
    /// Nobody holds anything.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // INVARIANT: nobody has a row.
        Arc::pin_init(
            pin_init!(Self { rows <- new_lock!(RBTree::new(), "weft_quota") }),
            GFP_KERNEL,
        )
    }

    /// Counts one more thing of a user. Process context: may sleep.
    ///
    /// # Errors
    ///
    /// `EMFILE`: it is one too many. `ENOMEM`.
    pub(crate) fn take(self: &Arc<Self>, user: u32, kind: Kind) -> Result<Held> {
        let counted = self
            .rows
            .lock()
            .get_mut(&user)
            .map(|row| count(row, kind, 1));
        match counted {
            Some(counted) => counted?,
            None => self.take_first(user, kind)?,
        }
        Ok(Held {
            quota: self.clone(),
            user,
            kind,
            count: 1,
        })
    }

    /// Likewise, for a user who had no row a moment ago.
    fn take_first(&self, user: u32, kind: Kind) -> Result {
        // Allocated, and freed if it is not needed, without the lock.
        let reserved = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut rows = self.rows.lock();
        if let Some(row) = rows.get_mut(&user) {
            return count(row, kind, 1);
        }
        let mut row = [0; KINDS];
        count(&mut row, kind, 1)?;
        // INVARIANT: it holds what was just counted.
        rows.insert(reserved.into_node(user, row));
        Ok(())
    }
}

/// Counts more things in a row.
fn count(row: &mut Row, kind: Kind, more: u32) -> Result {
    let held = row.get_mut(kind as usize).ok_or(EMFILE)?;
    let limit = LIMITS.get(kind as usize).copied().unwrap_or(0);
    let sum = held.checked_add(more).filter(|sum| *sum <= limit);
    *held = sum.ok_or(EMFILE)?;
    Ok(())
}

impl Held {
    /// Counts things of another kind for the same user: `more`, at least one.
    ///
    /// # Errors
    ///
    /// `EMFILE`: they are too many.
    pub(crate) fn also(&self, kind: Kind, more: u32) -> Result<Self> {
        let mut rows = self.quota.rows.lock();
        // The user has a row as long as this value is there.
        let row = rows.get_mut(&self.user).ok_or(EMFILE)?;
        count(row, kind, more)?;
        Ok(Self {
            quota: self.quota.clone(),
            user: self.user,
            kind,
            count: more,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut rows = self.quota.rows.lock();
        let Some(row) = rows.get_mut(&self.user) else {
            return;
        };
        if let Some(held) = row.get_mut(self.kind as usize) {
            *held = held.saturating_sub(self.count);
        }
        if *row == [0; KINDS] {
            // INVARIANT: it holds nothing any more.
            let node = rows.remove_node(&self.user);
            drop(rows);
            drop(node);
        }
    }
}
