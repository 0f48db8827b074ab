// SPDX-License-Identifier: MIT OR Apache-2.0

//! A subgroup's state, which takes many pieces, moves to those who enter it, while its members send.

use crate::PATIENCE;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft::fabric::shm::ShmSeats;
use weft::{Group, Membership, SendError, Subgroup};

/// Words of the table, a megabyte.
const WORDS: usize = 1 << 17;
const SEATS: usize = 4;

type Table = Arc<Mutex<Vec<u64>>>;

/// A member that sends when it may, until it is told to leave.
struct Member {
    table: Table,
    /// How often it was given the table.
    given: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    has_flushed: Arc<AtomicBool>,
    leaves: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn wait_for(holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A group whose highest members, so many, have the table, each of whose words counts messages.
fn join(
    node: ShmSeats,
    holders: usize,
    table: &Table,
    given: &Arc<AtomicUsize>,
) -> (Group, weft::Sender) {
    let [counted, taken, restored] = [(); 3].map(|()| Arc::clone(table));
    let given = Arc::clone(given);
    let mut builder = Group::builder(node).timeout(PATIENCE);
    let tables = builder.subgroup(Subgroup::new("tables").window(8).max_message(8));
    let group = builder
        .members_by_view(tables, move |view| {
            let others = view.members.len().saturating_sub(holders);
            Membership::all_send(view.members.iter().skip(others).collect())
        })
        .deliver(tables, move |batch| {
            let mut table = counted.lock().expect("no panic");
            for message in batch {
                let number: &u64 = message.value().expect("a number");
                table[*number as usize % WORDS] += 1 + message.sequence;
            }
        })
        .subgroup_state(
            tables,
            8 * WORDS,
            move || {
                let table = taken.lock().expect("no panic");
                table.iter().flat_map(|word| word.to_le_bytes()).collect()
            },
            move |bytes| {
                let words = bytes.chunks_exact(8).map(|word| {
                    let word = word.first_chunk().expect("eight bytes");
                    u64::from_le_bytes(*word)
                });
                *restored.lock().expect("no panic") = words.collect();
                given.fetch_add(1, Ordering::Relaxed);
            },
        )
        .join()
        .expect("a group");
    let sender = group.sender(tables).expect("it may send in some view");
    (group, sender)
}

impl Member {
    fn start(holders: usize, node: impl FnOnce() -> ShmSeats + Send + 'static) -> Self {
        let table = Table::new(Mutex::new(vec![0; WORDS]));
        let given = Arc::new(AtomicUsize::new(0));
        let [ends, has_flushed, leaves] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let orders = (
            Arc::clone(&ends),
            Arc::clone(&has_flushed),
            Arc::clone(&leaves),
        );
        let (own, count) = (Arc::clone(&table), Arc::clone(&given));
        let thread = std::thread::spawn(move || {
            let (ends, has_flushed, leaves) = orders;
            let (group, sender) = join(node(), holders, &own, &count);
            let mut number = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                match sender.send_value(&number) {
                    Ok(()) => number += 7919,
                    Err(SendError::NotSender) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
            group.flush(PATIENCE).expect("it is a member");
            has_flushed.store(true, Ordering::Relaxed);
            wait_for(|| leaves.load(Ordering::Relaxed));
            group.leave(PATIENCE).expect("nothing is left");
        });
        Self {
            table,
            given,
            ends,
            has_flushed,
            leaves,
            thread,
        }
    }

    fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    fn wait_until_flushed(&self) {
        wait_for(|| self.has_flushed.load(Ordering::Relaxed));
    }

    fn wait_until_given(&self, times: usize) {
        wait_for(|| self.given.load(Ordering::Relaxed) == times);
    }

    fn leave(self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic");
    }
}

#[test]
fn a_table_moves_to_a_newcomer_and_back_to_a_founder_and_all_count_the_same() {
    let (name, nodes) = ShmSeats::threads(2, SEATS).expect("a fabric");
    let mut founders: Vec<Member> = nodes
        .into_iter()
        .map(|node| Member::start(2, move || node))
        .collect();
    // Given that a newcomer takes the lower founder's part,
    let newcomer = Member::start(2, move || {
        ShmSeats::newcomer(&name, SEATS, PATIENCE).expect("a seat")
    });
    newcomer.wait_until_given(1);
    // when it leaves again,
    newcomer.end();
    newcomer.wait_until_flushed();
    newcomer.leave();
    // then the founder is given the table,
    founders[0].wait_until_given(1);
    founders.iter().for_each(Member::end);
    founders.iter().for_each(Member::wait_until_flushed);
    // and both have counted the same.
    {
        let tables = [0, 1].map(|at| founders[at].table.lock().expect("no panic"));
        assert!(tables[0].iter().any(|&count| count > 0));
        assert!(*tables[0] == *tables[1], "they differ");
    }
    assert_eq!(founders[1].given.load(Ordering::Relaxed), 0);
    founders.drain(..).for_each(Member::leave);
}

#[test]
fn the_only_one_who_has_a_table_hands_it_over_when_it_leaves() {
    let (_, nodes) = ShmSeats::threads(3, SEATS).expect("a fabric");
    let mut members: Vec<Member> = nodes
        .into_iter()
        .map(|node| Member::start(1, move || node))
        .collect();
    // Given members of whom the highest has counted messages,
    let counts = |member: &Member| member.table.lock().expect("no panic").clone();
    wait_for(|| counts(&members[2]).iter().any(|&count| count > 0));
    // when one after the other leaves, each the only one who has the table,
    for heir in [1, 0] {
        let last = members.pop().expect("it is there");
        last.end();
        last.wait_until_flushed();
        let table = Arc::clone(&last.table);
        members.iter().for_each(Member::end);
        last.leave();
        // then the next one is given all that it has counted.
        members[heir].wait_until_given(1);
        let counted = table.lock().expect("no panic");
        let has_more = |(given, counted): (&u64, &u64)| given >= counted;
        assert!(counts(&members[heir]).iter().zip(&*counted).all(has_more));
    }
    members.drain(..).for_each(Member::leave);
}
