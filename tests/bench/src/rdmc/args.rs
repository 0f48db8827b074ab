// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `rdmc` can be told.

use std::path::PathBuf;

use clap::Args;
use weft::rdmc::MAX_BLOCK_BYTES;
use weft_testkit::place::{Kind, Meeting};

use super::load::{Experiment, Way};
use crate::cli::Common;

/// Most members.
const MAX_MEMBERS: i64 = 16;
/// Longest message: each member has room for one, MPI's as well as Weft's.
const MAX_BYTES: u64 = 1 << 30;

#[derive(Args)]
pub struct RdmcArgs {
    #[command(flatten)]
    pub common: Common,
    /// What groups run over. Shared memory runs anywhere, the others on the nodes that
    /// `scripts/vm` makes.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [Kind::Shm], value_enum)]
    pub fabrics: Vec<Kind>,
    /// What to measure. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub experiments: Vec<Experiment>,
    /// Only these algorithms. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub algorithms: Vec<Way>,
    /// Sizes of groups, the root included, each 2 to 16. [default: 2,4,8,16; quick: 4,8;
    /// over RDMA 2,4 and 4]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(2..=MAX_MEMBERS))]
    pub members: Vec<u16>,
    /// Lengths of messages in bytes, each 1 to 1 GiB. [default: 16 KiB to 256 MiB by
    /// fours; quick: 16 KiB, 1 MiB, 64 MiB; over RDMA 16 KiB to 16 MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=MAX_BYTES))]
    pub sizes: Vec<u64>,
    /// Lengths of blocks in bytes, each 1 to 1 GiB, for all algorithms but auto, which
    /// chooses. [default: 1 MiB, and for the pipeline also 64 KiB, 256 KiB and 4 MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=MAX_BLOCK_BYTES as u64))]
    pub blocks: Vec<u64>,
    /// Samples of each case in a round. [default: by length, 2 to 500;
    /// quick: to 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub samples: Option<u32>,
    /// Times that each case is measured. [default: 5; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Where bcast.openmpi and bcast.mpich are, which `scripts/bench` compiles.
    /// [default: RDMC alone]
    #[arg(long, value_name = "DIR")]
    pub mpi: Option<PathBuf>,
}

impl RdmcArgs {
    /// How often each case is measured.
    pub fn rounds(&self) -> u32 {
        let default = if self.common.quick { 1 } else { 5 };
        self.rounds.unwrap_or(default)
    }

    /// Whether an algorithm is wanted.
    pub fn wants(&self, way: Way) -> bool {
        self.algorithms.is_empty() || self.algorithms.contains(&way)
    }
}

/// What a member's process is told.
#[derive(Args)]
pub struct RdmcMemberArgs {
    /// The load and its variants, in JSON.
    #[arg(long)]
    pub session: String,
    #[arg(long)]
    pub rank: usize,
    #[arg(long)]
    pub meeting: Meeting,
    /// The file that members write times to.
    #[arg(long)]
    pub board: PathBuf,
}
