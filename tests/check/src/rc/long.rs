// SPDX-License-Identifier: MIT OR Apache-2.0

//! Long requests and short ones on the same queue pair.

use std::time::Duration;

use anyhow::{ensure, Result};
use weft_core::rc::BUDGET_BYTES;
use weft_shim::{SendWr, Wc};

use crate::world::{counter, Link};

/// Bytes of a long request.
const LONG: usize = 64 << 20;
/// The words that are looked at: one in so many bytes.
const STEP: usize = 64 << 10;
/// Bytes that may arrive while a short request is on its way: those that were posted
/// before it, and those that move until this process has a CPU again.
const BOUND: usize = 8 * BUDGET_BYTES as usize;
/// One request in so many may be late: where others use the machine, this process may have
/// to wait long for a CPU.
const LATE_ONE_IN: usize = 8;
const PATIENCE: Duration = Duration::from_secs(120);

/// How much of what is written in order has arrived, give or take a step.
fn arrived(long: &Link, value: u64) -> Result<usize> {
    let (mut from, mut to) = (0, LONG / STEP);
    while from < to {
        let middle = (from + to) / 2;
        if long.remote.load_u64(middle * STEP)? == value + middle as u64 {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    Ok(from * STEP)
}

fn fill(long: &Link, value: u64) -> Result<()> {
    for index in 0..LONG / STEP {
        long.local.store_u64(index * STEP, value + index as u64)?;
        let last = (index + 1) * STEP - 8;
        long.local.store_u64(last, !(value + index as u64))?;
    }
    Ok(())
}

/// Short READs pass between the pieces of long WRITEs, of which every byte arrives
/// and each ends once.
pub fn short_ones_pass() -> Result<()> {
    let chains = counter("rc_chains")?;
    let (mut long, mut short) = (Link::new(1, LONG, 4)?, Link::new(1, 4096, 4)?);
    short.works(1)?;
    let (mut passed, mut late) = (0, Vec::new());
    for round in 1..=3 {
        let value = round << 32;
        fill(&long, value)?;
        let (
            mut wcs,
            Link {
                vqp, local, remote, ..
            },
        ) = ([Wc::default(); 4], &mut long);
        let wr = SendWr::write(local.slice(0..LONG)?, remote.remote()).signaled();
        let before = counter("rc_chains")?;
        let posted = vqp.enter(&[wr], &mut wcs, 0, Duration::ZERO)?;
        ensure!(counter("rc_chains")? > before, "it goes by DC");
        ensure!(posted.submitted == 1, "it was not taken");
        loop {
            let before = arrived(&long, value)?;
            let Link {
                vqp, local, remote, ..
            } = &mut short;
            vqp.read(local.slice(0..8)?, remote.remote())?;
            let after = arrived(&long, value)?;
            if after - before > BOUND {
                late.push(after - before);
            }
            if after == LONG {
                break;
            }
            passed += 1;
        }
        let ended = long.vqp.enter(&[], &mut wcs, 1, PATIENCE)?.completed;
        ensure!(
            posted.completed + ended == 1,
            "it ended otherwise than once"
        );
        ensure!(wcs[0].result()? as usize == LONG, "its length is wrong");
        for index in 0..LONG / STEP {
            let last = (index + 1) * STEP - 8;
            let is_there = long.remote.load_u64(last)? == !(value + index as u64);
            ensure!(is_there, "the bytes at {last} did not arrive");
        }
    }
    println!("# {passed} short READs went between the pieces of 3 WRITEs, {late:?} bytes late");
    ensure!(
        late.len() * LATE_ONE_IN <= passed,
        "of {passed} short READs these waited for so many bytes: {late:?}"
    );
    ensure!(passed >= 3, "the long requests were over too soon");
    ensure!(counter("rc_chains")? > chains, "they went by DC");
    Ok(())
}
