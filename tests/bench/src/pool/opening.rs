// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs from one peer while queue pairs to others are made in the background.
//!
//! Both are measured in one run: after each queue pair comes a pause as long as it took.
//! When there is one to each of the other peers, all are given back, and before they are made
//! again the pool has to have closed them. What is READ meanwhile does not count.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context as _, Result};

use super::result::Latencies;
use super::{PoolArgs, PoolCase};
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

/// Things that are done beside the READs: nothing, in all measurements the first of the things that
/// are told apart; and here, queue pairs are made.
pub(super) const QUIET: u8 = 0;
const OPENING: u8 = 1;
/// How [`Beside`] keeps [`Now::Other`] and [`Now::Over`].
const OTHER: u8 = u8::MAX - 1;
const OVER: u8 = u8::MAX;

/// Measures both, where there are so many queue pairs without the benchmark's.
pub fn measure(peers: &[Node], args: &PoolArgs, queues: u64) -> Result<Vec<Latencies>> {
    let (&server, others) = peers.split_first().context("there is no peer")?;
    let others = args.opened(others);
    let rounds = if args.common.quick {
        QUICK_ROUNDS
    } else {
        ROUNDS
    };
    let peer = Peer::start(server, true, KEY_BYTES as usize)?;
    let _way = Way::force(CLIENT, server, Transport::Dc)?;
    let mut reader = WeftReader::connect(server, &peer.ready, Transport::Dc)?;
    let beside = Beside::new();
    let (opened, [quiet, opening]) = thread::scope(|scope| -> Result<_> {
        let read = scope.spawn(|| read(&mut reader, &beside));
        let opened = open(others, rounds, queues, &beside);
        beside.set(Now::Over);
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

/// The thing that is done beside the READs at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// One of the things that are told apart, by its number.
    Thing(u8),
    /// Something else, beside which READs do not count.
    Other,
    /// Nothing any more: there are to be no more READs.
    Over,
}

/// The same as one thread tells it others.
pub(super) struct Beside(AtomicU8);

impl Beside {
    /// READs do not count yet.
    pub(super) fn new() -> Self {
        let beside = Self(AtomicU8::new(0));
        beside.set(Now::Other);
        beside
    }

    pub(super) fn set(&self, now: Now) {
        let number = match now {
            Now::Thing(thing) => thing,
            Now::Other => OTHER,
            Now::Over => OVER,
        };
        self.0.store(number, Ordering::Relaxed);
    }

    fn now(&self) -> Now {
        match self.0.load(Ordering::Relaxed) {
            OTHER => Now::Other,
            OVER => Now::Over,
            thing => Now::Thing(thing),
        }
    }
}

/// As which thing a READ counts that began and ended beside these. One that has seen something
/// and quiet counts beside the former; one that was under way when a thing ended counts beside
/// that thing.
fn counts_as(began: Now, ended: Now) -> Option<u8> {
    match (began, ended) {
        (Now::Thing(thing), Now::Thing(QUIET) | Now::Other | Now::Over) => Some(thing),
        (Now::Thing(_), Now::Thing(thing)) => Some(thing),
        (Now::Other | Now::Over, _) => None,
    }
}

/// READs until it is stopped, and answers the times beside each of `N` things.
pub(super) fn read<const N: usize>(reader: &mut WeftReader, beside: &Beside) -> Result<[Times; N]> {
    let mut times = std::array::from_fn(|_| Times::new());
    loop {
        let began = beside.now();
        if began == Now::Over {
            return Ok(times);
        }
        let sample = reader.sample()?;
        let thing = counts_as(began, beside.now());
        if let Some(times) = thing.and_then(|thing| times.get_mut(usize::from(thing))) {
            times.record(sample.call);
        }
    }
}

/// Makes queue pairs and gives them back, and answers how many.
fn open(others: &[Node], rounds: u32, queues: u64, beside: &Beside) -> Result<u64> {
    let bar = progress("opening".to_owned(), rounds.into());
    let mut opened = 0;
    thread::sleep(WARM_UP);
    for _ in 0..rounds {
        // A single round needs no queue pair to be away that another measurement has left.
        if rounds > 1 {
            wait_until_closed(queues)?;
        }
        let mut ways = Vec::new();
        for &node in others {
            beside.set(Now::Thing(OPENING));
            let begin = Instant::now();
            ways.push(Way::force(CLIENT, node, Transport::Rc)?);
            let took = begin.elapsed();
            beside.set(Now::Thing(QUIET));
            thread::sleep(took.max(PAUSE));
            opened += 1;
        }
        beside.set(Now::Other);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_under_way_when_a_thing_ends_counts_beside_it() {
        let (quiet, opening) = (Now::Thing(QUIET), Now::Thing(OPENING));
        for (began, ended, thing) in [
            (quiet, quiet, Some(QUIET)),
            (quiet, opening, Some(OPENING)),
            (opening, quiet, Some(OPENING)),
            (opening, Now::Other, Some(OPENING)),
            (opening, Now::Over, Some(OPENING)),
            (Now::Other, opening, None),
            (Now::Other, Now::Other, None),
        ] {
            assert_eq!(counts_as(began, ended), thing, "{began:?}, {ended:?}");
        }
    }

    #[test]
    fn what_is_set_is_read() {
        let beside = Beside::new();
        assert_eq!(beside.now(), Now::Other);
        for now in [Now::Thing(QUIET), Now::Thing(3), Now::Over] {
            beside.set(now);
            assert_eq!(beside.now(), now);
        }
    }
}
