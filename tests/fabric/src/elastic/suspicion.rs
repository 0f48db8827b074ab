// SPDX-License-Identifier: MIT OR Apache-2.0

//! The member that an elastic member has put out when it is told to, though that one runs: the one
//! with the highest seat of its view. The lower seat of two is believed, so the higher one goes.

use anyhow::{Context as _, Result};
use weft::Group;

/// A member that is to go.
pub struct Suspicion {
    seat: usize,
    incarnation: Option<u64>,
}

impl Suspicion {
    /// The member with the highest seat, unless that is this one. Says whether there is one.
    pub fn of_highest(group: &Group) -> Result<Option<Self>> {
        let view = group.view().context("it is in no view")?;
        let highest = view.members.iter().last();
        let highest = highest.filter(|&seat| seat != group.rank());
        println!("SUSPECTS {}", u8::from(highest.is_some()));
        Ok(highest.map(|seat| Self {
            seat,
            incarnation: view.incarnation(seat),
        }))
    }

    /// Asks for it, and says whether it is still there. To be called until it is not: the view in
    /// which it was asked for may be over before anybody sees to it.
    pub fn insist(&self, group: &Group) -> Result<bool> {
        let view = group.view().context("it is in no view")?;
        let is_there = view.members.contains(self.seat);
        let is_there = is_there && view.incarnation(self.seat) == self.incarnation;
        if is_there {
            group.suspect(self.seat, view.number)?;
        }
        Ok(is_there)
    }
}
