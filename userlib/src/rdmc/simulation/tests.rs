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

#[test]
fn who_comes_into_a_seat_is_not_taken_for_who_had_it() {
    let plans = (0..6000).map(Plan::of);
    let all = all_hold(plans.filter(|plan| plan.has_views()));
    assert!(all.received_later > 0, "{all:?}");
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

/// The peer's seat has another holder before the group is over: it is not waited for.
#[test]
fn memory_comes_back_though_somebody_has_come_into_the_seat_already() {
    let plan = Plan {
        seed: 20091,
        nodes: 5,
        places: 2,
        groups: 5,
        sees: false,
        severs: false,
        actions: 718,
        faults: vec![
            (714, Fault::Close { node: 1 }),
            (714, Fault::Return { node: 1 }),
        ],
    };
    all_hold([plan].into_iter());
}

#[test]
fn a_seed_says_all() {
    for seed in 0..20 {
        assert_eq!(run(&Plan::of(seed)).ok(), run(&Plan::of(seed)).ok());
    }
}
