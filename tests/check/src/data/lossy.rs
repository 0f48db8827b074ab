// SPDX-License-Identifier: MIT OR Apache-2.0

//! A network that loses and reorders: the same promises.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{anyhow, ensure, Result};
use weft_shim::SendWr;

use super::{atomics, crowd, order};
use crate::world::{counter, Link};
use weft_testkit::report::Report;

/// Checks that the network spares nobody, and then ourselves.
pub fn run(report: &mut Report, seed: u64) {
    let before = counter("requests_repeated");
    report.check(
        "each WRITE is executed once, and in order",
        once_and_in_order,
    );
    report.check("completions keep their order", order::batches);
    report.check("a READ sees the WRITEs before it", || order::mixed(seed));
    report.check("8 threads get what they wrote", || crowd::threads(seed, 12));
    report.check("4 processes get what they wrote", || {
        crowd::processes(seed, 12)
    });
    report.check("additions are made once", || atomics::additions(4, 100));
    report.check("packets were lost on the way", || {
        let repeated = counter("requests_repeated")? - before?;
        ensure!(
            repeated > 0,
            "no request was repeated: the network is too good"
        );
        println!("# {repeated} requests came more than once");
        Ok(())
    });
}

/// A word that is written again and again never goes back, and the target counts
/// as many executions as there were requests.
fn once_and_in_order() -> Result<()> {
    const WRITES: u64 = 1000;
    let mut link = Link::new(1, 8 * (WRITES as usize + 1), 128)?;
    link.works(0)?;
    let before = counter("requests_executed")?;
    let mut wrs = Vec::new();
    for i in 1..=WRITES {
        let at = i as usize * 8;
        link.local.store_u64(at, i)?;
        let wr = SendWr::write(link.local.slice(at..at + 8)?, link.remote.remote());
        wrs.push(wr.signaled().wr_id(i));
    }
    let (stop, remote, vqp) = (AtomicBool::new(false), &link.remote, &mut link.vqp);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<()> {
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                let now = remote.load_u64(0)?;
                ensure!(now >= last, "the word went back from {last} to {now}");
                last = now;
                thread::yield_now();
            }
            Ok(())
        });
        let ids = order::drive(vqp, &wrs, wrs.len());
        stop.store(true, Ordering::Relaxed);
        watcher
            .join()
            .map_err(|_| anyhow!("the watcher panicked"))??;
        ensure!(
            ids?.iter().copied().eq(1..=WRITES),
            "completions are out of order"
        );
        Ok(())
    })?;
    ensure!(
        remote.load_u64(0)? == WRITES,
        "the last WRITE is not the last"
    );
    let executed = counter("requests_executed")? - before;
    ensure!(
        executed == WRITES as i64,
        "{executed} executions of {WRITES} requests"
    );
    Ok(())
}
