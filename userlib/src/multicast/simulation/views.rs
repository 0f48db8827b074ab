// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracles of groups with views.

use super::judge::{self, expect, Message, Oracle, Outcome, Verdict};
use super::{newcomers, Seen};
use crate::fabric::NodeSet;
use crate::multicast::View;
use std::collections::BTreeMap;

/// A member's part of the history: each view that it has installed, and how much it had
/// delivered, from the beginning on, when the view ended for it.
pub(super) type History = Vec<(View, usize)>;

/// Views that somebody has installed, without the first.
pub(super) fn count(seen: &[Vec<Seen>]) -> u64 {
    let views = seen.iter().flatten().filter_map(|seen| match seen {
        Seen::Installed(view) => Some(view.number),
        _ => None,
    });
    views.max().map_or(0, |last| last.saturating_sub(1))
}

/// Newcomers that have installed a view.
pub(super) fn joins(seen: &[Vec<Seen>], founders: usize) -> u64 {
    let newcomers = seen.iter().skip(founders);
    let installed = |seen: &&Vec<Seen>| seen.iter().any(|seen| matches!(seen, Seen::Installed(_)));
    newcomers.filter(installed).count() as u64
}

/// All of them.
pub(super) fn all(seen: &[Vec<Seen>], outcome: &Outcome, has_state: bool) -> Verdict {
    let seen = newcomers::whole(seen, has_state)?;
    let delivered = judge::one_sequence(&seen, &outcome.sent)?;
    let histories: Vec<_> = seen.iter().map(|seen| history(seen)).collect();
    let views = agreement(&histories, outcome)?;
    majority(&views)?;
    newcomers::identity(&histories, &views, outcome)?;
    synchrony(&histories)?;
    uniformity(&histories, &views)?;
    for (member, seen) in seen.iter().enumerate() {
        silence(member, seen)?;
        told(member, seen)?;
    }
    if outcome.must_go_on {
        liveness(&seen, &histories, &delivered, outcome)?;
    }
    Ok(())
}

fn history(seen: &[Seen]) -> History {
    let mut history = History::new();
    let mut delivered = 0;
    for seen in seen {
        match seen {
            Seen::Installed(view) => history.push((*view, delivered)),
            Seen::Delivered(..) | Seen::Restored(..) => {
                delivered += 1;
                if let Some(last) = history.last_mut() {
                    last.1 = delivered;
                }
            }
            _ => {}
        }
    }
    history
}

/// All views, by number.
fn agreement(
    histories: &[History],
    outcome: &Outcome,
) -> Result<BTreeMap<u64, View>, (Oracle, String)> {
    let mut views: BTreeMap<u64, View> = BTreeMap::new();
    for (member, history) in histories.iter().enumerate() {
        for (at, (view, _)) in history.iter().enumerate() {
            let known = views.entry(view.number).or_insert(*view);
            let first = history[0].0.number;
            let seat = outcome.seats[member];
            let is_next = view.number == first + at as u64 && view.members.contains(seat);
            expect(known == view && is_next, Oracle::Agreement, || {
                format!("{member} installs {view:?} behind {at} others; another one {known:?}")
            })?;
        }
    }
    Ok(views)
}

fn majority(views: &BTreeMap<u64, View>) -> Verdict {
    for (before, after) in views.values().zip(views.values().skip(1)) {
        let stay = after.members.and(before.members).union(after.left);
        let holds = stay.len() * 2 > before.members.len()
            && after.members.minus(before.members)
                == after.joined.iter().map(|new| new.seat).collect()
            && after.failed == before.members.minus(stay);
        expect(holds, Oracle::Majority, || {
            format!("{before:?} is followed by {after:?}")
        })?;
    }
    Ok(())
}

/// Members that go from one view to the next together have delivered the same in it.
fn synchrony(histories: &[History]) -> Verdict {
    let mut ends: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (member, history) in histories.iter().enumerate() {
        for pair in history.windows(2) {
            let (view, delivered) = pair[0];
            let &mut (other, theirs) = ends.entry(view.number).or_insert((member, delivered));
            expect(theirs == delivered, Oracle::Synchrony, || {
                format!(
                    "at the end of view {} {member} has delivered {delivered}, {other} {theirs}",
                    view.number
                )
            })?;
        }
    }
    Ok(())
}

/// What anybody has delivered in a view all have delivered who install the next one.
fn uniformity(histories: &[History], views: &BTreeMap<u64, View>) -> Verdict {
    for &number in views.keys() {
        let in_view = |history: &&History| {
            let own = history.iter().position(|(view, _)| view.number == number);
            own.map(|at| (history[at].1, history.len() > at + 1))
        };
        let ends = || histories.iter().filter_map(|history| in_view(&history));
        let most = ends().map(|end| end.0).max();
        let agreed = ends().filter(|end| end.1).map(|end| end.0).min();
        let holds = agreed.is_none_or(|agreed| Some(agreed) >= most);
        expect(holds, Oracle::Uniformity, || {
            format!("in view {number} somebody has delivered {most:?}, who go on {agreed:?}")
        })?;
    }
    Ok(())
}

fn silence(member: usize, seen: &[Seen]) -> Verdict {
    let out = seen
        .iter()
        .position(|seen| matches!(seen, Seen::Stopped(_)));
    let is_last = out.is_none_or(|at| at + 1 == seen.len());
    expect(is_last, Oracle::Silence, || format!("{member} goes on"))
}

/// Behind each view come the events of those who are not in it any more, and no others.
fn told(member: usize, seen: &[Seen]) -> Verdict {
    let (mut left, mut failed) = (NodeSet::EMPTY, NodeSet::EMPTY);
    for seen in seen {
        match seen {
            Seen::Installed(view) => {
                (left, failed) = (left.union(view.left), failed.union(view.failed))
            }
            Seen::Left(node) => {
                expect(left.contains(*node), Oracle::Told, || {
                    format!("{member} is told that {node} has left")
                })?;
                left = left.minus(NodeSet::EMPTY.with(*node));
            }
            Seen::Failed(node) => {
                expect(failed.contains(*node), Oracle::Told, || {
                    format!("{member} is told that {node} has failed")
                })?;
                failed = failed.minus(NodeSet::EMPTY.with(*node));
            }
            Seen::Delivered(..) => expect(left.union(failed).is_empty(), Oracle::Told, || {
                format!("{member} is not told of {left:?} and {failed:?}")
            })?,
            Seen::Stopped(_) | Seen::Restored(..) => {}
        }
    }
    Ok(())
}

/// In the last view are those who are there, and they deliver all that they have sent.
fn liveness(
    seen: &[Vec<Seen>],
    histories: &[History],
    delivered: &[Vec<Message>],
    outcome: &Outcome,
) -> Verdict {
    let is_there = |&member: &usize| {
        let stopped = matches!(seen[member].last(), Some(Seen::Stopped(_)));
        !stopped && !outcome.crashed.contains(member) && !outcome.left.contains(member)
    };
    let there: NodeSet = (0..seen.len()).filter(is_there).collect();
    let is_in = |&member: &usize| !histories[member].is_empty();
    let waiting = there.minus(there.iter().filter(is_in).collect());
    expect(
        waiting.is_empty() || !outcome.must_admit,
        Oracle::Liveness,
        || format!("{waiting:?} are not taken in"),
    )?;
    let there = there.minus(waiting);
    let seats: NodeSet = there.iter().map(|member| outcome.seats[member]).collect();
    for member in there.iter() {
        let last = histories[member].last().map(|(view, _)| view.members);
        expect(last == Some(seats), Oracle::Liveness, || {
            format!("{member} has the members {last:?}, where {seats:?} are there")
        })?;
    }
    expect(!there.is_empty(), Oracle::Liveness, || {
        "nobody is left".to_owned()
    })?;
    judge::complete(delivered, there, &outcome.sent)
}
