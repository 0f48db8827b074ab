// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is multicast, and by what.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weft::rdmc::schedule::Algorithm;
use weft::rdmc::{Choice, GroupConfig};

/// The paper's experiments (rdmc §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// One message at a time, by algorithm, length, members and block (figures
    /// 4, 6 and 8).
    Single,
    /// Messages of one byte, one behind the other (figure 7).
    Rate,
    /// Several members send at once, each in a group of its own (figure 10).
    Overlap,
    /// Polling before sleeping beside sleeping at once (figure 11).
    Wait,
}

impl Experiment {
    /// All of them, in the table's order.
    pub const ALL: [Self; 4] = [Self::Single, Self::Rate, Self::Overlap, Self::Wait];
}

/// A load, the same for all that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// What groups run over, as `weft_testkit::place::Kind` names it.
    pub fabric: String,
    /// What it belongs to.
    pub experiment: Experiment,
    /// Members, the root included.
    pub members: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Members that send at once, each as the root of a group of all.
    pub senders: usize,
    /// Messages of each sender in a sample, one behind the other.
    pub messages: usize,
    /// Samples that do not count.
    pub warm_up: usize,
    /// Samples of a round.
    pub samples: usize,
}

impl Load {
    /// Bytes of a sample, as one receiver counts them.
    pub fn total_bytes(&self) -> usize {
        self.bytes * self.total_messages()
    }

    /// Samples, those that do not count included.
    pub fn rows(&self) -> usize {
        self.warm_up + self.samples
    }

    /// Messages of a sample.
    pub fn total_messages(&self) -> usize {
        self.messages * self.senders
    }
}

/// How blocks travel.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Way {
    /// What the library chooses.
    Auto,
    /// The root sends all of it to one after the other.
    Sequential,
    /// Each member relays to the next one.
    Chain,
    /// Who has all of it sends it to somebody who has nothing.
    BinomialTree,
    /// Blocks spread along the edges of a hypercube.
    BinomialPipeline,
}

impl Way {
    /// All of them, in the table's order.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::Sequential,
        Self::Chain,
        Self::BinomialTree,
        Self::BinomialPipeline,
    ];

    /// What a group is told.
    fn choice(self) -> Choice {
        match self {
            Self::Auto => Choice::Auto,
            Self::Sequential => Choice::Always(Algorithm::Sequential),
            Self::Chain => Choice::Always(Algorithm::Chain),
            Self::BinomialTree => Choice::Always(Algorithm::BinomialTree),
            Self::BinomialPipeline => Choice::Always(Algorithm::BinomialPipeline),
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sequential => "sequential",
            Self::Chain => "chain",
            Self::BinomialTree => "binomial_tree",
            Self::BinomialPipeline => "binomial_pipeline",
        }
    }
}

/// What polling threads do that find nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// As the library has it: they poll for 50 ms before they sleep (rdmc §4.2).
    Hybrid,
    /// They sleep at once.
    Interrupt,
}

/// How RDMC is told to carry a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// The algorithm.
    pub way: Way,
    /// Bytes of a block; none for what the library has by itself.
    pub block_bytes: Option<usize>,
    /// How members wait.
    pub wait: Wait,
}

impl Variant {
    /// What a group is told whose members these are.
    pub fn config(&self, number: u32, members: impl IntoIterator<Item = usize>) -> GroupConfig {
        let config = GroupConfig::new(number, members).algorithm(self.way.choice());
        match self.block_bytes {
            Some(bytes) => config.block_bytes(bytes),
            None => config,
        }
    }
}
