// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracles of groups with views.

use super::judge::{expect, Oracle, Outcome, Verdict};
use super::{newcomers, states, subgroups, Message, Plan, Seen};
use crate::fabric::NodeSet;
use crate::multicast::View;
use std::collections::BTreeMap;

/// A view that a member has installed, and what it has delivered in it.
pub(super) struct Stay {
    pub(super) view: View,
    delivered: Vec<Message>,
    /// Subgroups whose state it was given in it.
    given: Vec<usize>,
}

impl Stay {
    /// Whether a member in a seat has waited in vain for the state of a subgroup that has one.
    pub(super) fn has_lacked(&self, subgroup: usize, seat: usize) -> bool {
        states::lacks(self.view.subgroups.at(subgroup), seat) && !self.given.contains(&subgroup)
    }

    /// Its deliveries in a subgroup.
    pub(super) fn of(&self, subgroup: usize) -> Vec<Message> {
        let delivered = self.delivered.iter().copied();
        delivered
            .filter(|message| message.subgroup == subgroup)
            .collect()
    }
}

/// A member's part of the history.
pub(super) type History = Vec<Stay>;

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

/// Subgroups' states that were given.
pub(super) fn states(seen: &[Vec<Seen>]) -> u64 {
    let given = |seen: &&Seen| matches!(seen, Seen::Given(_));
    seen.iter().flatten().filter(given).count() as u64
}

/// All of them.
pub(super) fn all(seen: &[Vec<Seen>], outcome: &Outcome, plan: &Plan) -> Verdict {
    let histories = seen.iter().enumerate();
    let histories = histories
        .map(|(member, seen)| history(member, seen))
        .collect::<Result<Vec<_>, _>>()?;
    let views = agreement(&histories, outcome)?;
    majority(&views)?;
    newcomers::identity(&histories, &views, outcome)?;
    newcomers::state(seen, outcome, plan)?;
    for (member, seen) in seen.iter().enumerate() {
        silence(member, seen)?;
        told(member, seen)?;
    }
    let there = match outcome.must_go_on {
        true => liveness(seen, &histories, outcome)?,
        false => NodeSet::EMPTY,
    };
    let (mut delivered, mut is_known) = (Vec::new(), true);
    for (index, &shape) in plan.subgroups.iter().enumerate() {
        let all = subgroups::one(index, shape, &histories, &views, outcome)?;
        states::given(index, shape.state, seen, outcome)?;
        subgroups::complete((index, shape), there, &histories, &all, outcome)?;
        is_known &= all.gaps.is_empty();
        delivered.extend(all.messages);
    }
    match is_known {
        true => flushed(there, &delivered, outcome),
        false => Ok(()),
    }
}

/// A member's deliveries, view by view.
fn history(member: usize, seen: &[Seen]) -> Result<History, (Oracle, String)> {
    let mut history = History::new();
    for seen in seen {
        match (seen, history.last_mut()) {
            (Seen::Installed(view), _) => history.push(Stay {
                view: view.clone(),
                delivered: Vec::new(),
                given: Vec::new(),
            }),
            (Seen::Delivered(message), Some(last)) => last.delivered.push(*message),
            (Seen::Given(subgroup), Some(last)) => last.given.push(*subgroup),
            (Seen::Delivered(message), None) => {
                let what = format!("{member} delivers {message:?} before its first view");
                return Err((Oracle::Silence, what));
            }
            _ => {}
        }
    }
    Ok(history)
}

/// All views, by number.
fn agreement(
    histories: &[History],
    outcome: &Outcome,
) -> Result<BTreeMap<u64, View>, (Oracle, String)> {
    let mut views: BTreeMap<u64, View> = BTreeMap::new();
    for (member, history) in histories.iter().enumerate() {
        for (at, Stay { view, .. }) in history.iter().enumerate() {
            let known = views.entry(view.number).or_insert_with(|| view.clone());
            let first = history[0].view.number;
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
            Seen::Delivered(_) => expect(left.union(failed).is_empty(), Oracle::Told, || {
                format!("{member} is not told of {left:?} and {failed:?}")
            })?,
            Seen::Stopped(_) | Seen::Restored(_) | Seen::Given(_) => {}
        }
    }
    Ok(())
}

/// In the last view are those who are there. Answers with them.
fn liveness(
    seen: &[Vec<Seen>],
    histories: &[History],
    outcome: &Outcome,
) -> Result<NodeSet, (Oracle, String)> {
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
        let last = histories[member].last().map(|stay| stay.view.members);
        expect(last == Some(seats), Oracle::Liveness, || {
            format!("{member} has the members {last:?}, where {seats:?} are there")
        })?;
    }
    expect(!there.is_empty(), Oracle::Liveness, || {
        "nobody is left".to_owned()
    })?;
    Ok(there)
}

/// A member that asks whether all is delivered that it has sent is told the truth.
fn flushed(there: NodeSet, delivered: &[Message], outcome: &Outcome) -> Verdict {
    for member in there.iter() {
        let own = delivered.iter().filter(|message| message.sender == member);
        let sent: u64 = outcome.sent[member].iter().sum();
        let (count, says) = (own.count() as u64, outcome.flushed[member]);
        expect(says == Some(count == sent), Oracle::Told, || {
            format!("{count} of {sent} messages of {member} are delivered: {says:?}")
        })?;
    }
    Ok(())
}
