// SPDX-License-Identifier: MIT OR Apache-2.0

//! A slice of `scripts/soak views`.

use super::run::Run;
use super::{run, shrink, Plan, Seen};
use crate::multicast::{Ending, Options};
use std::ops::Range;

fn all_hold(plans: impl Iterator<Item = Plan>) {
    for plan in plans {
        if let Err(failure) = run(&plan) {
            panic!("{}", shrink(failure));
        }
    }
}

#[test]
fn without_a_fault_all_deliver_all() {
    all_hold((0..500).map(|seed| Plan::of(seed).without_fault()));
}

#[test]
fn whatever_goes_wrong_survivors_agree() {
    all_hold((0..3000).map(Plan::of));
}

#[test]
fn views_go_on_whatever_goes_wrong() {
    all_hold((0..3000).map(Plan::with_views));
}

/// A run without chance: everything that is under way arrives, but on some links.
fn arrive_but(run: &Run<'_>, held: &[(usize, usize)]) {
    let free = |link: &(usize, usize)| !held.contains(link);
    while let Some((from, to)) = run.sim.busy_links().into_iter().find(free) {
        run.sim.advance(from, to);
    }
}

fn step(run: &mut Run<'_>, members: Range<usize>) {
    for member in members {
        run.step(member);
    }
}

/// The leader dies when one member, but not the next leader, knows its trim, which is lower
/// than the one that the next leader would find.
#[test]
fn a_second_leader_takes_over_the_trim_of_the_first() {
    let plan = Plan {
        seed: 1,
        views: false,
        members: 5,
        window: 4,
        sees: false,
        options: Options::FULL,
        actions: 0,
        faults: Vec::new(),
    };
    let mut run = Run::new(&plan);
    // Given a message of member 3 that member 0 does not get before it wedges,
    run.members[3].send();
    for _ in 0..4 {
        step(&mut run, 0..5);
        arrive_but(&run, &[(3, 0)]);
    }
    run.sim.crash(4);
    (0..4).for_each(|member| run.sim.notice(member, 4));
    run.step(0);
    // and everybody wedged, so that member 0 leads and finds a trim without the message,
    for _ in 0..2 {
        step(&mut run, 1..4);
        arrive_but(&run, &[]);
    }
    run.step(0);
    // which reaches member 2 alone before member 0 dies:
    arrive_but(&run, &[(0, 1), (0, 3)]);
    run.step(2);
    let held = [(0, 1), (0, 3), (2, 1), (2, 3)];
    run.sim.crash(0);
    run.sim.notice(1, 0);
    run.step(1);
    arrive_but(&run, &held);
    run.step(1);
    // When all learn of that, with what member 0 had under way lost,
    run.bury(4);
    run.bury(0);
    assert!(run.rest());
    // then those who are left agree on the first trim.
    for member in 1..4 {
        assert_eq!(
            run.members[member].ending(),
            Some(Ending::Agreed),
            "{member}"
        );
        let seen = run.members[member].seen();
        assert!(
            !seen
                .iter()
                .any(|seen| matches!(seen, Seen::Delivered(3, 0, _))),
            "{member} {seen:?}"
        );
    }
}
