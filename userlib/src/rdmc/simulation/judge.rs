// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracles: what has to be true of all memory and of all groups.

use super::app::State;
use super::plan::{Fault, GroupPlan, Plan};
use crate::rdmc::EndReason;

/// What has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Oracle {
    /// Nodes that are left alone come to rest, and all their groups end.
    Rest,
    /// A group's messages come in order, once, and as they were sent.
    Whole,
    /// Memory that was given to a group comes back, once, with an event.
    Back,
    /// Nobody reads or writes memory that has come back or is free.
    Trespass,
    /// A member of a group that ends otherwise than by its own doing gets one event of it,
    /// and then none but those that bring memory back.
    Told,
    /// Where nothing goes wrong all members get all messages. So do those of a group that are all
    /// there in the end, if others have only come and gone.
    Complete,
}

pub(super) type Verdict = Result<(), (Oracle, String)>;

fn expect(holds: bool, oracle: Oracle, what: impl FnOnce() -> String) -> Verdict {
    match holds {
        true => Ok(()),
        false => Err((oracle, what())),
    }
}

/// What holds at any time.
pub(super) fn now(node: usize, state: &State) -> Verdict {
    if let Some((oracle, what)) = &state.wrong {
        return Err((*oracle, format!("node {node}: {what}")));
    }
    let lost = state.lost();
    expect(lost.is_none(), Oracle::Back, || {
        format!("node {node}: memory (place, group) {lost:?} is free, and came with no event")
    })
}

/// What holds at a node in the end, if it is still there. Memory may stay with the node of
/// which a peer has lost sight and which cannot cut it off.
pub(super) fn at_rest(plan: &Plan, node: usize, state: &State, may_keep: bool) -> Verdict {
    expect(may_keep || state.given.is_empty(), Oracle::Back, || {
        format!(
            "node {node}: memory (place, group) {:?} never came back",
            state.given
        )
    })?;
    for (&group, log) in &state.logs {
        let most = usize::from(log.was_open);
        let least = usize::from(log.was_open && !log.is_own);
        expect(
            (least..=most).contains(&log.ended.len()),
            Oracle::Told,
            || format!("node {node}, group {group}: {log:?}"),
        )?;
        expect(log.is_over || log.is_own, Oracle::Rest, || {
            format!("node {node}: group {group} has not ended: {log:?}")
        })?;
        if plan.faults.is_empty() {
            let sent = plan.group(group).sizes.len() as u64;
            let is_left = log.ended.iter().all(|end| end.reason == EndReason::Left);
            expect(log.done == sent && is_left, Oracle::Complete, || {
                format!("node {node}, group {group}, {sent} messages: {log:?}")
            })?;
        }
    }
    Ok(())
}

/// Judges a node's part in a group at rest: all members of the group are there, and nodes only
/// come and go.
pub(super) fn is_complete(node: usize, state: &State, group: &GroupPlan) -> Verdict {
    let number = group.config.number;
    let log = state.logs.get(&number);
    let is_complete = log.is_some_and(|log| {
        let is_left = log.ended.iter().all(|end| end.reason == EndReason::Left);
        log.done == group.sizes.len() as u64 && is_left
    });
    expect(is_complete, Oracle::Complete, || {
        format!("node {node}, group {number}, all of whom are there: {log:?}")
    })
}

/// Whether nothing goes wrong but that nodes go, and others come.
pub(super) fn only_come_and_go(plan: &Plan) -> bool {
    let mut faults = plan.faults.iter();
    faults.all(|(_, fault)| {
        matches!(
            fault,
            Fault::Crash { .. } | Fault::Close { .. } | Fault::Return { .. }
        )
    })
}

/// Whether a node may have peers that it takes for dead wrongly and cannot cut off.
pub(super) fn may_keep(plan: &Plan, node: usize) -> bool {
    let is_blind = |fault: &Fault| match *fault {
        Fault::Suspect { node: by, .. } => by == node,
        Fault::Break { a, b } => a == node || b == node,
        _ => false,
    };
    !plan.severs && plan.faults.iter().any(|(_, fault)| is_blind(fault))
}
