// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Chooses the wanted peer that makes room for another one when their table is full.
//!
//! A user can want any number of peers that never answer. So a want without a queue pair
//! makes room for another one: at once if its user has at least two wants more than the
//! user of the other one, and else if it was tried for a while and its user has no fewer.
//! So a user without wants gets one within [`TRIED_NS`], however many others have. A pinned
//! want is never replaced, and one that has a queue pair only by a pin. One for the sake of a
//! processor makes room at once, and none makes room for it.

use super::{Want, WantedBy};

/// So long a want is tried before it makes room for another one of a user that has as
/// many: an offer and its answer take a few milliseconds if the peer is there.
const TRIED_NS: u64 = 1_000_000_000;

/// The index of the want that makes room for one of `by`, among all of a full table.
/// `None`: none does.
pub fn makes_room<'a>(
    wants: impl Iterator<Item = &'a Want> + Clone,
    by: WantedBy,
    now_ns: u64,
) -> Option<usize> {
    let held = match by {
        WantedBy::User(user) => count(wants.clone(), user),
        WantedBy::Processor => return None,
        WantedBy::Pin | WantedBy::Pool => 0,
    };
    if let Some(index) = wants
        .clone()
        .position(|want| want.by == WantedBy::Processor)
    {
        return Some(index);
    }
    let ranks = wants.clone().enumerate().filter_map(|(index, want)| {
        let WantedBy::User(owner) = want.by else {
            return None;
        };
        let missing_ns = want.missing_ns(now_ns);
        let owners = count(wants.clone(), owner);
        let may_go = by == WantedBy::Pin
            || missing_ns.is_some_and(|missing_ns| {
                let is_tried = missing_ns >= TRIED_NS;
                let is_own = by == want.by;
                owners >= held.saturating_add(2) || is_tried && (is_own || owners > held)
            });
        // Those without a queue pair first; of the user that has most; for the longest time.
        let rank = (missing_ns.is_some(), owners, missing_ns.unwrap_or(0));
        may_go.then_some((rank, index))
    });
    ranks.max().map(|(_, index)| index)
}

/// Whether a want of `owner` becomes one of `user`, who uses that peer too: it counts for
/// the user with fewer wants, so that it does not go with those of one that has many.
pub fn passes_to<'a>(wants: impl Iterator<Item = &'a Want> + Clone, owner: u32, user: u32) -> bool {
    owner != user && count(wants.clone(), owner) >= count(wants, user).saturating_add(2)
}

/// The wants of a user.
fn count<'a>(wants: impl Iterator<Item = &'a Want>, user: u32) -> usize {
    wants.filter(|want| want.by == WantedBy::User(user)).count()
}

#[cfg(all(test, not(loom)))]
mod tests;
