// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is simulated: one or more multicasts among the members of a group, and
//! what connects them.

use anyhow::{ensure, Result};
use clap::ValueEnum;
use serde::Serialize;
use weft::rdmc::schedule::{Algorithm, Between};

/// Most blocks that are received in a simulation, by all members together.
const MAX_TRANSFERS: u64 = 1 << 25;
/// Most bytes. At the slowest that can be set, they take less than 2^63 ns one
/// after the other.
const MAX_TOTAL_BYTES: u64 = 1 << 46;

/// Multicasts that begin at once, all members of the group receiving all of
/// them.
#[derive(Clone, Debug)]
pub struct Case {
    pub algorithm: Algorithm,
    /// The roots included.
    pub members: usize,
    /// At least as many: those that members are placed on.
    pub nodes: usize,
    /// Members that are roots, of one multicast each (rdmc §5.2.2, figure 10).
    pub senders: usize,
    /// Bytes of each message.
    pub bytes: u64,
    /// Bytes of each block; the last one may be shorter.
    pub block_bytes: u64,
    pub placement: Placement,
    pub links: Links,
    /// Of placement and jitter.
    pub seed: u64,
}

/// Where ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Rank k of the multicast from node s is node s + k, modulo the group, so
    /// that consecutive ranks share a rack.
    Ordered,
    /// Anywhere, as where nothing is known of the topology (rdmc §4.3.1).
    Random,
}

/// What connects the members. A node has one link, which is full duplex.
#[derive(Clone, Debug)]
pub struct Links {
    /// 10^9 bits per second, in each direction.
    pub gbps: f64,
    /// What a block takes of the link's time beyond its bits, in microseconds.
    pub block_us: f64,
    /// Microseconds from the last bit of a block, or from a `ready_for_block`,
    /// until the other side's software acts on it.
    pub latency_us: f64,
    /// Mean of the delay of each block by its sender's software, in
    /// microseconds; it is distributed exponentially.
    pub jitter_us: f64,
    /// Receives that a member has posted for a message at most.
    pub posted: usize,
    /// Without racks, all nodes are on one switch that is never congested.
    pub racks: Option<Racks>,
    pub slow: Slow,
}

/// Racks of consecutive nodes.
#[derive(Clone, Copy, Debug)]
pub struct Racks {
    /// Nodes of a rack; the last rack may have fewer.
    pub nodes: usize,
    /// What the nodes of a full rack can send, over what the rack can.
    pub oversubscription: f64,
}

/// What is slower than the rest.
#[derive(Clone, Debug, Default)]
pub struct Slow {
    /// Nodes whose links are `factor` times as slow.
    pub nodes: Vec<usize>,
    /// Pairs of nodes between which blocks travel so slowly, in both
    /// directions, though the links of both are fast.
    pub pairs: Vec<(usize, usize)>,
    /// At least 1.
    pub factor: f64,
}

impl Case {
    /// Blocks of a message.
    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(self.block_bytes)
    }

    /// Refuses what would take too long, or means nothing.
    pub fn check(&self) -> Result<()> {
        let messages = self.senders as u64 * (self.members as u64).saturating_sub(1);
        let transfers = messages.saturating_mul(self.blocks());
        ensure!(
            transfers <= MAX_TRANSFERS,
            "{transfers} blocks are too many to simulate, the most is {MAX_TRANSFERS}: \
             choose larger blocks, shorter messages or smaller groups"
        );
        let bytes = messages.saturating_mul(self.bytes);
        ensure!(
            bytes <= MAX_TOTAL_BYTES,
            "{bytes} bytes are too many to simulate, the most is {MAX_TOTAL_BYTES}: \
             choose shorter messages or smaller groups"
        );
        ensure!(
            self.senders <= self.members,
            "{} members cannot have {} senders",
            self.members,
            self.senders
        );
        ensure!(
            self.members <= self.nodes,
            "{} members do not fit on {} nodes",
            self.members,
            self.nodes
        );
        let pairs = self.links.slow.pairs.iter().flat_map(|&(a, b)| [a, b]);
        for node in self.links.slow.nodes.iter().copied().chain(pairs) {
            ensure!(
                node < self.nodes,
                "node {node} is to be slow, but nodes are 0 to {}",
                self.nodes - 1
            );
        }
        Ok(())
    }
}

/// An algorithm's name in results.
pub fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Sequential => "sequential",
        Algorithm::Chain => "chain",
        Algorithm::BinomialTree => "binomial_tree",
        Algorithm::BinomialPipeline => "binomial_pipeline",
        Algorithm::Hybrid {
            between: Between::Chain,
            ..
        } => "hybrid_chain",
        Algorithm::Hybrid {
            between: Between::BinomialPipeline,
            ..
        } => "hybrid_pipeline",
    }
}
