// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node's application: it gives memory and gets it back, and notes what is wrong with that.

use super::judge::Oracle;
use super::{Plan, Summary};
use crate::fabric::sim::Touch;
use crate::rdmc::memory::Arena;
use crate::rdmc::{Buffer, End, Event, Incoming, Memory, Message};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared with the callbacks of the node's groups.
#[derive(Clone)]
pub(super) struct App(Arc<Mutex<State>>);

pub(super) struct State {
    rng: fastrand::Rng,
    memory: Memory,
    arena: Arc<Arena>,
    /// Where cells end and messages begin.
    cells_end: usize,
    /// Memory that came back and is kept, with what is in it.
    kept: Vec<(Buffer, u8)>,
    /// Memory that is with a group: its place, and the group.
    pub(super) given: BTreeMap<usize, u32>,
    pub(super) logs: BTreeMap<u32, Log>,
    /// The next message gets too short memory.
    pub(super) is_misfit: bool,
    /// It has crashed: what happens here happens nowhere.
    pub(super) is_gone: bool,
    /// The first thing that was wrong.
    pub(super) wrong: Option<(Oracle, String)>,
    pub(super) summary: Summary,
}

/// What the application knows of a group.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Messages sent or received.
    pub(super) done: u64,
    pub(super) ended: Vec<End>,
    /// It was open when its handle was last looked at.
    pub(super) was_open: bool,
    /// The application has left it, or dropped it.
    pub(super) is_own: bool,
    /// Its handle says that it has ended.
    pub(super) is_over: bool,
}

impl App {
    pub(super) fn new(plan: &Plan, node: usize, memory: Memory, cells_end: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: fastrand::Rng::with_seed(plan.seed ^ ((node as u64 + 1) << 32)),
            arena: Arc::clone(&memory.0),
            memory,
            cells_end,
            kept: Vec::new(),
            given: BTreeMap::new(),
            logs: BTreeMap::new(),
            is_misfit: false,
            is_gone: false,
            wrong: None,
            summary: Summary::default(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory with the root's next message, which counts as given.
    pub(super) fn message(&self, group: u32, number: u64, size: usize) -> Option<Buffer> {
        let mut state = self.lock();
        let mut buffer = state.memory.allocate(size).ok()?;
        fill(&mut buffer[..size], group, number);
        state.give(&buffer, group);
        Some(buffer)
    }

    /// It was not taken.
    pub(super) fn refused(&self, buffer: Buffer) {
        self.lock().take_back(buffer);
    }
}

impl State {
    /// Memory for a message that comes.
    pub(super) fn memory(&mut self, group: u32, incoming: Incoming) -> Option<Buffer> {
        if self.rng.u8(..) < 48 {
            return None;
        }
        let bytes = match std::mem::take(&mut self.is_misfit) {
            true => incoming.size - 1,
            false => incoming.size + self.rng.usize(0..64),
        };
        let buffer = self.memory.allocate(bytes).ok()?;
        self.give(&buffer, group);
        Some(buffer)
    }

    pub(super) fn told(&mut self, group: u32, event: Event) {
        let log = self.logs.entry(group).or_default();
        if !log.ended.is_empty() && !matches!(event, Event::Returned(_)) {
            self.note(Oracle::Told, || format!("group {group} goes on: {event:?}"));
        }
        match event {
            Event::Received(message) => {
                self.summary.received += 1;
                self.look_into(group, &message);
                self.done(group, message);
            }
            Event::Sent(message) => {
                self.summary.sent += 1;
                self.done(group, message);
            }
            Event::Ended(end) => {
                self.summary.ended += 1;
                self.logs.entry(group).or_default().ended.push(end);
            }
            Event::Returned(buffer) => {
                self.summary.returned += 1;
                self.take_back(buffer);
            }
        }
    }

    fn done(&mut self, group: u32, message: Message) {
        let log = self.logs.entry(group).or_default();
        log.done += 1;
        let expected = log.done;
        if message.number != expected {
            self.note(Oracle::Whole, || {
                format!("of group {group} comes {} for {expected}", message.number)
            });
        }
        self.take_back(message.buffer);
    }

    fn look_into(&mut self, group: u32, message: &Message) {
        let mut sent = vec![0; message.size];
        fill(&mut sent, group, message.number);
        if message.bytes() != sent {
            let number = message.number;
            self.note(Oracle::Whole, || {
                format!("message {number} of group {group} is not what was sent")
            });
        }
    }

    fn give(&mut self, buffer: &Buffer, group: u32) {
        self.given.insert(buffer.offset(), group);
    }

    /// The application's again: it writes into it at once, and looks at it later.
    fn take_back(&mut self, mut buffer: Buffer) {
        let place = buffer.offset();
        if self.given.remove(&place).is_none() {
            self.note(Oracle::Back, || {
                format!("memory at {place} comes back, but was not given")
            });
        }
        let content = self.rng.u8(..);
        buffer.fill(content);
        self.kept.push((buffer, content));
    }

    /// Drops some memory that came back.
    pub(super) fn release(&mut self) {
        if self.kept.is_empty() {
            return self.memory.wake();
        }
        let at = self.rng.usize(0..self.kept.len());
        let (buffer, content) = self.kept.swap_remove(at);
        if buffer.iter().any(|&byte| byte != content) {
            let place = buffer.offset();
            self.note(Oracle::Trespass, || {
                format!("somebody wrote into memory at {place}, which had come back")
            });
        }
    }

    pub(super) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// A peer's write, or this node's own, reads or writes memory here.
    pub(super) fn touched(&mut self, touch: Touch) {
        let range = touch.offset..touch.offset + touch.len;
        if range.start < self.cells_end {
            return;
        }
        let overlaps = |kept: &Range<usize>| kept.start < range.end && range.start < kept.end;
        let is_kept = self
            .kept
            .iter()
            .map(|(buffer, _)| buffer.offset()..buffer.offset() + buffer.len())
            .any(|kept| overlaps(&kept));
        if is_kept || !self.arena.is_allocated(&range) {
            let whose = if is_kept { "the application's" } else { "free" };
            self.note(Oracle::Trespass, || {
                format!("{touch:?} is at memory that is {whose}")
            });
        }
    }

    /// Memory that was given, did not come back, and is free all the same.
    pub(super) fn lost(&self) -> Option<(usize, u32)> {
        let is_free = |&(&place, _): &(&usize, &u32)| !self.arena.is_allocated(&(place..place + 1));
        let mut lost = self.given.iter().filter(is_free);
        lost.next().map(|(&place, &group)| (place, group))
    }

    fn note(&mut self, oracle: Oracle, what: impl FnOnce() -> String) {
        if !self.is_gone && self.wrong.is_none() {
            self.wrong = Some((oracle, what()));
        }
    }
}

/// What a message consists of.
fn fill(bytes: &mut [u8], group: u32, number: u64) {
    let mut rng = fastrand::Rng::with_seed((u64::from(group) << 32) ^ number);
    rng.fill(bytes);
}
