// SPDX-License-Identifier: MIT OR Apache-2.0

//! One thing to measure: a group, what its members send, and how.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weft::Options;

/// The paper's experiments (spindle §IV), and what idle groups do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// Plain one-sided writes round a ring, the measure of the rest.
    Raw,
    /// One subgroup, by length, senders and members (§IV.A.1, figures 3, 4, 16).
    Single,
    /// One optimisation after the other (figures 5, 11, 12).
    Ladder,
    /// Lengths of the window (§IV.A.2, figure 6).
    Window,
    /// Many subgroups, one of them active (§IV.A.3, figures 8 and 9).
    Subgroups,
    /// Senders that pause after each message (§IV.B.1, figure 10).
    Delayed,
    /// Messages copied into their slots and out of them (§IV.D, figure 15).
    Memcpy,
    /// A message at a time on a group that sleeps.
    Lone,
    /// A group that nobody sends in.
    Idle,
}

impl Experiment {
    /// All of them, in the table's order.
    pub const ALL: [Self; 9] = [
        Self::Raw,
        Self::Single,
        Self::Ladder,
        Self::Window,
        Self::Subgroups,
        Self::Delayed,
        Self::Memcpy,
        Self::Lone,
        Self::Idle,
    ];
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Senders {
    /// Every member.
    All,
    /// The first half of them.
    Half,
    /// The first one.
    One,
}

impl Senders {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::All, Self::Half, Self::One];

    /// How many of so many members.
    pub fn of(self, members: usize) -> usize {
        match self {
            Self::All => members,
            Self::Half => (members / 2).max(1),
            Self::One => 1,
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Half => "half",
            Self::One => "one",
        }
    }
}

/// A pause after each message, waited for busily as in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// How long; none for senders that never send.
    pub us: Option<u64>,
    /// Who pauses.
    pub senders: Senders,
}

impl Delay {
    /// What a sender of this rank does after a message.
    pub fn of(self, rank: usize, members: usize) -> Pause {
        if rank >= self.senders.of(members) {
            return Pause::None;
        }
        self.us
            .map_or(Pause::Silent, |us| Pause::For(Duration::from_micros(us)))
    }
}

/// What a sender does after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The next one.
    None,
    /// Waits.
    For(Duration),
    /// It sends nothing at all.
    Silent,
}

/// A group and its load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// What it belongs to.
    pub experiment: Experiment,
    /// The fabric's name, as of `weft_testkit::place::Kind`.
    pub fabric: String,
    /// Members.
    pub members: usize,
    /// Who sends.
    pub senders: Senders,
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages that a sender may have under way.
    pub window: usize,
    /// Subgroups, of which the first is active.
    pub subgroups: usize,
    /// The rung of the ladder.
    pub opts: String,
    /// Pauses.
    pub delay: Option<Delay>,
    /// Whether messages are copied into and out of their slots.
    pub memcpy: bool,
}

impl Case {
    /// A case of the paper's usual settings: 10 KiB, a window of 100, all
    /// members send, all optimisations.
    pub fn usual(experiment: Experiment, fabric: &str, members: usize) -> Self {
        Self {
            experiment,
            fabric: fabric.to_owned(),
            members,
            senders: Senders::All,
            bytes: 10_240,
            window: 100,
            subgroups: 1,
            opts: "full".to_owned(),
            delay: None,
            memcpy: false,
        }
    }

    /// Which optimisations are on.
    pub fn options(&self) -> Result<Options> {
        let rungs = Options::LADDER.iter();
        let rung = rungs.copied().find(|(name, _)| *name == self.opts);
        Ok(rung.with_context(|| format!("no rung {:?}", self.opts))?.1)
    }

    /// A short word for what is particular to the case.
    pub fn note(&self) -> String {
        let delay = self.delay.map(|delay| {
            let long = delay
                .us
                .map_or("for ever".to_owned(), |us| format!("{us} us"));
            format!("{} late {long}", delay.senders.name())
        });
        let memcpy = self.memcpy.then(|| "memcpy".to_owned());
        delay.or(memcpy).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_of_the_ladder_has_its_options() {
        for (name, options) in Options::LADDER {
            let mut case = Case::usual(Experiment::Ladder, "shm", 2);
            case.opts = name.to_owned();
            assert_eq!(case.options().unwrap(), options);
        }
        let mut case = Case::usual(Experiment::Ladder, "shm", 2);
        case.opts = "+luck".to_owned();
        assert!(case.options().is_err());
    }

    #[test]
    fn those_who_pause_are_the_first_ones() {
        let delay = Delay {
            us: None,
            senders: Senders::Half,
        };
        let pauses: Vec<_> = (0..4).map(|rank| delay.of(rank, 4)).collect();
        assert_eq!(pauses[..2], [Pause::Silent; 2]);
        assert_eq!(pauses[2..], [Pause::None; 2]);
    }
}
