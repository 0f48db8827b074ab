// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a pool that decides by itself does when DC becomes slow, and when it is fast again.
//!
//! A VQP has 16 requests under way. Once the pool has tried both transports:
//!
//! - for so many seconds nothing changes (`equal_s`), and moves to this peer are counted; after
//!   that, `dc_us` and `rc_us` are what a request takes by either as the pool has seen it last;
//! - each packet of DC takes longer, both ways, until requests have gone over RC and the
//!   pool is no longer in doubt (`to_rc_s`); `delayed_dc_us` and `delayed_rc_us` are what it has
//!   seen by then;
//! - meanwhile Weft and verbs, over RC, take turns at as many requests of the same kind,
//!   for a short time each, so that the peer stays busy for the pool; verbs sleeps in one
//!   turn and polls in another, and the better one is what Weft is compared with;
//! - the delay ends, and the pool goes back (`to_dc_s`). It does so if DC is the faster one
//!   here; `before` says what it had chosen at first.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Result};
use weft_shim::Device;

use super::filter::Filter;
use super::flow::{Flow as _, VerbsFlow, WeftFlow};
use super::result::Delay;
use crate::cli::Transport;
use crate::counters::counter;
use crate::nodes::SERVER;
use crate::peer::Peer;
use crate::stats::{median, Times};
use crate::weft::{device, pool_peer};

/// How long conditions are equal.
const EQUAL: Duration = Duration::from_secs(30);
const QUICK_EQUAL: Duration = Duration::from_secs(2);
/// Turns of Weft and verbs, and how long each is.
const TURNS: u32 = 10;
const QUICK_TURNS: u32 = 3;
const TURN: Duration = Duration::from_millis(300);
/// How long the pool may take to decide.
const PATIENCE: Duration = Duration::from_secs(30);
const NAP: Duration = Duration::from_millis(10);

/// What the clients do.
const WEFT: u8 = 0;
const ALL: u8 = 1;
const STOP: u8 = 2;

/// What both have done in a turn: requests a second.
#[derive(Default)]
struct Turns {
    weft: Vec<f64>,
    /// That polls, and that sleeps.
    verbs: [Vec<f64>; 2],
}

impl Turns {
    /// Of Weft, and of the better verbs: requests a second.
    fn medians(&self) -> (Option<f64>, Option<f64>) {
        let verbs = self.verbs.iter().filter_map(|turns| median(turns));
        (median(&self.weft), verbs.reduce(f64::max))
    }
}

/// The clients.
struct Clients {
    weft: WeftFlow,
    verbs: [VerbsFlow; 2],
}

/// Measures all of it.
pub fn measure(bytes: u32, delay_us: u32, quick: bool) -> Result<Delay> {
    let filter = Filter::install()?;
    let peer = Peer::start(SERVER, true, 2 * usize::try_from(bytes)?)?;
    let mut clients = Clients {
        weft: WeftFlow::connect(SERVER, &peer.ready, bytes)?,
        verbs: [
            VerbsFlow::connect(&peer.ready, bytes, false)?,
            VerbsFlow::connect(&peer.ready, bytes, true)?,
        ],
    };
    let whose = AtomicU8::new(WEFT);
    let delay = Duration::from_micros(delay_us.into());
    let measured = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let done = carry(&mut clients, &whose);
            whose.store(STOP, Ordering::Relaxed);
            done
        });
        let row = watch(&filter, delay, &whose, quick);
        whose.store(STOP, Ordering::Relaxed);
        let turns = client
            .join()
            .map_err(|_| anyhow!("the client panicked"))??;
        let (weft, verbs) = turns.medians();
        Ok(row?.with_rates(weft, verbs).of(bytes, delay_us))
    });
    // Before the filter, which drops packets when it goes.
    drop((clients, peer));
    drop(filter);
    measured
}

/// Carries requests until it is stopped: Weft's by themselves, or all in turn.
fn carry(clients: &mut Clients, whose: &AtomicU8) -> Result<Turns> {
    let mut turns = Turns::default();
    let mut times = Times::new();
    loop {
        match whose.load(Ordering::Relaxed) {
            WEFT => drop(clients.weft.run(NAP, &mut times)?),
            ALL => {
                turns.weft.push(clients.weft.run(TURN, &mut times)?);
                for (verbs, found) in clients.verbs.iter_mut().zip(&mut turns.verbs) {
                    found.push(verbs.run(TURN, &mut times)?);
                }
            }
            _ => return Ok(turns),
        }
    }
}

/// Changes the delay and watches what the pool does.
fn watch(filter: &Filter, delay: Duration, whose: &AtomicU8, quick: bool) -> Result<Delay> {
    let (equal, turns) = match quick {
        true => (QUICK_EQUAL, QUICK_TURNS),
        false => (EQUAL, TURNS),
    };
    let lost = counter("rc_lost")?;
    let before = wait_for_trial(whose)?;
    let device = device()?;
    let moved = moves(&device)?;
    thread::sleep(equal);
    let equal_moves = moves(&device)? - moved;
    let equal_costs = pool_peer(&device, SERVER)?;
    let begin = Instant::now();
    filter.delay(delay)?;
    let to_rc = wait_for(Transport::Rc, begin, whose)?;
    let delayed_costs = pool_peer(&device, SERVER)?;
    whose.store(ALL, Ordering::Relaxed);
    thread::sleep(TURN * 3 * turns);
    whose.store(WEFT, Ordering::Relaxed);
    // Until the last turn is over, and the pool has seen Weft alone for a while.
    thread::sleep(TURN * 6);
    let during = chosen()?.map(|(transport, _)| transport);
    let begin = Instant::now();
    filter.delay(Duration::ZERO)?;
    let to_dc = wait_for(Transport::Dc, begin, whose)?;
    let lost = counter("rc_lost")? - lost;
    let row = Delay::new((before, during), (equal, equal_moves), (to_rc, to_dc), lost);
    Ok(row.with_costs(equal_costs, delayed_costs))
}

/// Times that the pool has moved the peer.
fn moves(device: &Device) -> Result<u32> {
    Ok(pool_peer(device, SERVER)?.map_or(0, |peer| peer.moves))
}

/// What the pool has chosen, and whether it is trying that.
fn chosen() -> Result<Option<(Transport, bool)>> {
    let peer = pool_peer(&device()?, SERVER)?;
    Ok(peer.map(|peer| (peer.transport.into(), peer.is_in_trial)))
}

/// Waits until the pool has tried the peer on RC, and answers what it has chosen then.
fn wait_for_trial(whose: &AtomicU8) -> Result<Option<Transport>> {
    let device = device()?;
    let before = moves(&device)?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE && whose.load(Ordering::Relaxed) != STOP {
        let peer = pool_peer(&device, SERVER)?;
        if let Some(peer) = peer.filter(|peer| peer.moves > before && !peer.is_in_trial) {
            return Ok(Some(peer.transport.into()));
        }
        thread::sleep(NAP);
    }
    Ok(None)
}

/// Waits until the pool has chosen a transport, for good, and answers how long that took
/// since `begin`; none if it has not.
fn wait_for(transport: Transport, begin: Instant, whose: &AtomicU8) -> Result<Option<Duration>> {
    while begin.elapsed() < PATIENCE && whose.load(Ordering::Relaxed) != STOP {
        if chosen()? == Some((transport, false)) {
            return Ok(Some(begin.elapsed()));
        }
        thread::sleep(NAP);
    }
    Ok(None)
}
