// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member of a run: a real one, stepped, whose application notes what it sees. Its state is
//! all that it has delivered.

use super::{states, Message, Plan, Seen, Shape};
use crate::fabric::sim::{Sim, SimNode};
use crate::multicast::{
    Builder, Ending, Event, Group, SendError, Sender, Subgroup, SubgroupHandle,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nobody waits that long: all nodes meet in this process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the state for each message.
const ENTRY_BYTES: usize = 16;
/// Bytes of it that are read at once.
const PIECE_BYTES: usize = 2 * ENTRY_BYTES;

/// What an application has seen.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All messages so far, of subgroups without a state of their own.
    fn state(&self, subgroups: &[Shape]) -> Vec<u8> {
        let log = self.lock();
        let messages = log.iter().filter_map(|seen| match *seen {
            Seen::Delivered(message) | Seen::Restored(message) => Some(message),
            _ => None,
        });
        to_bytes(messages.filter(|message| !subgroups[message.subgroup].state))
    }

    /// The state of a subgroup, of a member in this seat.
    fn state_of(&self, subgroup: usize, seat: usize) -> Vec<u8> {
        let log = self.lock();
        to_bytes(states::content(log.iter(), subgroup, seat).into_iter())
    }
}

fn to_bytes(messages: impl Iterator<Item = Message>) -> Vec<u8> {
    messages
        .flat_map(words)
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// An entry of the state.
fn words(message: Message) -> [u64; 2] {
    let who = ((message.subgroup as u64) << 48) | ((message.sender as u64) << 32);
    [who | message.number, message.sequence]
}

/// What an entry of the state says.
fn restored(entry: &[u8]) -> Seen {
    let word = |at: usize| {
        let bytes = entry[at..].first_chunk();
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    };
    let number = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
    Seen::Restored(Message {
        subgroup: number(word(0) >> 48),
        sender: number((word(0) >> 32) & 0xFFFF),
        number: word(0) & u64::from(u32::MAX),
        sequence: word(8),
    })
}

/// Who sends a message, from which seat, and its number there.
fn message_word(person: usize, seat: usize, number: u64) -> u64 {
    ((person as u64) << 48) | ((seat as u64) << 32) | number
}

/// What a message says. A message that does not come from its sender's seat has a number that
/// nobody gives.
fn delivered(subgroup: usize, seat: usize, word: u64, sequence: u64) -> Seen {
    let sender = usize::try_from(word >> 48).unwrap_or(usize::MAX);
    let number = match (word >> 32) & 0xFFFF == seat as u64 {
        true => word & u64::from(u32::MAX),
        false => u64::MAX,
    };
    Seen::Delivered(Message {
        subgroup,
        sender,
        number,
        sequence,
    })
}

pub(super) struct Member {
    /// Its number among all that there are in the run.
    person: usize,
    pub(super) seat: usize,
    pub(super) incarnation: u64,
    /// Until it leaves, crashes, or is closed.
    pub(super) group: Option<Group>,
    subgroups: Vec<SubgroupHandle>,
    senders: Vec<Sender>,
    log: Log,
    /// In each subgroup.
    pub(super) sent: Vec<u64>,
    /// How it had ended when it was closed.
    ending: Option<Ending>,
}

impl Member {
    pub(super) fn join(node: SimNode, sim: &Sim, seat: usize, person: usize, plan: &Plan) -> Self {
        let log = Log::default();
        let mut builder = Group::builder(node);
        let add = |index: usize| {
            let subgroup = Subgroup::new(&index.to_string()).window(plan.window);
            builder.subgroup(subgroup.max_message(8).options(plan.options))
        };
        let subgroups: Vec<_> = (0..plan.subgroups.len()).map(add).collect();
        let builder = noting(builder, &subgroups, &log, sim, seat, plan);
        let group = builder.timeout(PATIENCE).join_stepped();
        let group = group.expect("they meet");
        Self {
            person,
            seat,
            incarnation: sim.incarnation(seat),
            senders: subgroups
                .iter()
                .map(|&subgroup| group.sender(subgroup).expect("it may send"))
                .collect(),
            sent: vec![0; subgroups.len()],
            subgroups,
            group: Some(group),
            log,
            ending: None,
        }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.log.lock().clone()
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        match &self.group {
            Some(group) => group.ending(self.subgroups[0]).expect("the subgroup"),
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
        self.senders.clear();
        self.group = None;
    }

    /// Whether it is told that all is delivered that it has sent, if it is there.
    pub(super) fn has_flushed(&self) -> Option<bool> {
        let group = self.group.as_ref()?;
        Some(group.flush(Duration::ZERO).is_ok())
    }

    /// Whether it could send in each subgroup. A message that it could send is not counted.
    pub(super) fn accepts(&self) -> Vec<bool> {
        let accepts = |sender: &Sender| {
            let sent = sender.try_send(|slot| slot.put(b"uncounted"));
            matches!(sent, Err(SendError::TooLong { .. } | SendError::Full))
        };
        self.senders.iter().map(accepts).collect()
    }

    /// Sends its next message in a subgroup, if it may.
    pub(super) fn send(&mut self, subgroup: usize) {
        let Some(sender) = self.senders.get(subgroup) else {
            return;
        };
        let word = message_word(self.person, self.seat, self.sent[subgroup]);
        match sender.try_send(|slot| slot.put(&word.to_ne_bytes())) {
            Ok(()) => self.sent[subgroup] += 1,
            Err(
                SendError::Full
                | SendError::NotSender
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
    subgroups: &[SubgroupHandle],
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
    let note_event = note();
    if plan.views {
        let note = note();
        builder = builder.on_view(move |view| note(Seen::Installed(view.clone())));
    }
    if plan.state {
        let (log, note, shapes) = (log.clone(), note(), plan.subgroups.clone());
        let sim = sim.clone();
        let restore = move |bytes: &[u8]| {
            bytes
                .chunks_exact(ENTRY_BYTES)
                .map(restored)
                .for_each(&note)
        };
        builder = builder.state(
            plan.most_messages() * ENTRY_BYTES,
            move || {
                // It may take its time: nobody is to sleep meanwhile who could go on.
                assert!(!sim.owes_rings(seat), "{seat} has not rung");
                log.state(&shapes)
            },
            restore,
        );
    }
    for (index, (&subgroup, &shape)) in subgroups.iter().zip(&plan.subgroups).enumerate() {
        let note = note();
        let note_message = note.clone();
        builder = builder.deliver(subgroup, move |batch| {
            for message in batch {
                let word = message.value::<u64>().copied().unwrap_or(u64::MAX);
                note_message(delivered(index, message.sender, word, message.sequence));
            }
        });
        builder = follow(builder, subgroup, shape);
        if shape.state {
            let (log, note) = (log.clone(), note.clone());
            let restore = move |bytes: &[u8]| {
                note(Seen::Given(index));
                let entries = bytes.chunks_exact(ENTRY_BYTES);
                entries.map(restored).for_each(&note);
            };
            let max_bytes = plan.most_messages() * ENTRY_BYTES;
            let take = move || log.state_of(index, seat);
            builder = builder.subgroup_state(subgroup, max_bytes, take, restore);
        }
    }
    builder.in_pieces_of(PIECE_BYTES).on_event(move |event| {
        note_event(match event {
            Event::Left(node) => Seen::Left(node),
            Event::Failed(node) => Seen::Failed(node),
            Event::Stopped(ending) => Seen::Stopped(ending),
        });
    })
}

/// Lets a subgroup's members follow from the view, if they are to.
fn follow(builder: Builder<SimNode>, subgroup: SubgroupHandle, shape: Shape) -> Builder<SimNode> {
    match shape.has_function() {
        true => builder.members_by_view(subgroup, move |view| shape.of(view)),
        false => builder,
    }
}
