// SPDX-License-Identifier: MIT OR Apache-2.0

//! A slice of `scripts/soak transfers`.

use super::{run, shrink, Fault, Plan, Summary};

fn all_hold(plans: impl Iterator<Item = Plan>) -> Summary {
    let mut all = Summary::default();
    for plan in plans {
        match run(&plan) {
            Ok(summary) => all.add(summary),
            Err(failure) => panic!("{}", shrink(failure)),
        }
    }
    all
}

#[test]
fn without_a_fault_all_get_all() {
    let all = all_hold((0..300).map(|seed| Plan::of(seed).without_fault()));
    assert!(all.sent > 0 && all.received > 0, "{all:?}");
}

#[test]
fn whatever_goes_wrong_memory_comes_back_and_nobody_touches_it() {
    let all = all_hold((0..3000).map(Plan::of));
    assert!(all.returned > 0 && all.ended > 0, "{all:?}");
}

/// The peer goes on to the next group, whose farewell overwrites that of this one.
#[test]
fn who_is_taken_for_dead_learns_it_though_it_missed_the_farewell() {
    let plan = Plan {
        seed: 4305,
        nodes: 2,
        places: 1,
        groups: 2,
        sees: false,
        severs: true,
        actions: 147,
        faults: vec![(135, Fault::Suspect { node: 1, of: 0 })],
    };
    all_hold([plan].into_iter());
}

#[test]
fn a_seed_says_all() {
    for seed in 0..20 {
        assert_eq!(run(&Plan::of(seed)).ok(), run(&Plan::of(seed)).ok());
    }
}
