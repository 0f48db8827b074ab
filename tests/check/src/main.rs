// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-check`: does to the loaded module what programs do, good and bad, and
//! says `ok NAME` or `not ok NAME: why` for each promise that it looked at.
//!
//! It runs on the nodes that `scripts/vm run` makes and reaches all of them
//! from one process, because a session may name any node of the host.

mod bad;
mod cgroup;
mod choice;
mod churn;
mod data;
mod failnth;
mod filter;
mod fuzz;
mod hotplug;
mod isolation;
mod killed_peer;
mod killed_worker;
mod lanes;
mod many_connections;
mod message_ways;
mod messenger;
mod meta_lost;
mod moves;
mod packets;
mod peer_down;
mod poll;
mod pool;
mod queue_pairs;
mod raw;
mod rc;
mod shared_queues;
mod signals;
mod traffic;
mod two_sided;
mod windows;
mod world;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weft_testkit::rng;

use weft_testkit::report::Report;

/// Checks the loaded module.
#[derive(Parser)]
struct Args {
    /// Repeats a run; $SEED does it too.
    #[arg(long)]
    seed: Option<u64>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Data arrives, in order, whatever its size and whoever else sends.
    Data,
    /// The same on a network that loses, delays and reorders.
    Lossy,
    /// Messages arrive, in order, at whom they are for; or everybody knows why not.
    TwoSided(two_sided::Args),
    /// A pool that decides by itself (`pool=auto`).
    Pool,
    /// The packets of messages take UDP or a queue pair, whichever is faster.
    MessageWays,
    /// RC queue pairs that processors have each for themselves (`rc_lanes=2`).
    Lanes,
    /// VQPs change between DC and RC while they are busy.
    Moves(moves::Args),
    /// The same promises where one-sided requests go by RC queue pairs.
    Rc(rc::Args),
    /// Memory windows: further keys to a region, which end by themselves.
    MemoryWindows,
    /// Requests that make no sense get their documented errno.
    BadCalls,
    /// Work requests that make no sense get their documented status.
    BadWorkRequests,
    /// No meta server, one that is stopped, killed, restarted.
    MetaLost,
    /// Packets that no node would send, while bystanders work.
    Packets(packets::Args),
    /// What a process has of a node is charged to its cgroup.
    Cgroup,
    /// `poll(2)` and epoll tell of completions.
    Poll,
    /// Threads with rings of their own and with one, whose processes are killed.
    Churn(churn::Args),
    /// Rings that VQPs share, and VQPs that are not connected.
    SharedQueues,
    /// A peer whose link is down.
    PeerDown,
    /// Processes that die between and during calls leave nothing behind.
    KilledWorker,
    /// 10,000 connections that come and go leave nothing behind.
    ManyConnections,
    /// Devices that go while they are used, and come back.
    HotPlug,
    /// A device that goes while a meta server on another machine is asked.
    LookUps { server: std::net::SocketAddr },
    /// A process that was told all of another's keys, handles and addresses.
    Isolation(isolation::Args),
    /// Anything at all, from several processes at once.
    Fuzz(fuzz::Args),
    /// One of four processes is killed again and again.
    KilledPeer(killed_peer::Args),
    /// Each allocation, user copy and page pin on the way of a call fails in turn.
    Failnth(failnth::Args),
    /// A process that the others start.
    #[command(hide = true, subcommand)]
    Worker(Worker),
}

#[derive(Subcommand)]
enum Worker {
    /// Random traffic on part of somebody's region.
    Traffic(traffic::WorkerArgs),
    /// A fixed sequence of calls that stops before one of them.
    Sequence(killed_worker::SequenceArgs),
    /// Says anything at all to the device.
    Fuzz(fuzz::WorkerArgs),
    /// One of four that exchange data.
    Peer(killed_peer::PeerArgs),
    /// One of two with 64 threads that write.
    Churn(churn::WorkerArgs),
    /// Calls a port with many VQPs, and hears the same back.
    Caller(two_sided::CallerArgs),
    /// Sends long messages for ever.
    Sender(two_sided::PartyArgs),
    /// Is bound, and waits to be killed.
    Listener(two_sided::PartyArgs),
    /// Polls for what never comes, until it is killed.
    Poller,
    /// Sends packets of every kind to all nodes, until it is killed.
    Flood,
    /// Uses many peers that are not there, until it is killed.
    Wanter,
    /// Has a region and some others, says where, and waits for its standard input
    /// to end.
    Holder { others: usize },
    /// What users without privileges may not.
    Unprivileged,
    /// Minds its own business, and whether anybody disturbs it.
    Victim(isolation::VictimArgs),
    /// Tries what it is told on the victim.
    Attacker(isolation::AttackerArgs),
    /// One scenario of what a process leaves to another.
    Heirs(isolation::HeirsArgs),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let named = match &args.what {
        What::Fuzz(fuzz) => fuzz.seed,
        _ => None,
    };
    let seed = args.seed.or(named).unwrap_or_else(default_seed);
    if !matches!(args.what, What::Worker(_)) {
        println!("# SEED={seed} repeats this run");
    }
    let mut report = Report::default();
    match args.what {
        What::Worker(worker) => return work(&worker, &mut report),
        What::Data => data::run(&mut report, seed),
        What::Lossy => data::run_lossy(&mut report, seed),
        What::TwoSided(args) => two_sided::run(&mut report, &args, seed),
        What::Rc(args) => rc::run(&mut report, &args, seed),
        What::Pool => pool::run(&mut report, seed),
        What::MessageWays => message_ways::run(&mut report, seed),
        What::Lanes => lanes::run(&mut report, seed),
        What::Moves(args) => moves::run(&mut report, &args, seed),
        What::MemoryWindows => windows::run(&mut report, seed),
        What::BadCalls => bad::run_input(&mut report),
        What::BadWorkRequests => bad::run_requests(&mut report),
        What::MetaLost => meta_lost::run(&mut report),
        What::Packets(args) => packets::run(&mut report, &args, seed),
        What::Cgroup => cgroup::run(&mut report),
        What::Poll => poll::run(&mut report),
        What::Churn(args) => churn::run(&mut report, &args, seed),
        What::SharedQueues => shared_queues::run(&mut report, seed),
        What::PeerDown => peer_down::run(&mut report),
        What::KilledWorker => killed_worker::run(&mut report, seed, 40, world::Transport::Usual),
        What::ManyConnections => many_connections::run(&mut report),
        What::Fuzz(args) => fuzz::run(&mut report, &args, seed),
        What::KilledPeer(args) => killed_peer::run(&mut report, &args, seed),
        What::Failnth(args) => failnth::run(&mut report, &args),
        What::HotPlug => hotplug::run(&mut report),
        What::LookUps { server } => hotplug::run_look_ups(&mut report, server),
        What::Isolation(args) => isolation::run(&mut report, &args, seed),
    }
    report.exit_code()
}

/// What the caller's environment says, or a new one.
fn default_seed() -> u64 {
    let named = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    named.unwrap_or_else(|| now.map_or(1, |now| u64::from(now.subsec_nanos())))
}

fn work(worker: &Worker, report: &mut Report) -> ExitCode {
    let outcome = match worker {
        Worker::Traffic(args) => traffic::work(args),
        Worker::Sequence(args) => killed_worker::sequence(args),
        Worker::Fuzz(args) => fuzz::work(args),
        Worker::Peer(args) => killed_peer::work(args),
        Worker::Churn(args) => churn::work(args),
        Worker::Caller(args) => two_sided::call(args),
        Worker::Sender(args) => two_sided::send_for_ever(args),
        Worker::Listener(args) => two_sided::listen_for_ever(args),
        Worker::Poller => poll::poll_for_ever(),
        Worker::Flood => packets::flood_for_ever(default_seed()),
        Worker::Wanter => rc::want_for_ever(),
        Worker::Holder { others } => world::hold(*others),
        Worker::Victim(args) => isolation::victim(args),
        Worker::Attacker(args) => isolation::attacker(args),
        Worker::Heirs(args) => isolation::heirs(args),
        Worker::Unprivileged => {
            bad::unprivileged(report);
            return report.exit_code();
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-check worker: {error:#}");
            ExitCode::FAILURE
        }
    }
}
