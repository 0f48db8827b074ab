// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `datapath` can be told.

use clap::{Args, ValueEnum};

use crate::cli::{Common, Transport, MAX_CLIENTS};

/// Most bytes that a request moves.
pub const MAX_REQUEST_BYTES: u32 = 4 << 20;

#[derive(Args)]
pub struct DatapathArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = Contender::ALL, value_enum)]
    pub systems: Vec<Contender>,
    /// What Weft's requests travel over. Verbs' travel over rc.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [Transport::Dc, Transport::Rc], value_enum)]
    pub transports: Vec<Transport>,
    /// Operations.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Operation::ALL, value_enum)]
    pub ops: Vec<Operation>,
    /// How requests follow one another.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [Mode::Sync, Mode::Async], value_enum)]
    pub modes: Vec<Mode>,
    /// Bytes of a request, each 1 to 4194304; atomic operations have 8.
    /// [default: 8,64,512,4096,65536,1048576,4194304; quick: 8,4096, of messages 8]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REQUEST_BYTES)))]
    pub sizes: Vec<u32>,
    /// Numbers of client threads, each 1 to 64. Cases in which they would have too
    /// much on the way at a time are left out. [default: 1,8,64; quick: 1,8]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: Vec<u16>,
    /// Samples of each client and case: requests in `sync`, batches in `async`.
    /// [default: what fits into a second, and enough; quick: into less]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub samples: Option<u32>,
    /// Microseconds that a client computes between two samples, as one does that
    /// uses what it has read; 0 is a tight loop. They count for no time and no rate.
    /// [default: sync: 0,100, in a quick run 0 but for one client's READs of 8 bytes; async: 0]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub pause_us: Vec<u32>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contender {
    /// User-space verbs: our client.
    Verbs,
    /// Weft.
    Weft,
    /// The tools of the package perftest, as a witness to verbs. One client.
    Perftest,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Verbs, Self::Weft, Self::Perftest];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Weft => "weft",
            Self::Perftest => "perftest",
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Copies the peer's bytes here.
    Read,
    /// Copies bytes to the peer.
    Write,
    /// Gives bytes to a peer that receives and posts its buffers again.
    Send,
    /// Compares a word of the peer's and swaps it.
    Cas,
    /// Adds to a word of the peer's.
    Faa,
    /// WRITEs to and fro, each end waiting for the other's bytes. One client.
    #[value(name = "write_pp")]
    WritePp,
    /// Messages to and fro. One client.
    #[value(name = "send_pp")]
    SendPp,
}

impl Operation {
    /// All of them, in the table's order.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Send,
        Self::Cas,
        Self::Faa,
        Self::WritePp,
        Self::SendPp,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Send => "send",
            Self::Cas => "cas",
            Self::Faa => "faa",
            Self::WritePp => "write_pp",
            Self::SendPp => "send_pp",
        }
    }

    /// Whether it is of one word.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::Cas | Self::Faa)
    }

    /// Whether it is a ping-pong, whose latency is half of a round trip.
    pub fn is_ping_pong(self) -> bool {
        matches!(self, Self::WritePp | Self::SendPp)
    }
}

/// How requests follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// One at a time: post it, wait for it.
    Sync,
    /// Batches of 32, posted together; the last of a batch is signalled and
    /// waited for.
    Async,
}

impl Mode {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn sizes_have_a_limit() {
        let parse = |list| Cli::try_parse_from(["weft-bench", "datapath", "--sizes", list]);
        assert!(parse("1,4194304").is_ok());
        assert!(parse("0").is_err());
        assert!(parse("4194305").is_err());
    }
}
