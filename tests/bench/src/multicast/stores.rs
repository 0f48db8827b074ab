// SPDX-License-Identifier: MIT OR Apache-2.0

//! How senders store, tried before it counts: the better way without multicast is the
//! way of all cases of that length, with and without.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use weft_testkit::place::Kind;

use super::args::Pace;
use super::case::{Case, Experiment, Senders};
use super::payload::Stores;
use super::session;
use crate::stats::median;

/// Shorter messages have few whole lines.
const STREAMED_BYTES: usize = 512;
/// How often each way is tried.
const TRIES: usize = 3;

/// Chooses for all cases over shared memory. Over RDMA a device reads what was stored,
/// from the caches.
pub fn choose(cases: &mut [Case], pace: Pace) -> Result<()> {
    let mut chosen = BTreeMap::new();
    for case in cases.iter_mut() {
        if case.fabric != Kind::Shm.to_string() || case.bytes < STREAMED_BYTES {
            continue;
        }
        let stores = match chosen.get(&case.bytes) {
            Some(&stores) => stores,
            None => *chosen.entry(case.bytes).or_insert(better(case, pace)?),
        };
        case.stores = stores;
    }
    Ok(())
}

/// The way by which one writer and one reader move more messages of this length.
fn better(like: &Case, pace: Pace) -> Result<Stores> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..TRIES {
        for (rates, stores) in rates.iter_mut().zip(Stores::ALL) {
            let case = Case {
                senders: Senders::One,
                bytes: like.bytes,
                own_read: false,
                bound: like.bound,
                stores,
                ..Case::usual(Experiment::Raw, &like.fabric, 2)
            };
            let seen = session::slice(&case, pace)?;
            rates.extend(
                seen.first()
                    .map(|seen| seen.delivered as f64 / seen.seconds),
            );
        }
    }
    let [cached, streamed] = rates.map(|rates| median(&rates));
    let (cached, streamed) = cached.zip(streamed).context("nothing was measured")?;
    Ok(match streamed > cached {
        true => Stores::Streamed,
        false => Stores::Cached,
    })
}
