// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `rdmc-sim` can be told.

use clap::{Args, ValueEnum};
use weft::rdmc::schedule::{Algorithm, Between};

use super::case::Placement;
use crate::cli::Common;

/// Most nodes. (A schedule has as many members at most.)
const MAX_NODES: i64 = 1024;
/// Longest message and longest block, in bytes. With the other limits here no
/// sum of nanoseconds comes near 2^64.
const MAX_BYTES: i64 = 1 << 36;
const MAX_BLOCK_BYTES: i64 = 1 << 30;

/// A paper's figure, or what the paper claims without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Latency of the algorithms by size of the group (rdmc figure 4, Fractus).
    #[value(name = "4")]
    Latency,
    /// Time for 256 MB to many nodes (rdmc figure 8, Sierra).
    #[value(name = "8")]
    Scalability,
    /// Bandwidth of multicasts at once (rdmc figure 10, Fractus and Apt).
    #[value(name = "10")]
    Overlap,
    /// Two levels between and within racks (rdmc §4.3.1).
    Hybrid,
    /// One slow node, or one slow pair of nodes (rdmc §5.3).
    Slow,
    /// Delays by the nodes' software (rdmc §5.3).
    Jitter,
}

#[derive(Args)]
pub struct RdmcSimArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to reproduce. [default: all]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        conflicts_with = "members"
    )]
    pub figure: Vec<Figure>,
    /// Seed of what is random: places, slow nodes, jitter.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub links: LinkArgs,
    #[command(flatten)]
    pub own: OwnArgs,
}

/// What connects nodes.
#[derive(Args)]
pub struct LinkArgs {
    /// Speed of a node's link in 10^9 bits per second, 1 to 10000. [default: that
    /// of the figure's cluster; 40 with --members]
    #[arg(long, value_name = "N", value_parser = between(1.0, 1e4))]
    pub link_gbps: Option<f64>,
    /// Bytes of a block, at most 2^30. (rdmc table 1: 1 MB)
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=MAX_BLOCK_BYTES as u64))]
    pub block_bytes: u64,
    /// Microseconds that a block takes of a link's time beyond its bits. (rdmc
    /// table 1: 449 us of waiting in a message of 256 blocks)
    #[arg(long, value_name = "US", default_value_t = 1.75, value_parser = between(0.0, 1e6))]
    pub block_us: f64,
    /// Microseconds from the last bit of a block, or from a ready_for_block, until
    /// the other side's software acts on it. (rdmc gives no figure)
    #[arg(long, value_name = "US", default_value_t = 1.0, value_parser = between(0.0, 1e6))]
    pub latency_us: f64,
    /// Mean of the random delay of each block by its sender's software, in
    /// microseconds, distributed exponentially.
    #[arg(long, value_name = "US", default_value_t = 0.0, value_parser = between(0.0, 1e6))]
    pub jitter_us: f64,
    /// Receives that a member has posted for a message at most, 1 to 64. (rdmc
    /// §4.2: a few.) With more than one, senders that are ahead may take a
    /// target's link from those that are due.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub posted: u16,
}

/// A simulation of one's own.
#[derive(Args)]
pub struct OwnArgs {
    /// Simulate groups of these sizes instead of figures, each 2 to 1024, the
    /// sender included.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(2..=MAX_NODES))]
    pub members: Vec<u16>,
    /// With these algorithms.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, requires = "members",
          default_values_t = [AlgorithmName::Sequential, AlgorithmName::Chain,
                              AlgorithmName::BinomialTree, AlgorithmName::BinomialPipeline])]
    pub algorithms: Vec<AlgorithmName>,
    /// Bytes of a message, at most 2^36. (rdmc figure 8: 256 MB)
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, requires = "members",
          value_parser = clap::value_parser!(u64).range(1..=MAX_BYTES as u64))]
    pub bytes: u64,
    /// Members that send a message each, all at once, to all others.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "members",
          value_parser = clap::value_parser!(u16).range(1..=MAX_NODES))]
    pub senders: u16,
    /// Nodes to place members on. [default: as many as members]
    #[arg(long, value_name = "N", requires = "members",
          value_parser = clap::value_parser!(u16).range(2..=MAX_NODES))]
    pub nodes: Option<u16>,
    /// Where members are.
    #[arg(long, value_enum, default_value_t = Placement::Ordered, requires = "members")]
    pub placement: Placement,
    /// Nodes of a rack; the hybrids need it. [default: no racks]
    #[arg(long, value_name = "N", requires = "members",
          value_parser = clap::value_parser!(u16).range(1..=MAX_NODES))]
    pub rack_nodes: Option<u16>,
    /// How many times less a rack's link carries than its nodes' links together,
    /// 0.01 to 100.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "rack_nodes",
          value_parser = between(0.01, 100.0))]
    pub oversubscription: f64,
    /// Nodes whose links are slow.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "members",
          value_parser = clap::value_parser!(u16).range(0..MAX_NODES))]
    pub slow_nodes: Vec<u16>,
    /// Percentage of the nodes, chosen at random, whose links are slow too.
    #[arg(long, value_name = "P", default_value_t = 0.0, requires = "members",
          value_parser = between(0.0, 100.0))]
    pub slow_percent: f64,
    /// Pairs of nodes between which blocks are slow, such as 2-3.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "members",
          value_parser = pair)]
    pub slow_pairs: Vec<(usize, usize)>,
    /// How many times as long what is slow takes, 1 to 100.
    #[arg(long, value_name = "X", default_value_t = 2.0, requires = "members",
          value_parser = between(1.0, 100.0))]
    pub slow_factor: f64,
}

/// Algorithms by their names in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum AlgorithmName {
    Sequential,
    Chain,
    BinomialTree,
    BinomialPipeline,
    HybridChain,
    HybridPipeline,
}

impl AlgorithmName {
    /// The algorithm, for racks of so many members.
    pub fn algorithm(self, rack_members: Option<usize>) -> anyhow::Result<Algorithm> {
        let hybrid = |between| {
            let rack_members = rack_members
                .ok_or_else(|| anyhow::anyhow!("a hybrid needs racks: choose --rack-nodes"))?;
            Ok(Algorithm::Hybrid {
                between,
                rack_members,
            })
        };
        match self {
            Self::Sequential => Ok(Algorithm::Sequential),
            Self::Chain => Ok(Algorithm::Chain),
            Self::BinomialTree => Ok(Algorithm::BinomialTree),
            Self::BinomialPipeline => Ok(Algorithm::BinomialPipeline),
            Self::HybridChain => hybrid(Between::Chain),
            Self::HybridPipeline => hybrid(Between::BinomialPipeline),
        }
    }
}

/// Reads a number within limits.
fn between(low: f64, high: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number: f64 = text.parse().map_err(|_| "that is no number".to_owned())?;
        match (low..=high).contains(&number) {
            true => Ok(number),
            false => Err(format!("{number} is not in {low}..={high}")),
        }
    }
}

/// Reads two different nodes, such as 2-3.
fn pair(text: &str) -> Result<(usize, usize), String> {
    let nodes = text.split_once('-').map(|(a, b)| (a.parse(), b.parse()));
    match nodes {
        Some((Ok(a), Ok(b))) if a != b => Ok((a, b)),
        _ => Err("a pair is two nodes, such as 2-3".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::Parser;

    fn accepts(arguments: &str) -> bool {
        let all = ["weft-bench", "rdmc-sim"].into_iter();
        Cli::try_parse_from(all.chain(arguments.split_whitespace())).is_ok()
    }

    #[test]
    fn what_can_be_set_has_limits() {
        assert!(accepts("--figure 4,8,10 --link-gbps 56"));
        assert!(accepts("--members 2,1024 --slow-pairs 0-1 --slow-factor 3"));
        for wrong in [
            "--figure 5",
            "--link-gbps 0",
            "--link-gbps nan",
            "--block-bytes 0",
            "--jitter-us -1",
            "--posted 65",
            "--members 1",
            "--members 1025",
            "--members 4 --slow-pairs 1-1",
            "--members 4 --slow-factor 0.5",
            "--members 4 --oversubscription 2",
        ] {
            assert!(!accepts(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_figure_is_not_mixed_with_a_case_of_ones_own() {
        assert!(!accepts("--figure 4 --members 4"));
        assert!(!accepts("--slow-nodes 1"));
    }
}
