// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle of newcomers: their state, and who they are.

use super::judge::{self, expect, Oracle, Outcome, Verdict};
use super::views::{History, Stay};
use super::{Plan, Seen};
use crate::fabric::NodeSet;
use crate::multicast::View;
use std::collections::BTreeMap;

/// A newcomer's state is all that the lowest other member of its first view had when that
/// view began, and it comes before all else.
pub(super) fn state(seen: &[Vec<Seen>], outcome: &Outcome, plan: &Plan) -> Verdict {
    for (member, own) in seen.iter().enumerate() {
        let state = own.iter().filter(|seen| is_of_group(seen, plan));
        let state: Vec<Seen> = state.cloned().collect();
        let is_given = plan.state && member >= plan.members;
        expect(is_given || state.is_empty(), Oracle::Newcomer, || {
            format!("{member} is given {state:?}, and is no newcomer")
        })?;
        // It may have crashed before it heard of a view.
        let Some(view) = first_view(own).filter(|_| is_given) else {
            continue;
        };
        expect(own.starts_with(&state), Oracle::Newcomer, || {
            format!("{member} is given {state:?} in the middle")
        })?;
        // At most one member lacks the state.
        let own_seat = NodeSet::EMPTY.with(outcome.seats[member]);
        let donor = view.members.minus(own_seat).iter().next();
        let mut donors = seen.iter().zip(&outcome.seats);
        let expected = donors
            .find_map(|(seen, &seat)| before(seen, view, plan).filter(|_| donor == Some(seat)));
        // If that one has crashed before it could say what it has, it may be anything.
        expect(
            expected.is_none_or(|expected| state == expected),
            Oracle::Newcomer,
            || format!("{member} is given {state:?} by {donor:?} in {view:?}"),
        )?;
    }
    Ok(())
}

/// Whether it is part of the group's state: subgroups with states of their own are not.
fn is_of_group(seen: &Seen, plan: &Plan) -> bool {
    matches!(seen, Seen::Restored(message) if !plan.subgroups[message.subgroup].state)
}

fn first_view(seen: &[Seen]) -> Option<&View> {
    seen.iter().find_map(|seen| match seen {
        Seen::Installed(view) => Some(view),
        _ => None,
    })
}

/// As state, what somebody had when it installed a view.
fn before(seen: &[Seen], view: &View, plan: &Plan) -> Option<Vec<Seen>> {
    let is_view =
        |seen: &Seen| matches!(seen, Seen::Installed(other) if other.number == view.number);
    let at = seen.iter().position(is_view)?;
    let messages = judge::delivered(&seen[..at]).into_iter();
    let state = messages.map(Seen::Restored);
    Some(state.filter(|seen| is_of_group(seen, plan)).collect())
}

/// Whoever installs a view is the one who has the seat in it.
pub(super) fn identity(
    histories: &[History],
    views: &BTreeMap<u64, View>,
    outcome: &Outcome,
) -> Verdict {
    for (member, history) in histories.iter().enumerate() {
        let (seat, own) = (outcome.seats[member], outcome.incarnations[member]);
        for Stay { view, .. } in history {
            let joined = views
                .range(..=view.number)
                .filter_map(|(_, view)| view.joined);
            let last = joined.rev().find(|new| new.seat == seat);
            // Founders are numbered by their seats.
            let holder = last.map_or(seat as u64 + 1, |new| new.incarnation);
            expect(holder == own, Oracle::Newcomer, || {
                format!("{member} is {own} in seat {seat}, which {holder} has in {view:?}")
            })?;
        }
    }
    Ok(())
}
