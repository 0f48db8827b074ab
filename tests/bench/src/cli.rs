// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::datapath::{BouncerArgs, DatapathArgs};
use crate::factors::FactorsArgs;
use crate::fanout::FanoutArgs;
use crate::memory::{HolderArgs, MemoryArgs};
use crate::mesh::MeshWorkerArgs;
use crate::messages::StationArgs;
use crate::mr::MrArgs;
use crate::multicast::{MemberArgs, MulticastArgs};
use crate::pool::PoolArgs;
use crate::rdmc::{RdmcArgs, RdmcMemberArgs};
use crate::rdmc_sim::RdmcSimArgs;
use crate::tail::TailArgs;
use crate::two_sided::TwoSidedArgs;
use crate::views::{ViewsArgs, ViewsMemberArgs};
use crate::worker::WorkerArgs;

/// Most client threads, and most workers of a mesh.
pub const MAX_CLIENTS: u16 = 64;

/// Measures how fast workers get RDMA connections, and what they carry.
///
/// Runs on the nodes that `scripts/vm` makes: node 0 is device rxe0 at 10.77.0.1
/// in this network namespace, node k is rxek at 10.77.0.(k+1) in namespace nk.
/// Clients are on node 0, the peer is on node 1. Multicast over shared memory and
/// RDMC, and simulations, run anywhere.
#[derive(Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// What it takes until a connection has carried its first 8-byte WRITE.
    Connect(ConnectArgs),
    /// Workers that connect to one another, until each connection has carried a WRITE.
    Mesh(MeshArgs),
    /// Workers that start, from fork and exec to their first WRITE.
    Worker(WorkerArgs),
    /// What connections take of the kernel's memory and of processes'.
    Memory(MemoryArgs),
    /// Requests of each kind over connections that are there.
    Datapath(DatapathArgs),
    /// Messages and their answers, by length, with and without copying.
    TwoSided(TwoSidedArgs),
    /// Latencies of many clients that READ from few servers.
    Tail(TailArgs),
    /// Registration of memory, and READs by keys that are not known yet.
    Mr(MrArgs),
    /// Where the time of an 8-byte READ goes.
    Factors(FactorsArgs),
    /// WRITEs to many peers in one system call, beside as many to one.
    Fanout(FanoutArgs),
    /// The hybrid pool: connections by DC, by RC and by verbs, and VQPs that are moved.
    Pool(PoolArgs),
    /// Look-ups at the meta server: READs, time, and the server's CPU.
    Meta(MetaArgs),
    /// Atomic multicast: the experiments of the Spindle paper.
    Multicast(MulticastArgs),
    /// Groups whose members leave and are killed under load, and which others join: how long
    /// they wait.
    Views(ViewsArgs),
    /// Large messages to many nodes, beside MPI_Bcast: the experiments of the RDMC
    /// paper.
    Rdmc(RdmcArgs),
    /// RDMC's schedules on simulated networks: the experiments of the RDMC paper
    /// on more nodes than there are here.
    RdmcSim(RdmcSimArgs),
    /// The other side of the benchmarks, which they start by themselves.
    #[command(hide = true)]
    Peer(PeerArgs),
    /// The other side of messages.
    #[command(hide = true)]
    Station(StationArgs),
    /// The other side of a ping-pong of WRITEs.
    #[command(hide = true)]
    Bouncer(BouncerArgs),
    /// One member of a multicast group.
    #[command(hide = true)]
    Member(MemberArgs),
    /// One member of RDMC groups.
    #[command(hide = true)]
    RdmcMember(RdmcMemberArgs),
    /// One member of a group with views.
    #[command(hide = true)]
    ViewsMember(ViewsMemberArgs),
    /// Holds connections.
    #[command(hide = true)]
    Holder(HolderArgs),
    /// Workers of a mesh.
    #[command(hide = true)]
    MeshWorker(MeshWorkerArgs),
}

/// What every benchmark takes.
#[derive(Args)]
pub struct Common {
    /// Also write results to FILE, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Fewer samples: ends within a minute.
    #[arg(long)]
    pub quick: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum System {
    /// User-space verbs, with no module.
    Verbs,
    /// Weft.
    Weft,
}

impl System {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Weft => "weft",
        }
    }
}

/// A system that `connect` measures, or the single operations that it compares them with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConnectSystem {
    /// User-space verbs, with no module.
    Verbs,
    /// Weft.
    Weft,
    /// Single operations: an empty ioctl, a READ.
    Ref,
}

impl ConnectSystem {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => System::Verbs.name(),
            Self::Weft => System::Weft.name(),
            Self::Ref => "ref",
        }
    }
}

#[derive(Args)]
pub struct ConnectArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [ConnectSystem::Verbs, ConnectSystem::Weft, ConnectSystem::Ref], value_enum)]
    pub systems: Vec<ConnectSystem>,
    /// Numbers of client threads, each 1 to 64. [default: 1,4,16,64; quick: 1]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: Vec<u16>,
    /// Samples of a fast case (microseconds each); slow cases (milliseconds)
    /// take a tenth. [default: 5000; quick: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub samples: Option<u32>,
    /// Peers, on the nodes behind the clients', 2 to 32.
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(2..=32))]
    pub peers: u16,
    /// How verbs peers exchange addresses. [default: the faster, by measurement]
    #[arg(long, value_enum)]
    pub exchange: Option<ExchangeKind>,
}

/// What requests travel over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Dynamically connected: Weft's own, in software.
    Dc,
    /// A reliable connected queue pair of the RDMA device.
    Rc,
}

impl Transport {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dc => "dc",
            Self::Rc => "rc",
        }
    }
}

/// How two programs that use verbs tell each other their queue pairs' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExchangeKind {
    /// Over a TCP connection made for it.
    Tcp,
    /// By rdma_cm.
    RdmaCm,
}

impl ExchangeKind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::RdmaCm => "rdma_cm",
        }
    }
}

#[derive(Args)]
pub struct MeshArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [System::Verbs, System::Weft], value_enum)]
    pub systems: Vec<System>,
    /// Numbers of workers, each 2 to 64. [default: 2,4,8,16,32,64; quick: 2,8,32]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_CLIENTS)))]
    pub workers: Vec<u16>,
    /// Times that each mesh is made. [default: 11; quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Workers as threads of one process, as a process each, or one after the other.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum,
          default_values_t = [MeshProcesses::Threads, MeshProcesses::Processes])]
    pub run_as: Vec<MeshProcesses>,
    /// Nodes that the workers are spread over.
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
}

/// What the workers of a mesh are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeshProcesses {
    /// Threads of one process.
    Threads,
    /// A process each.
    Processes,
}

#[derive(Args)]
pub struct MetaArgs {
    #[command(flatten)]
    pub common: Common,
    /// Process id of the weft-meta whose CPU time is measured. [default: the one
    /// that runs here]
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// Records to publish for the run, and to withdraw afterwards.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub records: u32,
    /// Look-ups. [default: 50000; quick: 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub lookups: Option<u32>,
}

#[derive(Args)]
pub struct PeerArgs {
    /// The node to be on.
    #[arg(long)]
    pub node: u16,
    /// Serve Weft's clients too.
    #[arg(long)]
    pub weft: bool,
    /// Bytes of memory for each of verbs and Weft.
    #[arg(long)]
    pub bytes: usize,
    /// More regions for Weft.
    #[arg(long, default_value_t = 0)]
    pub keys: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn client_counts_have_a_limit() {
        let parse = |list| Cli::try_parse_from(["weft-bench", "connect", "--clients", list]);
        assert!(parse("1,64").is_ok());
        assert!(parse("0").is_err());
        assert!(parse("65").is_err());
    }
}
