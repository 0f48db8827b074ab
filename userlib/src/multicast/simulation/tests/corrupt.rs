// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows that say what no member writes: their owner is suspected, or what they say is left out,
//! and the group goes on.

use super::*;
use crate::fabric::{Newcomer, MAX_NODES};
use crate::multicast::rows::{NodeRow, SubgroupRow};
use crate::multicast::views::rows::{RingRow, SeatRow, SequenceRow, ViewRow, WelcomeRow};
use crate::sst::Table;
use std::mem::offset_of;

/// Messages that members send in the last view: more than there are slots.
const MORE: u64 = 8;

/// Where the tables of a group with one subgroup are in each region, in the order of the layout.
struct Tables {
    welcomes: usize,
    views: [usize; 2],
    rings: [usize; 2],
}

impl Tables {
    fn new(seats: usize) -> Self {
        let subgroup = Table::<SubgroupRow>::bytes(seats);
        let welcomes = Table::<NodeRow>::bytes(seats) + subgroup + Table::<SeatRow>::bytes(seats);
        let (view, ring) = (
            Table::<ViewRow>::bytes(seats),
            Table::<RingRow>::bytes(seats),
        );
        let views = welcomes + Table::<WelcomeRow>::bytes(seats);
        let rings = views + 2 * view + subgroup + Table::<SequenceRow>::bytes(seats);
        Self {
            welcomes,
            views: [views, views + view],
            rings: [rings, rings + ring],
        }
    }
}

/// A group in which all that is under way arrives when a test says so.
fn quiet(plan: &Plan) -> Run<'_> {
    let mut run = Run::new(plan);
    assert!(run.settle());
    run.sim.be_still();
    run
}

#[test]
fn whose_ring_goes_on_nowhere_is_suspected_before_a_view_opens() {
    let plan = calm(4, Shape::EVERYBODY);
    let mut run = quiet(&plan);
    // Given messages that all have delivered,
    for member in 0..4 {
        run.members[member].send(0);
    }
    assert!(run.settle());
    // and the next view, which all that are left have installed,
    run.sim.crash(3);
    (0..3).for_each(|member| run.sim.notice(member, 3));
    while (0..3).any(|member| view(&run, member, 2).is_none()) {
        arrive_but(&run, &[]);
        step(&mut run, 0..3);
    }
    arrive_but(&run, &[]);
    // when member 0 reads of member 1 that its ring goes on nowhere,
    let row = Tables::new(4).rings[0] + size_of::<RingRow>();
    run.sim
        .scribble(0, row + offset_of!(RingRow, start), u64::MAX);
    assert!(run.settle());
    // then the view ends without member 1, and the two others go on.
    let next = view(&run, 0, 3).expect("the view after that");
    assert_eq!(next.members, [0, 2].into_iter().collect());
    for _ in 0..MORE {
        for member in [0, 2] {
            run.members[member].send(0);
        }
        assert!(run.settle());
    }
    for member in [0, 2] {
        assert_eq!(run.members[member].sent, [1 + MORE], "{member}");
        assert_eq!(run.members[member].has_flushed(), Some(true), "{member}");
        let seen = run.members[member].seen();
        let delivered = seen
            .iter()
            .filter(|seen| matches!(seen, Seen::Delivered(_)));
        assert_eq!(delivered.count() as u64, 4 + 2 * MORE, "{member}");
    }
}

#[test]
fn seats_that_there_are_not_come_into_no_view() {
    let plan = calm(3, Shape::EVERYBODY);
    let mut run = quiet(&plan);
    run.sim.crash(2);
    (0..2).for_each(|member| run.sim.notice(member, 2));
    // When member 1 reads in the leader's proposal of a newcomer in the last seat of all,
    let row = Tables::new(3).views[1];
    let newcomer = Newcomer::new(MAX_NODES - 1, 9).word();
    while view(&run, 1, 2).is_none() {
        step(&mut run, 0..1);
        arrive_but(&run, &[]);
        run.sim
            .scribble(1, row + offset_of!(ViewRow, newcomer), newcomer);
        run.sim
            .scribble(1, row + offset_of!(ViewRow, next), u64::MAX);
        run.sim
            .scribble(1, row + offset_of!(ViewRow, lacking), 1 << 62);
        step(&mut run, 1..2);
        arrive_but(&run, &[]);
    }
    // then it takes in nobody,
    assert_eq!(view(&run, 1, 2).and_then(|view| view.joined), None);
    // and the group goes on.
    assert!(run.settle());
    assert!(view(&run, 0, 2).is_some());
}

#[test]
fn a_newcomer_leaves_out_seats_that_there_are_not() {
    let plan = Plan {
        seats: 4,
        ..calm(3, Shape::EVERYBODY)
    };
    let mut run = quiet(&plan);
    // Given a newcomer that is welcome,
    run.fault(Fault::Join { seat: 3 });
    call_all(&run);
    while (0..3).any(|member| view(&run, member, 2).is_none()) {
        arrive_but(&run, &[]);
        step(&mut run, 0..3);
    }
    arrive_but(&run, &[]);
    // when it is told of a view with the last seat of all,
    let first = Tables::new(4).welcomes;
    for member in 0..3 {
        let row = first + member * size_of::<WelcomeRow>();
        let members = 0b1111 | (1 << (MAX_NODES - 1));
        run.sim
            .scribble(3, row + offset_of!(WelcomeRow, members), members);
    }
    assert!(run.settle());
    // then it installs it without that one.
    let first = view(&run, 3, 2).expect("its first view");
    assert_eq!(first.members, (0..4).collect());
}
