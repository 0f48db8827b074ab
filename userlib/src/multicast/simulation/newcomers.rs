// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle of newcomers: their state, and who they are.

use super::judge::{self, expect, Oracle, Outcome, Verdict};
use super::views::History;
use super::Seen;
use crate::multicast::View;
use std::collections::BTreeMap;

/// What all members have seen, each from the group's beginning on: in place of the messages
/// before its first view a newcomer has its state, which has to be those messages. If it is
/// given no state they are put there.
pub(super) fn whole(
    seen: &[Vec<Seen>],
    has_state: bool,
) -> Result<Vec<Vec<Seen>>, (Oracle, String)> {
    let mut whole = seen.to_vec();
    // Those before a newcomer know all, because they are whole by then.
    let mut order: Vec<usize> = (0..whole.len()).collect();
    order.sort_by_key(|&member| first_view(&whole[member]).map(|view| view.number));
    for member in order {
        let Some(view) = first_view(&whole[member]).filter(|view| view.number > 1) else {
            continue;
        };
        let mut others = whole.iter().filter_map(|other| before(other, view));
        // If all others have crashed before they could say what they have seen, it may be
        // anything that fits.
        let Some(expected) = others.next() else {
            continue;
        };
        let own = &mut whole[member];
        let state = own.iter().filter(|seen| matches!(seen, Seen::Restored(..)));
        let state: Vec<Seen> = state.copied().collect();
        if has_state {
            let comes_first = own.starts_with(&state);
            expect(state == expected && comes_first, Oracle::Newcomer, || {
                format!("{member} is given {state:?} in {view:?}, not {expected:?}")
            })?;
        } else {
            own.splice(0..0, expected);
        }
    }
    Ok(whole)
}

fn first_view(seen: &[Seen]) -> Option<View> {
    seen.iter().find_map(|seen| match seen {
        Seen::Installed(view) => Some(*view),
        _ => None,
    })
}

/// As state, what somebody had delivered when it installed a view that was not its first.
fn before(seen: &[Seen], view: View) -> Option<Vec<Seen>> {
    let is_view =
        |seen: &Seen| matches!(seen, Seen::Installed(other) if other.number == view.number);
    let at = seen.iter().position(is_view)?;
    first_view(&seen[..at])?;
    // Of a newcomer without state the messages before its own first view are not known.
    let knows_all = seen.first().is_some_and(|seen| match seen {
        Seen::Installed(first) => first.number == 1,
        _ => true,
    });
    let messages = judge::delivered(&seen[..at]).into_iter();
    let state = messages.map(|(sender, number, sequence)| Seen::Restored(sender, number, sequence));
    knows_all.then(|| state.collect())
}

/// Whoever installs a view is the one who has the seat in it.
pub(super) fn identity(
    histories: &[History],
    views: &BTreeMap<u64, View>,
    outcome: &Outcome,
) -> Verdict {
    for (member, history) in histories.iter().enumerate() {
        let (seat, own) = (outcome.seats[member], outcome.incarnations[member]);
        for (view, _) in history {
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
