// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle of subgroups' states: what those are given who enter.

use super::judge::{expect, Oracle, Outcome, Verdict};
use super::{Message, Seen};
use crate::multicast::{SubgroupView, View};

/// The content of a subgroup at the member in a seat: all that it was given and has delivered since
/// it has entered.
pub(super) fn content<'a>(
    seen: impl Iterator<Item = &'a Seen>,
    index: usize,
    seat: usize,
) -> Vec<Message> {
    let mut content = Vec::new();
    for seen in seen {
        match seen {
            Seen::Installed(view) if enters(view.subgroups.at(index), seat) => content.clear(),
            Seen::Delivered(message) | Seen::Restored(message) if message.subgroup == index => {
                content.push(*message);
            }
            _ => {}
        }
    }
    content
}

fn enters(subgroup: SubgroupView, seat: usize) -> bool {
    subgroup.members.contains(seat) && !subgroup.before.contains(seat)
}

/// Whether it has to be given the state.
pub(super) fn lacks(subgroup: SubgroupView, seat: usize) -> bool {
    enters(subgroup, seat) && !subgroup.before.is_empty()
}

/// Those who enter a subgroup are given what its lowest member that has the state had when the
/// view began, once, and deliver nothing before. Nobody else is given anything.
pub(super) fn given(
    index: usize,
    has_state: bool,
    seen: &[Vec<Seen>],
    outcome: &Outcome,
) -> Verdict {
    for (member, own) in seen.iter().enumerate() {
        let seat = outcome.seats[member];
        let mut last: Option<&View> = None;
        let mut waits = false;
        for (at, what) in own.iter().enumerate() {
            match what {
                Seen::Installed(view) => {
                    last = Some(view);
                    waits = has_state && lacks(view.subgroups.at(index), seat);
                }
                Seen::Given(of) if *of == index => {
                    expect(waits, Oracle::State, || {
                        format!("{member} is given the state of {index} in {last:?}")
                    })?;
                    waits = false;
                    if let Some(view) = last {
                        is_donors(index, (member, &own[at + 1..]), view, seen, outcome)?;
                    }
                }
                Seen::Delivered(message) if message.subgroup == index => {
                    expect(!waits, Oracle::State, || {
                        format!("{member} delivers {message:?} without the state")
                    })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_donors(
    index: usize,
    (member, behind): (usize, &[Seen]),
    view: &View,
    seen: &[Vec<Seen>],
    outcome: &Outcome,
) -> Verdict {
    let of_state =
        |seen: &&Seen| matches!(seen, Seen::Restored(message) if message.subgroup == index);
    let given = content(behind.iter().take_while(of_state), index, usize::MAX);
    let subgroup = view.subgroups.at(index);
    let donor = subgroup.members.and(subgroup.before).iter().next();
    for (theirs, &seat) in seen.iter().zip(&outcome.seats) {
        let is_view = |seen: &Seen| matches!(seen, Seen::Installed(of) if of.number == view.number);
        let at = theirs
            .iter()
            .position(is_view)
            .filter(|_| donor == Some(seat));
        let expected = at.map(|at| content(theirs[..at].iter(), index, seat));
        expect(
            expected.is_none_or(|expected| expected == given),
            Oracle::State,
            || format!("{member} is given {given:?} by {donor:?} in {view:?}"),
        )?;
    }
    Ok(())
}
