// SPDX-License-Identifier: GPL-2.0 OR MIT

//! When objects that are used in turn, and of which more are made when all are in use, are
//! too many.

/// Turns in which there were enough until the first one goes.
const PATIENCE: u32 = 2;
/// Most such turns, after some had to be made again.
const LONGEST: u32 = 64;

/// Whether one may go. A turn is that all had their turn once. If those that went have to be
/// made again, more turns are waited for the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surplus {
    quiet_turns: u32,
    patience: u32,
    has_shrunk: bool,
}

impl Surplus {
    /// Nothing is known yet.
    pub const NEW: Self = Self {
        quiet_turns: 0,
        patience: PATIENCE,
        has_shrunk: false,
    };

    /// One more had to be made.
    pub fn grew(&mut self) {
        self.quiet_turns = 0;
        if core::mem::take(&mut self.has_shrunk) {
            self.patience = (2 * self.patience).min(LONGEST);
        }
    }

    /// All had their turn.
    pub fn turned(&mut self) {
        self.quiet_turns = self.quiet_turns.saturating_add(1);
    }

    /// Whether one may go.
    #[must_use]
    pub fn may_shrink(&self) -> bool {
        self.quiet_turns >= self.patience
    }

    /// One has gone. `is_least`: no more are to go, so that what comes next is another crowd.
    pub fn shrank(&mut self, is_least: bool) {
        self.has_shrunk = !is_least;
        if is_least {
            self.patience = PATIENCE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet_turns_until_one_may_go(surplus: &mut Surplus) -> u32 {
        let mut turns = 0;
        while !surplus.may_shrink() {
            surplus.turned();
            turns += 1;
        }
        turns
    }

    #[test]
    fn one_goes_when_there_were_enough_for_some_turns() {
        let mut surplus = Surplus::NEW;
        surplus.turned();
        surplus.grew();
        assert_eq!(quiet_turns_until_one_may_go(&mut surplus), PATIENCE);
        surplus.shrank(false);
        assert!(surplus.may_shrink(), "and the next one at once");
    }

    #[test]
    fn what_is_made_again_stays_longer_each_time_up_to_a_bound() {
        let mut surplus = Surplus::NEW;
        let mut expected = PATIENCE;
        for _ in 0..10 {
            assert_eq!(quiet_turns_until_one_may_go(&mut surplus), expected);
            surplus.shrank(false);
            surplus.grew();
            surplus.grew();
            expected = (2 * expected).min(LONGEST);
        }
        assert_eq!(expected, LONGEST);
    }

    #[test]
    fn another_crowd_is_no_reason_to_wait_longer() {
        let mut surplus = Surplus::NEW;
        for _ in 0..3 {
            assert_eq!(quiet_turns_until_one_may_go(&mut surplus), PATIENCE);
            surplus.shrank(false);
            surplus.shrank(true);
            surplus.grew();
        }
    }
}
