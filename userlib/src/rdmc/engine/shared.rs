// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the polling thread shares with the application's threads.

use super::super::event::{End, EndReason};
use super::super::memory::Buffer;
use super::super::{Error, MAX_QUEUED};
use super::session::NewGroup;
use crate::fabric::NodeSet;
use crate::gate::Gate;
use crate::multicast::View;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What a group's handle and its session know together.
#[derive(Debug)]
pub(in crate::rdmc) struct GroupShared {
    pub(in crate::rdmc) number: u32,
    /// This member's index; 0 is the root.
    pub(in crate::rdmc) index: usize,
    /// Members, by node, that have not created it.
    missing: AtomicU64,
    joined: OnceLock<Result<(), Error>>,
    end: OnceLock<End>,
    /// Messages that the root has sent in earlier groups.
    before: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    gate: Gate,
}

impl GroupShared {
    pub(in crate::rdmc) fn new(number: u32, index: usize, others: NodeSet) -> Self {
        Self {
            number,
            index,
            missing: AtomicU64::new(others.bits()),
            joined: OnceLock::new(),
            end: OnceLock::new(),
            before: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            gate: Gate::default(),
        }
    }

    pub(super) fn is_here(&self, node: usize) {
        let node = NodeSet::EMPTY.with(node).bits();
        self.missing.fetch_and(!node, Ordering::AcqRel);
    }

    pub(in crate::rdmc) fn missing(&self) -> NodeSet {
        NodeSet::from_bits(self.missing.load(Ordering::Acquire))
    }

    pub(super) fn has_joined(&self, outcome: Result<(), Error>) {
        // Only the first counts.
        let _ = self.joined.set(outcome);
        self.gate.open();
    }

    /// Also if it was never open: then whoever waits for that learns it.
    pub(super) fn has_ended(&self, end: End) {
        let _ = self.end.set(end);
        let group = self.number;
        self.has_joined(Err(Error::Ended { group, end }));
    }

    pub(super) fn has_completed(&self, messages: u64) {
        self.completed.store(messages, Ordering::Release);
        self.gate.open();
    }

    pub(super) fn set_before(&self, messages: u64) {
        self.before.store(messages, Ordering::Release);
    }

    /// Messages that the root has sent in earlier groups. Known when it has created this one.
    pub(super) fn before(&self) -> u64 {
        self.before.load(Ordering::Acquire)
    }

    pub(in crate::rdmc) fn joined(&self) -> Option<Result<(), Error>> {
        self.joined.get().cloned()
    }

    pub(in crate::rdmc) fn end(&self) -> Option<End> {
        self.end.get().copied()
    }

    pub(in crate::rdmc) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Messages that were given to the group.
    pub(in crate::rdmc) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Those of them that are not done.
    pub(in crate::rdmc) fn outstanding(&self) -> u64 {
        self.submitted().saturating_sub(self.completed())
    }

    /// Counts a further message, if so many may wait.
    pub(in crate::rdmc) fn admit(&self) -> bool {
        let admitted =
            self.submitted
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |submitted| {
                    let waiting = submitted.saturating_sub(self.completed());
                    (waiting < MAX_QUEUED).then_some(submitted + 1)
                });
        admitted.is_ok()
    }

    pub(in crate::rdmc) fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// What an application's thread wants done.
pub(in crate::rdmc) enum Command {
    Create(Box<NewGroup>),
    Send {
        group: u32,
        buffer: Buffer,
        size: usize,
    },
    Leave(u32),
    Abandon(u32),
    /// The application has installed a view.
    View(Box<View>),
}

/// Commands on their way to the polling thread.
#[derive(Default)]
pub(super) struct Commands {
    /// Looked at each round, while the lock is taken only then.
    any: AtomicBool,
    list: Mutex<Vec<Command>>,
    /// The polling thread has ended, and takes no more.
    closed: AtomicBool,
}

impl Commands {
    /// Adds one, or gives it back if nobody will take it.
    pub(super) fn push(&self, command: Command) -> Result<(), Command> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Acquire) {
            return Err(command);
        }
        list.push(command);
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether there are some.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Vec<Command> {
        if !self.any.load(Ordering::Relaxed) || !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut list)
    }

    /// The last ones.
    pub(super) fn close(&self) -> Vec<Command> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Release);
        std::mem::take(&mut list)
    }
}

/// What the members of a group are told whose node goes while it is open.
pub(super) fn deserted(node: usize) -> End {
    End {
        node,
        reason: EndReason::Deserted,
    }
}
