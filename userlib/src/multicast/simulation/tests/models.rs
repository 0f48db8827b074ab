// SPDX-License-Identifier: MIT OR Apache-2.0

//! Small models, walked whole.

use super::super::model::{self, Arrival, Model};
use super::super::{Fault, Members, Shape};
use super::shape;
use crate::fabric::NodeSet;

/// Walks all of a model.
fn walk(model: Model) -> model::Extent {
    match model::enumerate(&model) {
        Ok(extent) => extent,
        Err(failure) => panic!("{model:?}\n{failure}"),
    }
}

/// A crash at each post, a false suspicion of the fabric's or the application's, a broken link,
/// a leave.
fn faults(model: &Model, node: usize) -> Vec<Fault> {
    let others = (0..model.members).filter(|&other| other != node);
    let crashes = (0..=model::posts(model, node)).map(|posts| Fault::Crash { node, posts });
    let suspicions = others
        .clone()
        .flat_map(|of| [Fault::Suspect { node, of }, Fault::Accuse { node, of }]);
    let breaks = others
        .filter(|&b| b > node)
        .map(|b| Fault::Break { a: node, b });
    let leave = Fault::Leave { node, posts: None };
    crashes
        .chain(suspicions)
        .chain(breaks)
        .chain([leave])
        .collect()
}

/// A crash at each post of a member, and a leave of each of the first three.
fn crashes_and_leaves(model: &Model, node: usize) -> impl Iterator<Item = Fault> {
    let crashes = (0..=model::posts(model, node)).map(move |posts| Fault::Crash { node, posts });
    crashes.chain((0..3).map(|node| Fault::Leave { node, posts: None }))
}

/// Walks a model with each thing that can go wrong at a member.
fn walk_all(model: &Model, faults: impl Iterator<Item = Fault>) {
    let mut all = model::Extent::default();
    for fault in faults {
        let extent = walk(Model { fault, ..*model });
        println!("{fault:?}: {extent:?}");
        all.states += extent.states;
        all.ends += extent.ends;
    }
    println!("{model:?}: {all:?}");
    assert!(all.ends > 0, "{all:?}");
}

/// So many members, of whom some have sent a message.
fn model(members: usize, arrival: Arrival, senders: usize) -> Model {
    Model {
        members,
        arrival,
        newcomer: false,
        shape: Shape::EVERYBODY,
        senders: (0..senders).collect(),
        fault: Fault::Leave {
            node: 0,
            posts: None,
        },
    }
}

#[test]
fn two_members_in_every_order_of_events() {
    for arrival in [Arrival::AtOnce, Arrival::OneByOne] {
        let model = model(2, arrival, 2);
        walk_all(&model, (0..2).flat_map(|node| faults(&model, node)));
    }
}

#[test]
fn three_members_and_a_leader_in_every_order_of_steps() {
    let model = model(3, Arrival::AtOnce, 1);
    let faults = faults(&model, 0).into_iter();
    walk_all(
        &model,
        faults.filter(|fault| !matches!(fault, Fault::Break { .. })),
    );
}

#[test]
fn a_newcomer_and_two_members_in_every_order_of_steps() {
    let model = Model {
        newcomer: true,
        ..model(2, Arrival::AtOnce, 1)
    };
    walk_all(&model, crashes_and_leaves(&model, model.members));
}

#[test]
fn two_members_one_of_whom_is_in_the_subgroup_in_every_order_of_events() {
    for members in [Members::Highest(1), Members::Halves] {
        let model = Model {
            shape: shape(members),
            ..model(2, Arrival::OneByOne, 2)
        };
        walk_all(&model, (0..2).flat_map(|node| faults(&model, node)));
    }
}

#[test]
fn a_subgroup_without_the_leader_in_every_order_of_steps() {
    let model = Model {
        shape: shape(Members::Highest(2)),
        senders: NodeSet::EMPTY.with(2),
        ..model(3, Arrival::AtOnce, 0)
    };
    for node in [0, 2] {
        let faults = faults(&model, node).into_iter();
        walk_all(
            &model,
            faults.filter(|fault| !matches!(fault, Fault::Break { .. })),
        );
    }
}

#[test]
fn a_newcomer_that_enters_a_subgroup_in_every_order_of_steps() {
    let model = Model {
        newcomer: true,
        shape: shape(Members::Highest(2)),
        ..model(2, Arrival::AtOnce, 2)
    };
    walk_all(&model, crashes_and_leaves(&model, 1));
}

#[test]
fn a_newcomer_that_is_given_a_subgroups_state_in_every_order_of_steps() {
    let model = Model {
        newcomer: true,
        shape: Shape {
            state: true,
            ..shape(Members::Highest(1))
        },
        ..model(2, Arrival::AtOnce, 2)
    };
    walk_all(&model, crashes_and_leaves(&model, 1));
}

#[test]
#[ignore = "it takes minutes: scripts/soak views does it"]
fn three_members_of_a_subgroup_that_moves_in_every_order_of_steps() {
    let moving = [Members::Highest(2), Members::Halves, Members::Lowest(1)];
    let shapes = moving.into_iter().flat_map(|members| {
        [false, true].map(|state| Shape {
            state,
            ..shape(members)
        })
    });
    for shape in shapes {
        let model = Model {
            shape,
            ..model(3, Arrival::AtOnce, 3)
        };
        walk_all(&model, (0..3).flat_map(|node| faults(&model, node)));
    }
}

#[test]
#[ignore = "it takes a quarter of a minute and more: scripts/soak views does it"]
fn three_members_in_every_order_of_steps() {
    let model = model(3, Arrival::AtOnce, 3);
    walk_all(&model, (0..3).flat_map(|node| faults(&model, node)));
}

#[test]
#[ignore = "it takes minutes: scripts/soak views does it"]
fn three_members_whose_links_differ_in_every_order_of_events() {
    let model = model(3, Arrival::Together, 1);
    walk_all(&model, (0..3).flat_map(|node| faults(&model, node)));
}
