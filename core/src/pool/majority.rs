// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tells who uses a peer most, in one word, by the majority vote of Boyer and Moore ("MJRTY, a
//! fast majority vote algorithm", 1991): a vote for the one who leads adds to the lead, one
//! for somebody else takes from it.

/// A lead does not grow beyond this, so that who has stopped is forgotten after as many votes
/// of others.
const MAX_LEAD: u32 = 64;

/// The user with most votes. If one has more than half of them, it is that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Majority {
    user: u32,
    lead: u32,
}

impl Majority {
    /// No votes.
    pub const NONE: Self = Self { user: 0, lead: 0 };

    /// The leader; `None`: there is none.
    #[must_use]
    pub fn user(self) -> Option<u32> {
        (self.lead != 0).then_some(self.user)
    }

    /// Adds a vote for this user.
    #[must_use]
    pub fn vote(self, user: u32) -> Self {
        self.merge(Self { user, lead: 1 })
    }

    /// Adds the votes that were given elsewhere.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        if other.lead == 0 {
            return self;
        }
        if self.lead == 0 || self.user == other.user {
            let lead = self.lead.saturating_add(other.lead).min(MAX_LEAD);
            return Self { lead, ..other };
        }
        let (leader, rest) = match self.lead >= other.lead {
            true => (self, other),
            false => (other, self),
        };
        let lead = leader.lead.saturating_sub(rest.lead);
        Self { lead, ..leader }
    }

    /// As one word; 0: no votes.
    pub(super) fn to_word(self) -> u64 {
        match self.lead {
            0 => 0,
            lead => (u64::from(lead) << 32) | u64::from(self.user),
        }
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self {
            user: word as u32,
            lead: (word >> 32) as u32,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn votes(users: &[u32]) -> Majority {
        users
            .iter()
            .fold(Majority::NONE, |sum, user| sum.vote(*user))
    }

    #[test]
    fn who_has_stopped_is_forgotten() {
        let long = votes(&[7; 1000]);
        assert_eq!(long.user(), Some(7));
        let others = (0..=MAX_LEAD).fold(long, |sum, _| sum.vote(8));
        assert_eq!(others.user(), Some(8));
        assert_eq!(Majority::NONE.user(), None);
    }

    proptest! {
        #[test]
        fn a_majority_of_two_thirds_leads(others in prop::collection::vec(0u32..4, 1..20), seed: u64) {
            let mut users = vec![9; 2 * others.len() + 1];
            users.extend(others);
            fastrand::Rng::with_seed(seed).shuffle(&mut users);
            prop_assert_eq!(votes(&users).user(), Some(9));
        }

        #[test]
        fn a_word_holds_all(user: u32, lead in 1..=MAX_LEAD) {
            let majority = Majority { user, lead };
            prop_assert_eq!(Majority::from_word(majority.to_word()), majority);
        }
    }
}
