// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a subgroup's polling thread shares with the application's threads.
//!
//! Nothing here is locked on the way of a message; around a batch that an
//! application's thread asks for, [`Stay`] is, briefly. The baseline's lock
//! exists only when [`Options::early_lock_release`] is switched off. It is the
//! only lock that is held while another function of this crate is called: the
//! polling thread has it while a closure is called, and a closure may send. It
//! takes no lock of its own group then ([`Shared::sender_lock`]), so within a group
//! there is no order to keep. Among groups there is none: two whose closures send into
//! each other can deadlock, and [`Options::early_lock_release`] says so.
//!
//! [`Options::early_lock_release`]: super::Options::early_lock_release

use super::config::Spec;
use super::metrics::Counts;
use super::stay::Stay;
use super::watcher::Ending;
use super::SendError;
use crate::fabric::{Endpoint, NodeSet};
use crate::gate::Gate;
use crate::line::Line;
use crate::smc::Slots;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Who has left and who has failed. Written by the polling thread.
#[derive(Debug, Default)]
pub(super) struct Status {
    left: AtomicU64,
    gone: AtomicU64,
    failed: AtomicU64,
    /// Where there are views: nodes that wrote what no member writes, or hang, or that the
    /// application suspects. The next view is without them.
    suspected: AtomicU64,
    /// The thread that polls, by its [`mark`]: in a stepped group while it is in a step.
    polling_thread: AtomicUsize,
    /// There is no polling thread: nothing goes on while the application waits.
    pub(super) is_stepped: bool,
    /// The group goes on without those who fail.
    pub(super) has_views: bool,
}

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other thread has at the same time, and never 0.
fn mark() -> usize {
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

impl Status {
    pub(super) fn new(is_stepped: bool, has_views: bool) -> Self {
        Self {
            is_stepped,
            has_views,
            ..Self::default()
        }
    }

    pub(super) fn left(&self) -> NodeSet {
        NodeSet::from_bits(self.left.load(Ordering::Acquire))
    }

    /// Those of who has left that read no more.
    pub(super) fn gone(&self) -> NodeSet {
        NodeSet::from_bits(self.gone.load(Ordering::Acquire))
    }

    pub(super) fn failed(&self) -> NodeSet {
        NodeSet::from_bits(self.failed.load(Ordering::Acquire))
    }

    /// A node wrote what no member writes; where there are views, for any reason.
    pub(super) fn suspect(&self, node: usize) {
        match self.has_views {
            true => {
                let nodes = NodeSet::EMPTY.with(node).bits();
                self.suspected.fetch_or(nodes, Ordering::Release);
            }
            false => self.add_failed(node),
        }
    }

    /// Those who were suspected and are no part of a change of views yet.
    pub(super) fn suspected(&self) -> NodeSet {
        NodeSet::from_bits(self.suspected.load(Ordering::Acquire))
    }

    /// These are.
    pub(super) fn take_up(&self, nodes: NodeSet) {
        self.suspected.fetch_and(!nodes.bits(), Ordering::AcqRel);
    }

    /// A view of these begins: what was seen of others does not matter any more.
    pub(super) fn forget_suspected_but(&self, members: NodeSet) {
        self.suspected.fetch_and(members.bits(), Ordering::AcqRel);
    }

    /// This is the polling thread.
    pub(super) fn note_polling_thread(&self) {
        // Senders read this line: it is written only when it changes.
        if !self.is_polling_thread() {
            self.polling_thread.store(mark(), Ordering::Relaxed);
        }
    }

    /// This thread's step of a stepped group has ended. Another thread may have begun one.
    pub(super) fn end_step(&self) {
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        // Fails if that is so.
        let _ = self
            .polling_thread
            .compare_exchange(mark(), 0, order.0, order.1);
    }

    /// Whether this thread is in a step of the group.
    pub(super) fn is_polling_thread(&self) -> bool {
        self.polling_thread.load(Ordering::Relaxed) == mark()
    }

    pub(super) fn add_left(&self, node: usize) {
        let nodes = NodeSet::EMPTY.with(node).bits();
        self.left.fetch_or(nodes, Ordering::Release);
    }

    /// A newcomer has the seat of one that has left or failed.
    pub(super) fn add_newcomer(&self, node: usize) {
        let others = !NodeSet::EMPTY.with(node).bits();
        self.left.fetch_and(others, Ordering::Release);
        self.failed.fetch_and(others, Ordering::Release);
        self.suspected.fetch_and(others, Ordering::Release);
    }

    pub(super) fn add_gone(&self, node: usize) {
        let nodes = NodeSet::EMPTY.with(node).bits();
        self.gone.fetch_or(nodes, Ordering::Release);
    }

    pub(super) fn add_failed(&self, node: usize) {
        let nodes = NodeSet::EMPTY.with(node).bits();
        self.failed.fetch_or(nodes, Ordering::Release);
    }
}

/// Messages are accepted.
const OPEN: u8 = 0;
/// This member is no sender of the subgroup in this view, which has not opened yet: what it had
/// sent in the view before may still be delivered.
const PAUSED: u8 = 1;
/// Nor is it one now that the view has opened, but it may be one again.
const SILENT: u8 = 2;
/// Messages are not accepted any more.
const CLOSED: u8 = 3;

/// One subgroup at one member.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spec: Spec,
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) status: Arc<Status>,
    /// The members.
    pub(super) members: NodeSet,
    /// This member's slots, if it sends.
    pub(super) slots: Slots,
    /// Own messages that everybody has delivered.
    pub(super) flushed: Line<AtomicU64>,
    /// Opened when `flushed` has grown, or never will.
    pub(super) delivered: Gate,
    /// Opened when slots have become free, or never will.
    pub(super) room: Gate,
    /// Messages and nulls that may be delivered: for whoever delivers on a
    /// thread of its own.
    pub(super) stable: Line<AtomicU64>,
    /// Opened when `stable` has grown, or never will.
    pub(super) arrival: Gate,
    /// How long that thread keeps this member from being gone.
    pub(super) stay: Stay,
    /// Whether messages are accepted: [`OPEN`], [`PAUSED`], [`SILENT`] or [`CLOSED`].
    accepting: AtomicU8,
    /// An [`Ending`], once a member has failed and what can be delivered is stable.
    ending: AtomicU8,
    pub(super) counts: Line<Counts>,
    baseline_lock: Option<Mutex<()>>,
}

impl Shared {
    pub(super) fn new(spec: Spec, endpoint: Arc<dyn Endpoint>, status: Arc<Status>) -> Self {
        Self {
            slots: Slots::new(spec.shape),
            endpoint,
            status,
            members: spec.members.iter().copied().collect(),
            flushed: Line::default(),
            delivered: Gate::default(),
            room: Gate::default(),
            stable: Line::default(),
            arrival: Gate::default(),
            stay: Stay::default(),
            accepting: AtomicU8::new(OPEN),
            ending: AtomicU8::new(0),
            counts: Line::default(),
            baseline_lock: (!spec.options.early_lock_release).then(Mutex::default),
            spec,
        }
    }

    /// The lock of the paper's baseline, if it is asked for: for a step of the polling thread.
    pub(super) fn baseline_lock(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = self.baseline_lock.as_ref()?;
        // It protects nothing that a panic could leave half-done.
        Some(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Self::baseline_lock`], for a sender. A closure that sends is called by the polling
    /// thread, which has the lock of the subgroup that it delivers already.
    pub(super) fn sender_lock(&self) -> Option<MutexGuard<'_, ()>> {
        let is_needed = self.baseline_lock.is_some() && !self.status.is_polling_thread();
        is_needed.then(|| self.baseline_lock()).flatten()
    }

    /// Members that have failed.
    pub(super) fn failed(&self) -> NodeSet {
        self.status.failed().and(self.members)
    }

    /// Whether what its members say can be relied on: nothing else was seen.
    pub(super) fn is_sound(&self) -> bool {
        match self.status.has_views {
            true => self.status.suspected().is_empty(),
            false => self.failed().is_empty(),
        }
    }

    /// Whether messages can still be sent.
    pub(super) fn is_open(&self) -> Result<(), SendError> {
        let accepting = self.accepting.load(Ordering::Acquire);
        if accepting != OPEN {
            return Err(self.why_not(accepting));
        }
        let failed = self.failed();
        if failed.is_empty() || self.status.has_views {
            Ok(())
        } else {
            Err(SendError::Wedged { failed })
        }
    }

    #[cold]
    fn why_not(&self, accepting: u8) -> SendError {
        match self.ending() {
            _ if accepting != CLOSED => SendError::NotSender,
            Some(ending) if self.status.has_views => SendError::Stopped { ending },
            _ => SendError::Closed,
        }
    }

    /// Whether a sender need not wait for room: there is some, or never will be.
    pub(super) fn has_room_or_never(&self) -> bool {
        self.slots.room() > 0 || self.is_open().is_err()
    }

    /// A sender has waited for room since then.
    pub(super) fn note_wait(&self, began: Instant) {
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.waits.add_shared(1);
        self.counts.waited_ns.add_shared(waited);
    }

    /// Whether nothing becomes stable any more: a member has failed, and the others have
    /// agreed on what counts; or the group was left.
    pub(super) fn is_over(&self) -> bool {
        self.ending.load(Ordering::Acquire) != 0 || self.is_closed()
    }

    /// Whether more than the first so many are stable, or never will be.
    pub(super) fn has_arrival(&self, known: u64) -> bool {
        self.stable.load(Ordering::Acquire) != known || self.is_over()
    }

    /// How it has ended.
    pub(super) fn ending(&self) -> Option<Ending> {
        Ending::from_number(self.ending.load(Ordering::Acquire))
    }

    /// Nothing more becomes stable.
    pub(super) fn end(&self, ending: Ending) {
        self.ending.store(ending as u8, Ordering::Release);
        self.wake_all();
    }

    /// Whether everybody has delivered the first so many own messages. The number
    /// is modulo 2^32, of a slot at most a window behind the last one.
    pub(super) fn has_flushed(&self, messages: u32) -> bool {
        let flushed = self.flushed.load(Ordering::Acquire) as u32;
        flushed.wrapping_sub(messages) as i32 >= 0
    }

    /// Whether own messages that are not delivered yet are not delivered soon, or never will be.
    pub(super) fn is_stuck(&self) -> bool {
        self.accepting.load(Ordering::Acquire) != PAUSED && self.is_open().is_err()
    }

    /// Whether this thread, if it waited for others to deliver, would wait for itself: it
    /// polls, or has a batch of this subgroup before it.
    pub(super) fn would_wait_for_itself(&self) -> bool {
        self.status.is_polling_thread() || self.stay.is_read_here()
    }

    /// Whether a sender may wait for room on this thread.
    pub(super) fn may_wait(&self) -> bool {
        !self.status.is_stepped && !self.would_wait_for_itself()
    }

    /// Whether no messages are accepted any more.
    pub(super) fn is_closed(&self) -> bool {
        self.accepting.load(Ordering::Acquire) == CLOSED
    }

    /// A view was installed, in which this member sends or does not.
    pub(super) fn set_sending(&self, sends: bool) {
        self.accept(if sends { OPEN } else { PAUSED });
    }

    /// A view has opened in which this member does not send.
    pub(super) fn stay_silent(&self) {
        self.accept(SILENT);
    }

    /// Unless nothing is accepted any more. Wakes all who wait for what may not come.
    fn accept(&self, to: u8) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let change = |now| (now != CLOSED).then_some(to);
        let before = self.accepting.fetch_update(order.0, order.1, change);
        if to != OPEN && before != Ok(to) {
            self.wake_all();
        }
    }

    /// No more messages. Wakes all who wait.
    pub(super) fn close(&self) {
        self.accepting.store(CLOSED, Ordering::Release);
        self.stay.close(self);
        self.wake_all();
    }

    /// Wakes whoever waits for what may never come.
    pub(super) fn wake_all(&self) {
        self.room.open();
        self.delivered.open();
        self.arrival.open();
    }

    /// Wakes the polling thread.
    pub(super) fn ring(&self) {
        self.endpoint.ring(self.endpoint.rank());
    }
}
