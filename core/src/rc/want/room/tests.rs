// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;
use crate::gid::Gid;
use crate::rc::{Lane, Seen};
use proptest::prelude::*;

const SLOTS: usize = 64;
const SECOND_NS: u64 = 1_000_000_000;

fn peer(number: u32) -> Gid {
    let [.., a, b, c] = number.to_be_bytes();
    Gid::from_ipv4([10, a, b, c])
}

/// A table as nodes have it.
struct Table(Vec<Want>);

impl Table {
    /// Wants a peer. Answers whether it is in the table then.
    fn want(&mut self, number: u32, by: WantedBy, now_ns: u64) -> bool {
        let lane = Lane::first(peer(number));
        if let Some(index) = self.find(number) {
            let passes = match (self.0[index].by(), by) {
                (WantedBy::User(owner), WantedBy::User(user)) => {
                    passes_to(self.0.iter(), owner, user)
                }
                (_, by) => by == WantedBy::Pin,
            };
            if passes {
                self.0[index].pass_to(by);
            }
            return true;
        }
        if self.0.len() < SLOTS {
            self.0.push(Want::new(lane, by, now_ns));
            return true;
        }
        let replaced = makes_room(self.0.iter(), by, now_ns);
        if let Some(index) = replaced {
            self.0[index] = Want::new(lane, by, now_ns);
        }
        replaced.is_some()
    }

    fn find(&self, number: u32) -> Option<usize> {
        self.0
            .iter()
            .position(|want| want.lane().gid == peer(number))
    }

    fn count(&self, user: u32) -> usize {
        count(self.0.iter(), user)
    }
}

/// A table full of peers that one user wants, and that do not answer.
fn full_of_dead(now_ns: u64) -> Table {
    let mut table = Table(Vec::new());
    for number in 0..SLOTS as u32 {
        assert!(table.want(number, WantedBy::User(1), now_ns));
    }
    table
}

#[test]
fn a_user_that_floods_the_table_holds_up_no_other() {
    let mut table = full_of_dead(0);
    let mut next = 1000;
    // when the flood goes on while another user wants a peer
    for at_ns in (1..SECOND_NS).step_by(1_000_000) {
        table.want(next, WantedBy::User(1), at_ns);
        next += 1;
        // then that peer is in the table from its first use on, and stays
        assert!(
            table.want(7_000_000, WantedBy::User(2), at_ns),
            "at {at_ns}"
        );
        assert_eq!(table.count(2), 1);
    }
}

#[test]
fn a_user_makes_room_for_itself_once_its_peers_were_tried() {
    let mut table = full_of_dead(0);
    assert!(!table.want(1000, WantedBy::User(1), TRIED_NS - 1));
    assert!(table.want(1000, WantedBy::User(1), TRIED_NS));
    // and what is new stays as long
    for number in 1001..1000 + SLOTS as u32 {
        assert!(table.want(number, WantedBy::User(1), TRIED_NS), "{number}");
    }
    assert!(!table.want(2000, WantedBy::User(1), 2 * TRIED_NS - 1));
    assert!(table.find(1000).is_some());
}

#[test]
fn the_peer_that_was_missing_longest_goes_first() {
    let mut table = full_of_dead(0);
    for (index, want) in table.0.iter_mut().enumerate() {
        want.missing_since_ns = (index as u64 * 37) % 64 * 1_000_000;
    }
    for round in 0..SLOTS as u64 {
        let index = makes_room(table.0.iter(), WantedBy::User(1), SECOND_NS * 2).unwrap();
        assert_eq!(table.0[index].missing_since_ns, round * 1_000_000);
        table.0[index].missing_since_ns = u64::MAX;
    }
}

#[test]
fn a_peer_that_two_users_use_does_not_go_with_those_of_the_one_that_has_more() {
    let mut table = full_of_dead(0);
    assert!(table.want(5, WantedBy::User(2), SECOND_NS));
    assert_eq!((table.count(1), table.count(2)), (SLOTS - 1, 1));
    assert!(table.want(5, WantedBy::User(1), SECOND_NS));
    assert_eq!(table.count(2), 1, "it does not go back");
}

#[test]
fn a_peer_that_answers_or_is_connected_makes_no_room() {
    let mut table = full_of_dead(0);
    for want in &mut table.0 {
        want.connected(1);
    }
    assert!(!table.want(1000, WantedBy::User(2), 10 * SECOND_NS));
    // when a queue pair breaks, then its peer is tried again before it makes room
    table.0[9].step(Seen::default(), 10 * SECOND_NS, 0);
    table.0[9].by = WantedBy::User(2);
    assert!(!table.want(1000, WantedBy::User(2), 11 * SECOND_NS - 1));
    table.0[9].state = super::super::State::Finishing;
    assert!(!table.want(1000, WantedBy::User(2), 20 * SECOND_NS));
    // and a pin finds room all the same, until all are pinned
    for number in 0..SLOTS as u32 {
        assert!(table.want(2000 + number, WantedBy::Pin, 20 * SECOND_NS));
    }
    assert!(!table.want(3000, WantedBy::Pin, 30 * SECOND_NS));
}

#[derive(Clone, Debug)]
enum Event {
    Use { peer: u32, user: u32 },
    Pin { peer: u32 },
    Connect { slot: usize },
    Break { slot: usize },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (0u32..500, 0u32..80).prop_map(|(peer, user)| Event::Use { peer, user }),
        60 => (0u32..500).prop_map(|peer| Event::Use { peer, user: 7 }),
        1 => (0u32..500).prop_map(|peer| Event::Pin { peer }),
        5 => (0..SLOTS).prop_map(|slot| Event::Connect { slot }),
        2 => (0..SLOTS).prop_map(|slot| Event::Break { slot }),
    ]
}

proptest! {
    /// Whatever users do: no pinned or connected want goes, no user loses a want to one
    /// that has as many, none loses one that was not tried unless it has more than the
    /// other even then, and a user without wants gets one as soon as it was promised.
    #[test]
    fn no_order_of_events_makes_the_table_unfair(
        events in prop::collection::vec((event(), 0u64..40_000_000), 1..600),
    ) {
        let mut table = full_of_dead(0);
        let mut now_ns = 1;
        for (event, after_ns) in events {
            now_ns += after_ns;
            match event {
                Event::Use { peer: number, user } => {
                    let by = WantedBy::User(user);
                    let held = table.count(user);
                    let is_new = table.find(number).is_none();
                    let slot = makes_room(table.0.iter(), by, now_ns);
                    if let Some(want) = slot.map(|slot| &table.0[slot]) {
                        let WantedBy::User(owner) = want.by() else {
                            return Err(TestCaseError::fail("a pinned one goes"));
                        };
                        let missing_ns = want.missing_ns(now_ns);
                        prop_assert!(missing_ns.is_some(), "a connected one goes");
                        let left = table.count(owner) - 1;
                        prop_assert!(owner == user || left >= held);
                        let is_tried = missing_ns >= Some(TRIED_NS);
                        prop_assert!(is_tried || owner != user && left > held);
                    }
                    let is_missing = |want: &&Want| want.missing_ns(now_ns).is_some();
                    let mut missing = table.0.iter().filter(is_missing);
                    let is_due = missing.any(|want| match want.by() {
                        WantedBy::Pin | WantedBy::Pool => false,
                        WantedBy::Processor => true,
                        WantedBy::User(owner) => {
                            table.count(owner) > 1 || want.missing_ns(now_ns) >= Some(TRIED_NS)
                        }
                    });
                    let is_there = table.want(number, by, now_ns);
                    prop_assert_eq!(is_there, !is_new || slot.is_some());
                    prop_assert!(is_there || held > 0 || !is_due, "a user without one got none");
                }
                Event::Pin { peer: number } => {
                    let all = table.0.iter().all(|want| want.by() == WantedBy::Pin);
                    let is_new = table.find(number).is_none();
                    prop_assert_eq!(table.want(number, WantedBy::Pin, now_ns), !(is_new && all));
                }
                Event::Connect { slot } => table.0[slot].connected(now_ns),
                Event::Break { slot } => {
                    table.0[slot].step(Seen::default(), now_ns, 0);
                }
            }
            prop_assert_eq!(table.0.len(), SLOTS);
        }
    }
}

#[test]
fn one_for_a_processor_makes_room_for_any_and_takes_it_from_none() {
    let mut table = full_of_dead(0);
    assert!(!table.want(100, WantedBy::Processor, 60_000_000_000));
    for by in [
        WantedBy::User(1),
        WantedBy::User(2),
        WantedBy::Pool,
        WantedBy::Pin,
    ] {
        table.0[7] = Want::new(Lane::first(peer(7)), WantedBy::Processor, 0);
        assert_eq!(makes_room(table.0.iter(), by, 0), Some(7));
    }
}
