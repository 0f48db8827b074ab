// SPDX-License-Identifier: MIT OR Apache-2.0

//! A slice of `scripts/soak views`.

mod corrupt;
mod models;

use super::run::Run;
use super::{run, shrink, Fault, Members, Message, Plan, Seen, Senders, Shape};
use crate::fabric::NodeSet;
use crate::multicast::{Ending, Options, View};
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

/// A subgroup all of whose members send.
fn shape(members: Members) -> Shape {
    Shape {
        members,
        senders: Senders::All,
        state: false,
    }
}

/// A group with views and one subgroup, in which nothing happens by chance.
fn calm(members: usize, subgroup: Shape) -> Plan {
    Plan {
        seed: 1,
        views: true,
        members,
        seats: members,
        state: false,
        subgroups: vec![subgroup],
        window: 4,
        sees: false,
        options: Options::FULL,
        actions: 0,
        faults: Vec::new(),
    }
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
        views: false,
        ..calm(5, Shape::EVERYBODY)
    };
    let mut run = Run::new(&plan);
    // Given a message of member 3 that member 0 does not get before it wedges,
    run.members[3].send(0);
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
            !seen.iter().any(|seen| matches!(
                seen,
                Seen::Delivered(Message {
                    sender: 3,
                    number: 0,
                    ..
                })
            )),
            "{member} {seen:?}"
        );
    }
}

/// The view with this number that a member has installed.
fn view(run: &Run<'_>, member: usize, number: u64) -> Option<View> {
    let seen = run.members[member].seen();
    let mut views = seen.iter().filter_map(|seen| match seen {
        Seen::Installed(view) => Some(view.clone()),
        _ => None,
    });
    views.find(|view| view.number == number)
}

/// A member leaves behind its echo, and with it its trust in the leader, which dies then.
#[test]
fn who_has_echoed_and_left_does_not_hold_a_second_leader_up() {
    let plan = Plan {
        views: false,
        ..calm(5, Shape::EVERYBODY)
    };
    let mut run = Run::new(&plan);
    // Given that member 1 dies, and that member 4 alone hears the trim of member 0,
    run.sim.crash(1);
    [0, 2, 3, 4].map(|member| run.sim.notice(member, 1));
    for _ in 0..3 {
        [4, 3, 2, 0].map(|member| run.step(member));
        arrive_but(&run, &[(0, 2), (0, 3)]);
    }
    // when it leaves, and member 0 dies,
    leave(&mut run, 4);
    run.sim.crash(0);
    run.bury(1);
    run.bury(0);
    // then those who are left agree.
    assert!(run.rest());
    for member in [2, 3] {
        assert_eq!(
            run.members[member].ending(),
            Some(Ending::Agreed),
            "{member}"
        );
    }
}

/// One member decides without another one that it suspects, and dies with the leader. The
/// next leader trusts the other one, which knows of nothing, and could find another view.
#[test]
fn a_second_leader_takes_over_what_somebody_may_have_decided() {
    let plan = calm(5, Shape::EVERYBODY);
    let mut run = Run::new(&plan);
    assert!(run.settle());
    // Given a leave that member 0 proposes, and all but member 3 echo,
    run.fault(Fault::Leave {
        node: 4,
        posts: None,
    });
    for _ in 0..6 {
        step(&mut run, 0..5);
        arrive_but(&run, &[(0, 3)]);
    }
    // when member 1 suspects member 3 and goes on without it,
    run.sim.suspect(1, 3);
    run.step(1);
    let decided = view(&run, 1, 2).expect("the next view");
    // but dies before anybody knows of that, and member 0 as well,
    for node in [0, 1] {
        run.sim.crash(node);
        run.bury(node);
        (2..5).for_each(|other| run.sim.lose_all(node, other));
    }
    assert!(run.settle());
    // then the others install the same view.
    assert_eq!(decided.members, (0..4).collect());
    for member in [2, 3] {
        assert_eq!(view(&run, member, 2).as_ref(), Some(&decided), "{member}");
    }
}

/// Newcomers call all members, and are heard.
fn call_all(run: &Run<'_>) {
    loop {
        let calls = run.calls();
        if calls.is_empty() {
            return;
        }
        for (newcomer, member) in calls {
            run.sim.call(newcomer, member);
        }
    }
}

fn leave(run: &mut Run<'_>, node: usize) {
    run.fault(Fault::Leave { node, posts: None });
}

/// Two halves of the members take turns.
#[test]
fn what_a_sender_had_sent_that_is_none_any_more_is_delivered_when_it_is_one_again() {
    let plan = calm(4, shape(Members::Halves));
    let mut run = Run::new(&plan);
    assert!(run.settle());
    // Given that member 1 sends when somebody has wedged already,
    leave(&mut run, 3);
    run.step(3);
    arrive_but(&run, &[]);
    assert_eq!(run.members[1].accepts(), [true]);
    run.members[1].send(0);
    // when the next view begins, in which it is no sender,
    assert!(run.settle());
    // then it is told so,
    assert_eq!(run.members[1].accepts(), [false]);
    assert_eq!(run.members[1].has_flushed(), Some(false));
    let of_1 = |run: &Run<'_>, member: usize| {
        let seen = run.members[member].seen().into_iter();
        let sent =
            seen.filter(|seen| matches!(seen, Seen::Delivered(message) if message.sender == 1));
        sent.count()
    };
    assert_eq!(of_1(&run, 1), 0);
    // and in the view after that, in which it is one, the message is delivered.
    leave(&mut run, 2);
    assert!(run.settle());
    assert_eq!(run.members[1].has_flushed(), Some(true));
    assert_eq!(run.members[1].accepts(), [true]);
    assert_eq!((of_1(&run, 0), of_1(&run, 1)), (0, 1));
}

/// The only member of a subgroup fails.
#[test]
fn a_subgroup_whose_members_have_all_failed_begins_again_where_the_view_began() {
    let plan = calm(4, shape(Members::Highest(1)));
    let mut run = Run::new(&plan);
    assert!(run.settle());
    // Given a message that the only member has delivered,
    run.members[3].send(0);
    assert!(run.settle());
    assert_eq!(run.members[3].has_flushed(), Some(true));
    // when that member dies,
    run.sim.crash(3);
    run.bury(3);
    assert!(run.settle());
    // then the others hear that nobody has it.
    let subgroup = view(&run, 2, 2).expect("the next view").subgroups.at(0);
    assert_eq!(subgroup.members, NodeSet::EMPTY.with(2));
    assert_eq!((subgroup.before, subgroup.sequence), (NodeSet::EMPTY, 0));
}

/// The only member of a subgroup leaves.
#[test]
fn the_last_one_who_has_a_state_hands_it_over_when_it_leaves() {
    let with_state = Shape {
        state: true,
        ..shape(Members::Highest(1))
    };
    let plan = calm(4, with_state);
    let mut run = Run::new(&plan);
    assert!(run.settle());
    // Given a message that the only member has delivered,
    run.members[3].send(0);
    assert!(run.settle());
    // when that member leaves,
    leave(&mut run, 3);
    assert!(run.settle());
    // then it stays for one view more, in which another one is given the state,
    let handover = view(&run, 2, 2).expect("the next view");
    assert_eq!(handover.leaving, NodeSet::EMPTY.with(3));
    assert_eq!(handover.subgroups.at(0).senders, NodeSet::EMPTY.with(2));
    let seen = run.members[2].seen();
    let restored = |seen: &&Seen| matches!(seen, Seen::Restored(message) if message.sender == 3);
    assert_eq!(seen.iter().filter(restored).count(), 1);
    // and leaves then.
    let last = view(&run, 2, 3).expect("the view after that");
    assert_eq!(last.left, NodeSet::EMPTY.with(3));
    let subgroup = last.subgroups.at(0);
    let expected = (NodeSet::EMPTY.with(2), NodeSet::EMPTY.with(2), 1);
    assert_eq!(
        (subgroup.members, subgroup.before, subgroup.sequence),
        expected
    );
}

/// Nobody is to have what the members of a subgroup have.
#[test]
fn who_has_a_state_that_nobody_is_to_have_leaves_at_once() {
    let with_state = Shape {
        state: true,
        ..shape(Members::Newcomers)
    };
    let plan = Plan {
        seats: 5,
        ..calm(4, with_state)
    };
    let mut run = Run::new(&plan);
    run.fault(Fault::Join { seat: 4 });
    assert!(run.settle());
    let joined = view(&run, 0, 2).expect("the view of the newcomer");
    assert_eq!(joined.subgroups.at(0).members, NodeSet::EMPTY.with(4));
    leave(&mut run, 4);
    assert!(run.settle());
    let last = view(&run, 0, 3).expect("the view without it");
    assert_eq!(
        (last.left, last.leaving),
        (NodeSet::EMPTY.with(4), NodeSet::EMPTY)
    );
}

/// At whatever moment of its leave that is, also when all have agreed on it already.
#[test]
fn who_leaves_and_is_suspected_meanwhile_holds_nobody_up() {
    for steps in 0..24 {
        for fault in [
            Fault::Accuse { node: 0, of: 2 },
            Fault::Suspect { node: 0, of: 2 },
        ] {
            // Given that one of three leaves,
            let plan = calm(3, Shape::EVERYBODY);
            let mut run = Run::new(&plan);
            assert!(run.settle());
            leave(&mut run, 2);
            for turn in 0..steps {
                run.step(turn % 3);
                arrive_but(&run, &[]);
            }
            // when another one suspects it,
            run.fault(fault);
            // then the two that are left come to rest, and go on.
            assert!(run.settle(), "after {steps} steps: {fault:?}");
            run.members[0].send(0);
            assert!(run.settle(), "after {steps} steps: {fault:?}");
            assert_eq!(
                run.members[0].has_flushed(),
                Some(true),
                "after {steps} steps: {fault:?}"
            );
        }
    }
}

/// It is in the same view, as the others say, but has never spoken to the newcomer.
#[test]
fn who_stops_before_a_newcomers_view_does_not_hold_that_one_up() {
    let plan = Plan {
        seats: 6,
        ..calm(5, Shape::EVERYBODY)
    };
    let mut run = Run::new(&plan);
    // Given a newcomer, and a member 4 that leaves before member 1 has heard anything of it,
    let is_late = [(4, 1)];
    let go_on = |run: &mut Run<'_>, members: Range<usize>| {
        step(run, members);
        arrive_but(run, &is_late);
    };
    (0..4).for_each(|_| go_on(&mut run, 0..5));
    run.fault(Fault::Join { seat: 5 });
    call_all(&run);
    leave(&mut run, 4);
    (0..6).for_each(|_| go_on(&mut run, 0..5));
    // so that member 1 cannot agree on the next view,
    assert!(view(&run, 0, 2).is_none());
    // when member 3 goes on without it,
    run.fault(Fault::Accuse { node: 3, of: 1 });
    (0..2).for_each(|_| go_on(&mut run, 2..5));
    let next = view(&run, 3, 2).expect("the next view");
    assert_eq!(next.members, [0, 1, 2, 3, 5].into_iter().collect());
    // and member 1 stops, because member 4 has gone on,
    arrive_but(&run, &[]);
    run.step(1);
    assert_eq!(run.members[1].ending(), Some(Ending::Excluded));
    // then the others and the newcomer go on, though member 0 dies, whose word alone counts
    // against that of member 1.
    run.sim.crash(0);
    run.bury(0);
    assert!(run.settle());
    let last = view(&run, 5, 3).expect("the view after that");
    assert_eq!(last.members, [2, 3, 5].into_iter().collect());
}

/// A newcomer that waits hears that a member has stopped, and comes in when somebody else has that
/// one's seat.
#[test]
fn who_has_the_seat_of_one_that_has_stopped_is_not_taken_for_that_one() {
    let plan = Plan {
        seats: 4,
        state: true,
        actions: 100,
        ..calm(2, Shape::EVERYBODY)
    };
    let mut run = Run::new(&plan);
    // Given a newcomer 2 that fetches a state of several pieces,
    for _ in 0..12 {
        run.members[0].send(0);
        assert!(run.settle());
    }
    let go_on = |run: &mut Run<'_>, members: Range<usize>| {
        call_all(run);
        step(run, members);
        arrive_but(run, &[]);
    };
    run.fault(Fault::Join { seat: 2 });
    (0..6).for_each(|_| go_on(&mut run, 0..2));
    (0..2).for_each(|_| go_on(&mut run, 0..3));
    assert!(view(&run, 0, 2).is_some() && view(&run, 2, 2).is_none());
    // and a newcomer 3 that waits until that one has it,
    run.fault(Fault::Join { seat: 3 });
    go_on(&mut run, 0..3);
    // when member 0 stops, which newcomer 3 hears,
    run.fault(Fault::Close { node: 0 });
    arrive_but(&run, &[]);
    // and somebody else has its seat, and joins before newcomer 3, which hears that one last,
    run.fault(Fault::Join { seat: 0 });
    for _ in 0..60 {
        while !run.notices.is_empty() {
            run.notice(0);
        }
        call_all(&run);
        step(&mut run, 0..5);
        arrive_but(&run, &[(0, 3)]);
    }
    assert!(run.settle());
    // then nobody is put out.
    for member in 1..5 {
        assert_eq!(run.members[member].ending(), None, "{member}");
        let last = view(&run, member, 5).expect("the view of both");
        assert_eq!(last.members, (0..4).collect(), "{member}");
    }
}
