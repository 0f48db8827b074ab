// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs from one peer while queue pairs to others are made in the background.
//!
//! Both are measured in one run: after each queue pair comes a pause as long as it took.
//! When there is one to each of the other peers, all are given back, and when the pool has
//! closed them they are made again. What is READ meanwhile does not count.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context as _, Result};

use super::result::Latencies;
use super::PoolCase;
use crate::cli::Transport;
use crate::counters::counter;
use crate::nodes::{Node, CLIENT};
use crate::peer::{Peer, KEY_BYTES};
use crate::readers::WeftReader;
use crate::report::progress;
use crate::round_robin::Case as _;
use crate::stats::Times;
use crate::weft::Way;

/// Times that a queue pair is made to each of the other peers.
const ROUNDS: u32 = 8;
const QUICK_ROUNDS: u32 = 1;
/// The shortest pause.
const PAUSE: Duration = Duration::from_millis(5);
/// READs before the first one that counts.
const WARM_UP: Duration = Duration::from_millis(200);
/// The pool keeps a queue pair for some seconds that nobody uses.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);
const CLOSE_NAP: Duration = Duration::from_millis(50);

/// What is done beside the READs.
const QUIET: u8 = 0;
const OPENING: u8 = 1;
/// READs do not count.
pub(super) const OTHER: u8 = u8::MAX - 1;
pub(super) const STOP: u8 = u8::MAX;

/// Measures both.
pub fn measure(peers: &[Node], quick: bool) -> Result<Vec<Latencies>> {
    let (&server, others) = peers.split_first().context("there is no peer")?;
    let rounds = if quick { QUICK_ROUNDS } else { ROUNDS };
    let peer = Peer::start(server, true, KEY_BYTES as usize)?;
    let _way = Way::force(CLIENT, server, Transport::Dc)?;
    let mut reader = WeftReader::connect(server, &peer.ready, Transport::Dc)?;
    let beside = AtomicU8::new(OTHER);
    let (opened, [quiet, opening]) = thread::scope(|scope| -> Result<_> {
        let read = scope.spawn(|| read(&mut reader, &beside));
        let opened = open(others, rounds, &beside);
        beside.store(STOP, Ordering::Relaxed);
        let times = read.join().map_err(|_| anyhow!("the reader panicked"))??;
        Ok((opened?, times))
    })?;
    let row = |beside, times: &Times| {
        Latencies::new(PoolCase::Opening, beside, times).with_opened(opened)
    };
    let (quiet, opening) = (row("quiet", &quiet), row("opening", &opening));
    let opening = opening.over(&quiet);
    Ok(vec![quiet, opening])
}

/// READs until it is stopped, and answers the times beside each of `N` things. What was
/// begun beside one and ended beside another counts as beside the later one.
pub(super) fn read<const N: usize>(
    reader: &mut WeftReader,
    beside: &AtomicU8,
) -> Result<[Times; N]> {
    let mut times = std::array::from_fn(|_| Times::new());
    loop {
        let before = beside.load(Ordering::Relaxed);
        if before == STOP {
            return Ok(times);
        }
        let sample = reader.sample()?;
        let after = beside.load(Ordering::Relaxed);
        if let Some(times) = times.get_mut(usize::from(before.max(after))) {
            times.record(sample.call);
        }
    }
}

/// Makes queue pairs and gives them back, and answers how many.
fn open(others: &[Node], rounds: u32, beside: &AtomicU8) -> Result<u64> {
    let bar = progress("opening".to_owned(), rounds.into());
    let mut opened = 0;
    thread::sleep(WARM_UP);
    let before = counter("rc_queues")?;
    for _ in 0..rounds {
        let mut ways = Vec::new();
        for &node in others {
            beside.store(OPENING, Ordering::Relaxed);
            let begin = Instant::now();
            ways.push(Way::force(CLIENT, node, Transport::Rc)?);
            let took = begin.elapsed();
            beside.store(QUIET, Ordering::Relaxed);
            thread::sleep(took.max(PAUSE));
            opened += 1;
        }
        beside.store(OTHER, Ordering::Relaxed);
        drop(ways);
        wait_until_closed(before)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(opened)
}

/// Waits until there are no more queue pairs than so many.
pub(super) fn wait_until_closed(left: u64) -> Result<()> {
    let deadline = Instant::now() + CLOSE_PATIENCE;
    while counter("rc_queues")? > left {
        ensure!(
            Instant::now() < deadline,
            "queue pairs are not closed within {CLOSE_PATIENCE:?}"
        );
        thread::sleep(CLOSE_NAP);
    }
    Ok(())
}
