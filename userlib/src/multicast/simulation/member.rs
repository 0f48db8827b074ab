// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member of a run: a real one, stepped, whose application notes what it sees. Its state is
//! all that it has delivered.

use super::{Plan, Seen};
use crate::fabric::sim::{Sim, SimNode};
use crate::multicast::{
    Builder, Ending, Event, Group, SendError, Sender, Subgroup, SubgroupHandle,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nobody waits that long: all nodes meet in this process.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "simulated";
/// Bytes of the state for each message.
const ENTRY_BYTES: usize = 16;

/// What an application has seen.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All messages so far.
    fn state(&self) -> Vec<u8> {
        let log = self.lock();
        let messages = log.iter().filter_map(|seen| match *seen {
            Seen::Delivered(sender, number, sequence)
            | Seen::Restored(sender, number, sequence) => {
                Some([((sender as u64) << 32) | number, sequence])
            }
            _ => None,
        });
        let words = messages.flatten();
        words.flat_map(u64::to_le_bytes).collect()
    }
}

/// What an entry of the state says.
fn restored(entry: &[u8]) -> Seen {
    let word = |at: usize| {
        let bytes = entry[at..].first_chunk();
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    };
    let sender = usize::try_from(word(0) >> 32).unwrap_or(usize::MAX);
    Seen::Restored(sender, word(0) & u64::from(u32::MAX), word(8))
}

/// Who sends a message, from which seat, and its number there.
fn message_word(person: usize, seat: usize, number: u64) -> u64 {
    ((person as u64) << 48) | ((seat as u64) << 32) | number
}

/// What a message says. A message that does not come from its sender's seat has a number that
/// nobody gives.
fn delivered(seat: usize, word: u64, sequence: u64) -> Seen {
    let person = usize::try_from(word >> 48).unwrap_or(usize::MAX);
    let number = match (word >> 32) & 0xFFFF == seat as u64 {
        true => word & u64::from(u32::MAX),
        false => u64::MAX,
    };
    Seen::Delivered(person, number, sequence)
}

pub(super) struct Member {
    /// Its number among all that there are in the run.
    person: usize,
    pub(super) seat: usize,
    pub(super) incarnation: u64,
    /// Until it leaves, crashes, or is closed.
    pub(super) group: Option<Group>,
    subgroup: SubgroupHandle,
    sender: Option<Sender>,
    log: Log,
    pub(super) sent: u64,
    /// How it had ended when it was closed.
    ending: Option<Ending>,
}

impl Member {
    pub(super) fn join(node: SimNode, sim: &Sim, seat: usize, person: usize, plan: &Plan) -> Self {
        let log = Log::default();
        let subgroup = Subgroup::new(NAME).window(plan.window).max_message(8);
        let mut builder = Group::builder(node);
        let subgroup = builder.subgroup(subgroup.options(plan.options));
        let builder = noting(builder, subgroup, &log, sim, seat, plan);
        let group = builder.timeout(PATIENCE).join_stepped();
        let group = group.expect("they meet");
        Self {
            person,
            seat,
            incarnation: sim.incarnation(seat),
            subgroup,
            sender: group.sender(subgroup).ok(),
            group: Some(group),
            log,
            sent: 0,
            ending: None,
        }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.log.lock().clone()
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        match &self.group {
            Some(group) => group.ending(self.subgroup).expect("the subgroup"),
            None => self.ending,
        }
    }

    /// Whether it is in a view.
    pub(super) fn is_in(&self) -> bool {
        let group = self.group.as_ref();
        group.is_some_and(|group| group.view().is_some()) && self.ending().is_none()
    }

    /// Whether it runs and waits to be taken in.
    pub(super) fn waits(&self) -> bool {
        let group = self.group.as_ref();
        group.is_some_and(|group| group.view().is_none()) && self.ending().is_none()
    }

    /// Its process or its endpoint is gone.
    pub(super) fn close(&mut self) {
        self.ending = self.ending();
        self.sender = None;
        self.group = None;
    }

    /// Sends its next message, if it may.
    pub(super) fn send(&mut self) {
        let Some(sender) = &self.sender else {
            return;
        };
        let word = message_word(self.person, self.seat, self.sent);
        match sender.try_send(|slot| slot.put(&word.to_ne_bytes())) {
            Ok(()) => self.sent += 1,
            Err(
                SendError::Full
                | SendError::Wedged { .. }
                | SendError::Stopped { .. }
                | SendError::Closed,
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Lets the application note what it sees.
fn noting(
    mut builder: Builder<SimNode>,
    subgroup: SubgroupHandle,
    log: &Log,
    sim: &Sim,
    seat: usize,
    plan: &Plan,
) -> Builder<SimNode> {
    let note = || {
        let (log, sim) = (log.clone(), sim.clone());
        move |seen| {
            // Of what it does behind its crash nobody can know.
            if !sim.has_crashed(seat) {
                log.lock().push(seen);
            }
        }
    };
    let (note_message, note_event) = (note(), note());
    if plan.views {
        let note = note();
        builder = builder.on_view(move |view| note(Seen::Installed(*view)));
    }
    if plan.state {
        let (log, note) = (log.clone(), note());
        let restore = move |bytes: &[u8]| {
            bytes
                .chunks_exact(ENTRY_BYTES)
                .map(restored)
                .for_each(&note)
        };
        builder = builder.state(
            plan.most_messages() * ENTRY_BYTES,
            move || log.state(),
            restore,
        );
    }
    builder
        .deliver(subgroup, move |batch| {
            for message in batch {
                let word = message.value::<u64>().copied().unwrap_or(u64::MAX);
                note_message(delivered(message.sender, word, message.sequence));
            }
        })
        .on_event(move |event| {
            note_event(match event {
                Event::Left(node) => Seen::Left(node),
                Event::Failed(node) => Seen::Failed(node),
                Event::Stopped(ending) => Seen::Stopped(ending),
            });
        })
}
