// SPDX-License-Identifier: MIT OR Apache-2.0

//! How long a member that leaves still reads what others have sent.
//!
//! Leaving has two steps. With `left` nobody waits any more for what this node
//! receives or sends. But a thread of the application may be in the middle of a
//! batch, or have messages before it that were stable: their slots are the
//! senders' again only with `gone`, which is said when the last reader ends.

use super::rows::NodeRow;
use super::shared::Shared;
use crate::fabric::{Endpoint, FabricError, NodeSet};
use crate::sst::Table;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// This node in its group. The last one who drops it says that it is gone.
#[derive(Debug)]
pub(super) struct Presence {
    endpoint: Arc<dyn Endpoint>,
    table: Table<NodeRow>,
}

impl Presence {
    /// # Errors
    ///
    /// Those of [`Table::new`].
    pub(super) fn new(endpoint: &Arc<dyn Endpoint>, rows: usize) -> Result<Self, FabricError> {
        Ok(Self {
            endpoint: Arc::clone(endpoint),
            table: Table::new(Arc::clone(endpoint), rows)?,
        })
    }

    /// What another node says of itself.
    pub(super) fn of(&self, node: usize) -> &NodeRow {
        self.table.row(node)
    }

    /// Says that nothing more is sent, and that nobody need wait for this node.
    pub(super) fn leave(&self) {
        self.table.own().left.raise();
        self.tell();
    }

    fn tell(&self) {
        let others: NodeSet = (0..self.endpoint.nodes()).collect();
        let flags = NodeRow::left().through(NodeRow::gone());
        // Who is gone already need not be told.
        let _ = self.table.push(flags, others);
        for node in others.iter() {
            self.endpoint.ring(node);
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.table.own().gone.raise();
        self.tell();
    }
}

/// What one subgroup's deliveries keep of the presence.
#[derive(Debug, Default)]
pub(super) struct Stay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    presence: Option<Arc<Presence>>,
    /// The thread on which a batch is being delivered.
    reading: Option<ThreadId>,
    /// How far deliveries have got.
    delivered: u64,
}

impl Stay {
    /// From now on there are deliveries on a thread of the application.
    pub(super) fn begin(&self, presence: Arc<Presence>) {
        self.lock().presence = Some(presence);
    }

    /// Before messages are read. False if that is not allowed any more.
    pub(super) fn start_reading(&self) -> bool {
        let mut state = self.lock();
        state.reading = state.presence.as_ref().map(|_| thread::current().id());
        state.reading.is_some()
    }

    /// Whether this thread is in the middle of a batch.
    pub(super) fn is_read_here(&self) -> bool {
        self.lock().reading == Some(thread::current().id())
    }

    /// Behind [`Self::start_reading`], when nothing is read any more. `last`
    /// says that all that will ever be stable could be read.
    pub(super) fn stop_reading(&self, shared: &Shared, delivered: u64, last: bool) {
        let mut state = self.lock();
        state.reading = None;
        let no_further = last && state.delivered == delivered;
        state.delivered = delivered;
        // A ring that is corrupt is gone through no further either.
        let _last = state.end_if(shared, no_further);
        drop(state);
    }

    /// When no more messages become stable.
    pub(super) fn close(&self, shared: &Shared) {
        let mut state = self.lock();
        let _last = state.end_if(shared, false);
        drop(state);
    }

    /// When nobody will read any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.reading = None;
        let presence = state.presence.take();
        drop(state);
        drop(presence);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one store: a panic leaves nothing half-done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The presence, to be dropped without the lock, if the subgroup is closed
    /// and all is read.
    fn end_if(&mut self, shared: &Shared, no_further: bool) -> Option<Arc<Presence>> {
        // Read first: what is stable then is the last of it.
        let closed = shared.is_closed();
        let all = no_further || self.delivered >= shared.stable.load(Ordering::Acquire);
        let ends = closed && all && self.reading.is_none();
        if ends {
            self.presence.take()
        } else {
            None
        }
    }
}
