// SPDX-License-Identifier: GPL-2.0

//! A VQP that is not connected, as a DC initiator of verbs is: each request names its
//! peer. It has a VQP of its own, a *branch*, for each peer that requests of it are under
//! way to; so requests to a peer stay in order, and one that fails stops none to others.
//!
//! A branch without requests goes when there are many, unless it has failed: requests to
//! that peer are flushed until the user closes the peer.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;

use super::{Owner, Peer, Vqp, VqpConfig};
use crate::errno;
use crate::quota::Held;
use crate::sync::{new_lock, FastMutex};

/// Branches from which on those without requests go.
const MANY: usize = 32;

/// A peer that a session has opened.
pub(crate) struct OpenPeer {
    peer: Arc<Peer>,
    /// The receiver of messages; `None`: none may be sent.
    to: Option<Receiver>,
    is_closed: AtomicBool,
    /// Its place among the peers that its user may have open.
    _held: Held,
}

impl OpenPeer {
    /// A peer, and the receiver of messages to it.
    pub(crate) fn new(peer: Arc<Peer>, to: Option<Receiver>, held: Held) -> Self {
        Self {
            peer,
            to,
            is_closed: AtomicBool::new(false),
            _held: held,
        }
    }

    /// No further requests go to it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

struct Branch {
    vqp: Arc<Vqp>,
    to: Arc<OpenPeer>,
}

impl Branch {
    fn is_idle(&self) -> bool {
        let is_done = self.to.is_closed() || !self.vqp.failed.load(Ordering::Relaxed);
        self.vqp.under_way() == 0 && is_done
    }
}

struct Table {
    /// By the peer's handle.
    branches: RBTree<u32, Branch>,
    count: usize,
    /// How many there may be before those without requests go.
    many: usize,
    /// The VQP was destroyed.
    is_stopped: bool,
}

impl Table {
    /// Lets branches without requests go. Some may be dropped here: no lock of a stream
    /// is held.
    fn prune(&mut self) {
        let mut kept = 0;
        let mut cursor = self.branches.cursor_front_mut();
        while let Some(at) = cursor {
            let (_, branch) = at.current();
            cursor = if branch.is_idle() && branch.vqp.retire() {
                at.remove_current().0
            } else {
                kept += 1;
                at.move_next()
            };
        }
        self.count = kept;
        self.many = (2 * kept).max(MANY);
    }
}

/// The branches of an unconnected VQP.
#[pin_data]
pub(crate) struct Branches {
    #[pin]
    table: FastMutex<Table>,
}

impl Branches {
    pub(super) fn new() -> Result<Pin<KBox<Self>>> {
        let table = Table {
            branches: RBTree::new(),
            count: 0,
            many: MANY,
            is_stopped: false,
        };
        KBox::pin_init(
            pin_init!(Self { table <- new_lock!(table, "weft_branches") }),
            kernel::alloc::flags::GFP_KERNEL_ACCOUNT,
        )
    }

    /// Nobody hears of their requests any more.
    pub(super) fn stop(&self) {
        let mut table = self.table.lock();
        table.is_stopped = true;
        for branch in table.branches.values() {
            branch.vqp.stop();
        }
        // Those with requests under way live on until those have ended.
        let branches = core::mem::replace(&mut table.branches, RBTree::new());
        drop(table);
        drop(branches);
    }
}

impl Vqp {
    /// Lets go of a branch, unless somebody posts to it: a thread that has found it before
    /// looks for its successor. So requests of a thread to a peer stay in order, and a
    /// destroyed VQP's branches are all known.
    fn retire(&self) -> bool {
        let Some(_submitter) = self.submitter.try_lock() else {
            return false;
        };
        let is_idle = self.under_way() == 0;
        self.is_retired.store(is_idle, Ordering::Relaxed);
        is_idle
    }

    /// Whether it is a branch that was let go of.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Whether each of its requests names its peer.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.branches.is_some()
    }

    /// The branch for a peer, made if need be: `open` finds what the session has under the
    /// handle, and `next_flow` names a new one to targets.
    ///
    /// # Errors
    ///
    /// `EBADF` (the session has no such peer), `ENOMEM`.
    pub(crate) fn branch(
        &self,
        handle: u32,
        open: impl FnOnce() -> Result<Arc<OpenPeer>>,
        next_flow: impl FnOnce() -> u32,
    ) -> Result<Arc<Self>> {
        let branches = self.branches.as_ref().ok_or_else(errno::not_conn)?;
        let mut table = branches.table.lock();
        if let Some(branch) = table.branches.get(&handle) {
            let open = (!branch.to.is_closed()).then(|| branch.vqp.clone());
            return open.ok_or(EBADF);
        }
        if table.is_stopped {
            return Err(EBADF);
        }
        let to = open()?;
        if table.count >= table.many {
            table.prune();
        }
        let vqp = self.new_branch(&to, handle, next_flow())?;
        let branch = Branch {
            vqp: vqp.clone(),
            to,
        };
        table.branches.try_create_and_insert(
            handle,
            branch,
            kernel::alloc::flags::GFP_KERNEL_ACCOUNT,
        )?;
        table.count += 1;
        Ok(vqp)
    }

    fn new_branch(&self, to: &OpenPeer, handle: u32, flow: u32) -> Result<Arc<Self>> {
        let Owner { session, user } = self.owner;
        let config = VqpConfig {
            flow,
            owner: Owner { session, user },
            cq: self.cq.clone(),
            rq: None,
            max_send_wr: self.in_flight.most(),
            is_unconnected: false,
            held: None,
        };
        let vqp = Self::with(config, None, handle)?;
        vqp.set_handle(self.handle());
        vqp.connect(to.peer.clone(), to.to)?;
        Ok(vqp)
    }
}
