// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `multicast` can be told.

use std::time::Duration;

use clap::Args;
use weft_testkit::place::{Kind, Meeting};

use super::case::Experiment;
use crate::cli::Common;

/// Most members: a meeting has as many ports.
const MAX_MEMBERS: i64 = 16;

#[derive(Args)]
pub struct MulticastArgs {
    #[command(flatten)]
    pub common: Common,
    /// What groups run over. Shared memory runs anywhere, the others on the
    /// nodes that `scripts/vm` makes.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [Kind::Shm], value_enum)]
    pub fabrics: Vec<Kind>,
    /// What to measure. [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub experiments: Vec<Experiment>,
    /// Only groups of these sizes, each 1 to 16.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=MAX_MEMBERS))]
    pub members: Vec<u16>,
    /// Only messages of these lengths.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// Only these rungs of the ladder, by their names.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub opts: Vec<String>,
    /// Milliseconds for which a case is measured each time. [default: 200; quick: 50;
    /// over RDMA 1000 and 500]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub slice_ms: Option<u32>,
    /// Times that each case is measured. [default: 5; quick: 2, over RDMA 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

impl MulticastArgs {
    /// How often each case is measured.
    pub fn rounds(&self) -> u32 {
        let default = match (self.common.quick, self.on_shm()) {
            (false, _) => 5,
            (true, true) => 2,
            (true, false) => 1,
        };
        self.rounds.unwrap_or(default)
    }

    /// For how long a case is measured each time.
    pub fn pace(&self) -> Pace {
        // An emulated device takes tens of milliseconds for a window.
        let default = match (self.common.quick, self.on_shm()) {
            (false, true) => 200,
            (true, true) => 50,
            (false, false) => 1000,
            (true, false) => 500,
        };
        let slice_ms = u64::from(self.slice_ms.unwrap_or(default));
        Pace {
            warm_up_ms: slice_ms / 3,
            slice_ms,
            lone_messages: if self.common.quick { 40 } else { 100 },
        }
    }

    fn on_shm(&self) -> bool {
        self.fabrics.contains(&Kind::Shm)
    }
}

/// How long members measure.
#[derive(Clone, Copy, Debug, Args)]
pub struct Pace {
    /// Sending before the measurement begins.
    #[arg(long)]
    pub warm_up_ms: u64,
    /// The measurement.
    #[arg(long)]
    pub slice_ms: u64,
    /// Messages on an idle group.
    #[arg(long)]
    pub lone_messages: u32,
}

impl Pace {
    /// The measurement.
    pub fn slice(&self) -> Duration {
        Duration::from_millis(self.slice_ms)
    }
}

/// What a member's process is told.
#[derive(Args)]
pub struct MemberArgs {
    /// The case, in JSON.
    #[arg(long)]
    pub case: String,
    #[arg(long)]
    pub rank: usize,
    #[arg(long)]
    pub meeting: Meeting,
    #[command(flatten)]
    pub pace: Pace,
}
