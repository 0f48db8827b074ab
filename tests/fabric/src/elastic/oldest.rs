// SPDX-License-Identifier: MIT OR Apache-2.0

//! A second subgroup of an elastic member's group, whose members follow from the view: the two
//! that have been there the longest. When a view ends they print a hash of what was delivered in
//! it, which has to be the same at both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use weft::fabric::{Fabric, NodeSet};
use weft::multicast::{Builder, SubgroupView};
use weft::{Group, Membership, SendError, Sender, Subgroup, SubgroupHandle, View};

/// What was delivered in a view.
#[derive(Default)]
struct Part {
    hash: u64,
    /// The next number of each sender, of those that were heard.
    next: BTreeMap<u64, u64>,
}

impl Part {
    fn add(&mut self, person: u64, number: u64, sequence: u64) {
        let next = self.next.entry(person).or_insert(number);
        assert_eq!(number, *next, "of {person}");
        *next += 1;
        for word in [person, number, sequence] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(9);
        }
    }
}

/// What a member knows of the subgroup.
pub struct Oldest {
    subgroup: SubgroupHandle,
    part: Arc<Mutex<Part>>,
    /// The last view, if it was a member in that.
    was_in: Option<u64>,
}

/// Adds the subgroup.
pub fn add<F: Fabric>(mut builder: Builder<F>) -> (Oldest, Builder<F>) {
    let part = Arc::new(Mutex::new(Part::default()));
    let delivered = Arc::clone(&part);
    let subgroup = builder.subgroup(Subgroup::new("oldest").window(8).max_message(16));
    let builder = builder
        .members_by_view(subgroup, members)
        .deliver(subgroup, move |batch| {
            let mut part = delivered.lock().expect("no panic");
            for message in batch {
                let &[person, number] = message.value::<[u64; 2]>().expect("two numbers");
                part.add(person, number, message.sequence);
            }
        });
    let oldest = Oldest {
        subgroup,
        part,
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
        let mut part = self.part.lock().expect("no panic");
        if let Some(number) = self.was_in {
            println!("OLDEST {number} {:x}", part.hash);
        }
        let subgroup = view.subgroup(self.subgroup)?;
        part.hash = 0;
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
