// SPDX-License-Identifier: MIT OR Apache-2.0

//! A second subgroup of an elastic member's group, whose members follow from the view: the two
//! that have been there the longest. Who enters is given its state. When a view ends they print a
//! hash of all that was delivered in it so far, which has to be the same at both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use weft::fabric::{Fabric, NodeSet};
use weft::multicast::{Builder, SubgroupView};
use weft::{Group, Membership, SendError, Sender, Subgroup, SubgroupHandle, View};

use super::member::{Journal, MAX_STATE_BYTES};

/// A member's knowledge of the subgroup.
pub struct Oldest {
    subgroup: SubgroupHandle,
    journal: Arc<Mutex<Journal>>,
    /// It has the state, if it is a member.
    has_state: Arc<AtomicBool>,
    /// The last view, if it was a member in that.
    was_in: Option<u64>,
}

/// Adds the subgroup.
pub fn add<F: Fabric>(mut builder: Builder<F>) -> (Oldest, Builder<F>) {
    let journal = Arc::new(Mutex::new(Journal::default()));
    let [delivered, taken, restored] = [(); 3].map(|()| Arc::clone(&journal));
    let has_state = Arc::new(AtomicBool::new(false));
    let given = Arc::clone(&has_state);
    let subgroup = builder.subgroup(Subgroup::new("oldest").window(8).max_message(16));
    let builder = builder
        .members_by_view(subgroup, members)
        .deliver(subgroup, move |batch| {
            let mut journal = delivered.lock().expect("no panic");
            for message in batch {
                let &[person, number] = message.value::<[u64; 2]>().expect("two numbers");
                journal.add(person, number, message.sequence);
            }
        })
        .subgroup_state(
            subgroup,
            MAX_STATE_BYTES,
            move || taken.lock().expect("no panic").to_bytes(),
            move |bytes| {
                *restored.lock().expect("no panic") = Journal::from_bytes(bytes);
                given.store(true, Ordering::Relaxed);
            },
        );
    let oldest = Oldest {
        subgroup,
        journal,
        has_state,
        was_in: None,
    };
    (oldest, builder)
}

/// Founders send: none of them is pushed out by others, so all that they send is delivered.
fn members(view: &View) -> Membership {
    let incarnation = |seat: &usize| view.incarnation(*seat).unwrap_or(u64::MAX);
    let mut members: Vec<usize> = view.members.iter().collect();
    members.sort_by_key(|seat| (incarnation(seat), *seat));
    members.truncate(2);
    let founders = members
        .iter()
        .copied()
        .filter(|seat| incarnation(seat) == 0);
    Membership {
        senders: founders.collect(),
        members: members.iter().copied().collect::<NodeSet>(),
    }
}

impl Oldest {
    /// A view begins for the member with this seat. Answers with what all say of the subgroup.
    pub fn see(&mut self, view: &View, seat: usize) -> Option<SubgroupView> {
        let mut journal = self.journal.lock().expect("no panic");
        if let Some(number) = self
            .was_in
            .filter(|_| self.has_state.load(Ordering::Relaxed))
        {
            println!("OLDEST {number} {:x}", journal.hash);
        }
        let subgroup = view.subgroup(self.subgroup)?;
        if !subgroup.before.contains(seat) {
            // It has the state if there is none yet: else it will be given it.
            *journal = Journal::default();
            let is_new = subgroup.before.is_empty();
            self.has_state.store(is_new, Ordering::Relaxed);
        }
        self.was_in = subgroup.members.contains(seat).then_some(view.number);
        Some(subgroup)
    }

    /// Its sender.
    pub fn sender(subgroup: SubgroupHandle, group: &Group) -> Result<OldestSender> {
        Ok(OldestSender {
            sender: group.sender(subgroup)?,
            sent: 0,
        })
    }

    pub fn subgroup(&self) -> SubgroupHandle {
        self.subgroup
    }
}

/// Sends in the subgroup while it may.
pub struct OldestSender {
    sender: Sender,
    sent: u64,
}

impl OldestSender {
    /// Sends the next message, if there is room and the member is a sender.
    pub fn send(&mut self, person: u64) -> Result<()> {
        let message = [person, self.sent];
        let bytes = message.map(u64::to_ne_bytes).concat();
        match self.sender.try_send(|slot| slot.put(&bytes)) {
            Ok(()) => self.sent += 1,
            // If it is out the other subgroup's sender says so too.
            Err(SendError::Full | SendError::NotSender | SendError::Stopped { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
