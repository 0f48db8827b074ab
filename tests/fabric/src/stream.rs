// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member of a group that sends at random and hashes what it delivers. What it
//! sends follows from a seed, so that every member knows what all send.

use std::fmt;
use std::sync::mpsc::{channel, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use weft::fabric::Fabric;
use weft::predicates::IdlePolicy;
use weft::{Group, Subgroup, SubgroupHandle};
use weft_testkit::place::{Kind, Meeting, Placed};

use crate::process::patience;
use crate::rng::Rng;

/// Longest message.
const LONGEST: usize = 256;
/// Longest pause of a sender, in microseconds.
const LONGEST_PAUSE_US: usize = 300;
/// Most pauses of a sender: on a busy machine each may take milliseconds.
const PAUSES: usize = 500;
/// The subgroup.
const NAME: &str = "stream";

/// A run: who sends how much, drawn from a seed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Run {
    #[arg(long)]
    pub kind: Kind,
    #[arg(long)]
    pub members: usize,
    /// Messages of all members together, at most.
    #[arg(long)]
    pub messages: u64,
    #[arg(long)]
    pub seed: u64,
    /// Polling threads sleep as soon as they find nothing, so that each message
    /// rests on wake-ups.
    #[arg(long)]
    pub sleepy: bool,
}

/// What a member has delivered: how many messages, and a number that depends on
/// each of them and on their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Messages.
    pub count: u64,
    hash: u64,
}

impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages, hash {:016x}", self.count, self.hash)
    }
}

impl Delivered {
    const NOTHING: Self = Self {
        count: 0,
        hash: 0xcbf2_9ce4_8422_2325,
    };

    fn add(&mut self, sender: usize, bytes: &[u8]) {
        self.count += 1;
        let mut mix = |word: u64| {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(17);
        };
        mix(sender as u64);
        mix(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(u64::from_le_bytes(word));
        }
    }
}

/// One sender's part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Messages that it sends; none of a silent one.
    pub messages: u64,
    /// One in so many comes after a pause.
    every: usize,
}

impl Run {
    /// What each member sends: one in four nothing, the others different
    /// shares at different rates. Somebody always sends.
    pub fn parts(&self) -> Vec<Part> {
        let mut rng = Rng::new(self.seed);
        let share = (self.messages / self.members as u64).max(1);
        let mut draw = |_| {
            let messages = match rng.below(4) {
                0 => 0,
                thirds => share * thirds as u64 / 3,
            };
            let pauses = 1 + rng.below(PAUSES) as u64;
            Part {
                messages,
                every: usize::try_from(messages / pauses).unwrap_or(0).max(1),
            }
        };
        let mut parts: Vec<Part> = (0..self.members).map(&mut draw).collect();
        parts[0].messages = parts[0].messages.max(share);
        parts
    }

    fn idle(&self) -> IdlePolicy {
        match self.sleepy {
            true => IdlePolicy {
                spins: 0,
                quiesce_after: Duration::ZERO,
                contended_after: Duration::ZERO,
                ..IdlePolicy::default()
            },
            false => IdlePolicy::default(),
        }
    }

    /// Is the member of this rank, until all has been delivered.
    pub fn play(&self, rank: usize, meeting: Meeting) -> Result<Delivered> {
        let parts = self.parts();
        let node = Placed::new(self.kind, rank, self.members, meeting);
        let expected = parts.iter().map(|part| part.messages).sum();
        let (group, messages, delivered) = join(node, expected, self.idle())?;
        let part = parts[rank];
        let mut rng = Rng::new(self.seed ^ (rank as u64 + 1).rotate_left(32));
        let sender = group.sender(messages)?;
        for _ in 0..part.messages {
            if rng.below(part.every) == 0 {
                thread::sleep(Duration::from_micros(rng.below(LONGEST_PAUSE_US) as u64));
            }
            let len = rng.below(LONGEST + 1);
            sender.send_bytes(&rng.bytes(len))?;
        }
        let delivered = delivered.recv_timeout(patience());
        let delivered = delivered.context("not all messages were delivered in time")?;
        group.leave(patience())?;
        Ok(delivered)
    }
}

/// Joins, and tells when so many messages were delivered.
fn join(
    node: Placed,
    expected: u64,
    idle: IdlePolicy,
) -> Result<(Group, SubgroupHandle, Receiver<Delivered>)> {
    ensure!(expected > 0, "nobody sends");
    let nodes = node.nodes();
    let (done, delivered) = channel();
    let mut so_far = Delivered::NOTHING;
    let subgroup = Subgroup::new(NAME)
        .senders(0..nodes)
        .window(64)
        .max_message(LONGEST);
    let mut builder = Group::builder(node);
    let messages = builder.subgroup(subgroup);
    let group = builder
        .timeout(patience())
        .idle(idle)
        .deliver(messages, move |batch| {
            for message in batch {
                so_far.add(message.sender, message.bytes);
                if so_far.count == expected {
                    // Who waits may have given up.
                    let _ = done.send(so_far);
                }
            }
        })
        .join()?;
    Ok((group, messages, delivered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_its_seed() {
        let run = |seed| Run {
            kind: Kind::Shm,
            members: 16,
            messages: 16_000,
            seed,
            sleepy: false,
        };
        assert_eq!(run(3).parts(), run(3).parts());
        assert_ne!(run(3).parts(), run(4).parts());
        let silent = |part: &Part| part.messages == 0;
        assert!((0..9).any(|seed| run(seed).parts().iter().any(silent)));
        assert!((0..9).all(|seed| run(seed).parts().iter().any(|part| !silent(part))));
    }

    #[test]
    fn the_hash_knows_order_sender_and_length() {
        let hash = |messages: &[(usize, &[u8])]| {
            let mut delivered = Delivered::NOTHING;
            for (sender, bytes) in messages {
                delivered.add(*sender, bytes);
            }
            delivered
        };
        let (a, b): (&[u8], &[u8]) = (b"aaaaaaaaa", b"b");
        assert_ne!(hash(&[(0, a), (1, b)]), hash(&[(1, b), (0, a)]));
        assert_ne!(hash(&[(0, a)]), hash(&[(1, a)]));
        assert_ne!(hash(&[(0, b"a")]), hash(&[(0, b"a\0")]));
    }
}
