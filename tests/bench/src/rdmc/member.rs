// SPDX-License-Identifier: MIT OR Apache-2.0

//! One member, in a process of its own. It measures all variants of a load, one
//! after the other, with the same node and so the same memory.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, Context as _, Result};
use clap::ValueEnum as _;
use nix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};
use weft::predicates::IdlePolicy;
use weft::rdmc::{Node, DEFAULT_BLOCK_BYTES};
use weft_testkit::place::{Kind, Placed};

use super::args::RdmcMemberArgs;
use super::board::Board;
use super::load::{Load, Variant, Wait};
use super::side::{lock, Pool, Side};
use crate::child::{say_ready, wait_for_end, wait_for_word};

/// How long members wait for one another, and for what was sent.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Buffers are whole pages.
const PAGE: usize = 4096;

/// What members of one group of processes do, one variant after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub load: Load,
    /// How the members wait, in all variants.
    pub wait: Wait,
    pub variants: Vec<Variant>,
}

/// What a member saw of one variant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Samples, from the first send to the last completion. Told by the first
    /// member.
    pub seconds: Vec<f64>,
    /// Processor time of the member in all of them.
    pub cpu_seconds: f64,
    /// How often its polling thread has gone to sleep.
    pub sleeps: u64,
}

/// Is a member.
pub fn run(args: &RdmcMemberArgs) -> Result<()> {
    let session: Session = serde_json::from_str(&args.session).context("no session")?;
    let load = &session.load;
    let fabric = Kind::from_str(&load.fabric, false).map_err(|error| anyhow!(error))?;
    let node = Placed::new(fabric, args.rank, load.members, args.meeting);
    let mut builder = Node::builder(node)
        .memory(buffers(load, args.rank) * load.bytes.next_multiple_of(PAGE) + landings(&session))
        .groups(2 * load.members)
        .timeout(PATIENCE);
    if session.wait == Wait::Interrupt {
        builder = builder.idle(IdlePolicy {
            spins: 0,
            quiesce_after: Duration::ZERO,
            contended_after: Duration::ZERO,
            ..IdlePolicy::default()
        });
    }
    let node = builder.join()?;
    let rows = session.variants.len() * load.rows();
    let board = Arc::new(Board::open(&args.board, args.rank, load.members, rows)?);
    let pool = Pool::default();
    for _ in 0..buffers(load, args.rank) {
        let mut buffer = node.allocate(load.bytes)?;
        buffer.fill(u8::MAX);
        lock(&pool).push(buffer);
    }
    say_ready(&"met")?;
    wait_for_word()?;
    let (node, board, pool) = (&node, &board, &pool);
    let variants = session.variants.iter().enumerate();
    let measure = |(nth, variant)| {
        let side = Side {
            node,
            board,
            pool,
            load,
            nth,
        };
        side.measure(variant)
    };
    let seen = variants.map(measure).collect::<Result<Vec<_>>>()?;
    say_ready(&seen)?;
    wait_for_end()
}

/// Processor time of this process so far.
pub fn cpu_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(time.into())
}

/// Bytes that groups keep over RDMA, a block each. The groups of the variant before may
/// still be there.
fn landings(session: &Session) -> usize {
    let blocks = session
        .variants
        .iter()
        .map(|variant| variant.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES));
    2 * session.load.senders * blocks.max().unwrap_or(0).next_multiple_of(PAGE)
}

/// A buffer for each message that a member may have at a time.
fn buffers(load: &Load, rank: usize) -> usize {
    match rank < load.senders {
        true => load.messages + load.senders - 1,
        false => load.senders,
    }
}
