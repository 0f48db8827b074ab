// SPDX-License-Identifier: MIT OR Apache-2.0

//! One thing to measure: a group, what its members send, and how.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weft::Options;

use super::payload::Stores;

/// The paper's experiments (spindle §IV), and what idle groups do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// The same bytes without multicast, the measure of the rest: as many senders
    /// that write messages in full, as many members that read them in full.
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
    /// What delivery in place saves those who neither write nor read a message:
    /// nothing moves but counters.
    Touch,
    /// A fixed group, and the same in a view that does not change: what it costs that the
    /// view could.
    Views,
    /// A message at a time on a group that sleeps.
    Lone,
    /// A group that nobody sends in.
    Idle,
}

impl Experiment {
    /// All of them, in the table's order.
    pub const ALL: [Self; 11] = [
        Self::Raw,
        Self::Single,
        Self::Ladder,
        Self::Window,
        Self::Subgroups,
        Self::Delayed,
        Self::Memcpy,
        Self::Touch,
        Self::Views,
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

/// What the application does with a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// The sender writes all of them, each member that receives it reads all of them
    /// and compares their sum.
    Full,
    /// Nothing. The message is a slot that was taken and a counter that went on.
    None,
}

impl Touch {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None => "none",
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
    /// What is done with the bytes.
    pub touch: Touch,
    /// Whether a sender reads its own messages too when they are delivered to it.
    pub own_read: bool,
    /// How senders store.
    pub stores: Stores,
    /// Whether each member keeps to a processor of its own.
    pub bound: bool,
    /// Whether a member has one thread that goes from sending to the library's steps, as
    /// raw's goes from writing to reading; else one that sends and one that polls.
    pub stepped: bool,
    /// Whether the group has views.
    pub views: bool,
}

impl Case {
    /// A case of the paper's usual settings: 10 KiB, a window of 100, all
    /// members send and read all messages, all optimisations.
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
            touch: Touch::Full,
            own_read: true,
            stores: Stores::Cached,
            bound: false,
            stepped: false,
            views: false,
        }
    }

    /// Whether the member of this rank sends anything.
    pub fn sends(&self, rank: usize) -> bool {
        let pause = self.delay.map(|delay| delay.of(rank, self.members));
        rank < self.senders.of(self.members) && pause != Some(Pause::Silent)
    }

    /// The same bytes from as many to as many, without multicast.
    pub fn raw(&self) -> Self {
        Self {
            senders: self.senders,
            bytes: self.bytes,
            own_read: self.own_read,
            stores: self.stores,
            bound: self.bound,
            ..Self::usual(Experiment::Raw, &self.fabric, self.members)
        }
    }

    /// Whether it is about a stream of messages, and so about bandwidth.
    pub fn is_stream(&self) -> bool {
        !matches!(self.experiment, Experiment::Lone | Experiment::Idle)
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
        let stepped = self.stepped.then(|| "stepped".to_owned());
        let own = (!self.own_read).then(|| "own unread".to_owned());
        let views = self.views.then(|| "views".to_owned());
        let all = [delay, memcpy, stepped, own, views].into_iter().flatten();
        all.collect::<Vec<_>>().join(", ")
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
