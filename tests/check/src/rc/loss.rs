// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that break: a peer behind a link that is down, and one that goes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Error, SendWr, Vqp, Wc, WcStatus};

use super::direct;
use super::pins::wait_until_up;
use crate::world::{counter, system, timely, wait_for, Baseline, Link};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

/// Nothing takes longer, on the slowest machine.
const BOUND: Duration = Duration::from_secs(20);
const REQUESTS: usize = 32;
const BYTES: usize = 64 << 10;

/// How requests to a node end that goes under them.
const OTHERS_END: [End; 2] = [
    End::Status(WcStatus::RetryExcErr),
    End::Status(WcStatus::RemAbortErr),
];
/// How the node's own requests do. Where the device ends the queue pair before the node
/// has said why, the peer seems to be out of reach.
const OWN_END: [End; 3] = [
    End::Status(WcStatus::FatalErr),
    End::Status(WcStatus::RetryExcErr),
    End::NodeGone,
];

const PING: &str = "ping -n -c 1 -W 1 10.77.0.2";
const TAKE_ADDRESS: &str = "ip -n n1 address del 10.77.0.2/24 dev v1";
const GIVE_ADDRESS: &str = "ip -n n1 address add 10.77.0.2/24 dev v1";

pub(super) fn set_link(state: &str) -> Result<()> {
    system(&format!("ip -n n1 link set v1 {state}"))
}

/// Sets the link up, and waits until packets pass. The kernel asks for a neighbour's address
/// once a second, so that it may take longer than DC tries.
pub(super) fn link_comes_up() -> Result<()> {
    set_link("up")?;
    wait_for("packets pass", BOUND, || Ok(system(PING).is_ok()))
}

fn published() -> Result<()> {
    wait_for("three nodes are published", BOUND, || {
        Ok(counter("nodes_published")? == 3)
    })
}

/// All of it, in order.
pub fn run(report: &mut Report) {
    let baseline = report.need("the gauges stand still", || Baseline::take(3));
    for (name, part) in [
        (
            "a link that goes down meanwhile",
            run_cut as fn(&mut Report) -> Result<()>,
        ),
        ("a request that is run and interrupted", direct::interrupted),
        ("a link that is down", link_down),
        ("a node that goes", node_goes),
    ] {
        if let Err(error) = part(report) {
            report.check(&format!("{name} could be tried"), || Err(error));
        }
    }
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || {
            baseline.with_new_sessions()?.is_back()
        });
    }
}

/// Posts READs that fill the queue pair.
fn fill(link: &mut Link) -> Result<()> {
    let wr = SendWr::read(link.local.slice(0..BYTES)?, link.remote.remote()).signaled();
    let taken = link.vqp.post_send(&[wr; REQUESTS])?;
    ensure!(taken == REQUESTS, "{taken} of {REQUESTS} were taken");
    Ok(())
}

/// All of them end: some well, one with an error, the rest flushed.
fn all_end(vqp: &mut Vqp, allowed: &[WcStatus]) -> Result<()> {
    let mut wcs = [Wc::default(); REQUESTS];
    let done = timely(BOUND, || vqp.enter(&[], &mut wcs, REQUESTS, BOUND))??.completed;
    ensure!(done == REQUESTS, "{done} of {REQUESTS} have ended");
    let statuses: Vec<_> = wcs.iter().filter_map(Wc::status).collect();
    let good = statuses.iter().take_while(|s| **s == WcStatus::Success);
    let rest = &statuses[good.count()..];
    let failed = rest.first().copied().context("all of them went well")?;
    ensure!(
        allowed.contains(&failed),
        "the first failed with {failed:?}"
    );
    let flushed = rest.iter().skip(1).all(|s| *s == WcStatus::WrFlushErr);
    ensure!(flushed, "they ended with {statuses:?}");
    Ok(())
}

/// The link goes down under a VQP whose requests are run in the call that posts them.
fn run_cut(report: &mut Report) -> Result<()> {
    wait_until_up()?;
    let mut link = Link::new(1, BYTES, 64)?;
    link.works(1)?;
    let lost = counter("rc_lost")?;
    let runner = thread::spawn(move || {
        (2..)
            .find_map(|value| {
                timely(BOUND, || link.works(value))
                    .and_then(|done| done)
                    .err()
            })
            .context("nothing failed")
    });
    set_link("down")?;
    report.check("one that is run in the call ends in time", || {
        let error = runner.join().map_err(|_| anyhow!("it panicked"))??;
        let status = match error.downcast_ref() {
            Some(Error::Completion(failure)) => failure.status,
            _ => None,
        };
        ensure!(status == Some(WcStatus::RetryExcErr), "{error:#}");
        Ok(())
    });
    let broken = both_break(lost);
    // Whatever came of it: what follows needs the link.
    link_comes_up()?;
    broken
}

/// Waits until both ends of a queue pair have broken, since `lost` had.
pub(super) fn both_break(lost: i64) -> Result<()> {
    wait_for("both have broken", BOUND, || {
        Ok(counter("rc_lost")? >= lost + 2)
    })
}

/// The link goes down under one VQP, and while another one rests.
fn link_down(report: &mut Report) -> Result<()> {
    wait_until_up()?;
    let mut resting = Link::new(1, BYTES, 64)?;
    let mut busy = Link::new(1, BYTES, 64)?;
    let mut behind = Link::new(1, BYTES, 64)?;
    let mut bystander = Link::new(2, BYTES, 64)?;
    resting.works(1)?;
    bystander.works(1)?;
    let lost = counter("rc_lost")?;
    set_link("down")?;
    fill(&mut busy)?;
    fill(&mut behind)?;
    report.check(
        "requests to a peer that is out of reach end in time",
        || all_end(&mut busy.vqp, &[WcStatus::RetryExcErr]),
    );
    report.check(
        "so do those of another VQP behind them, and the first is not flushed",
        || all_end(&mut behind.vqp, &[WcStatus::RetryExcErr]),
    );
    report.check("both ends of the queue pair notice", || both_break(lost));
    report.check("another peer's VQP goes on", || bystander.works(2));
    link_comes_up()?;
    report.check("a VQP that rested goes on", || resting.works(2));
    report.check("the failed one stays failed", || {
        let status = busy.outcome(BOUND)?;
        ensure!(status == WcStatus::WrFlushErr, "it is {status:?}");
        Ok(())
    });
    report.check("RC comes back", wait_until_up);
    report.check("the VQP that rested uses it again", || {
        let before = counter("rc_chains")?;
        resting.works(3)?;
        ensure!(counter("rc_chains")? > before, "it goes by DC");
        Ok(())
    });
    published()
}

/// The peer loses its address, and with it its node, under requests both ways.
fn node_goes(report: &mut Report) -> Result<()> {
    wait_until_up()?;
    let there = Link::new(1, BYTES, 64)?;
    let mut back = Link::between(1, 0, BYTES, 64)?;
    let mut resting = Link::new(1, BYTES, 64)?;
    resting.works(1)?;
    back.works(1)?;
    let at_work = Arc::new(AtomicUsize::new(0));
    let [to_it, its_own] = [there, back].map(|link| {
        let at_work = at_work.clone();
        thread::spawn(move || until_one_fails(link, &at_work))
    });
    wait_for("both are at work", BOUND, || {
        Ok(at_work.load(Ordering::Relaxed) == 2)
    })?;
    system(TAKE_ADDRESS)?;
    report.check("requests to a node that goes end in time", || {
        let end = to_it.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(OTHERS_END.contains(&end), "it ended with {end:?}");
        Ok(())
    });
    report.check("so do its own", || {
        let end = its_own.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(OWN_END.contains(&end), "it ended with {end:?}");
        Ok(())
    });
    report.check("a VQP that rested: an error in time", || {
        let status = timely(BOUND, || resting.outcome(BOUND))??;
        let expected = [WcStatus::RetryExcErr, WcStatus::RemAbortErr];
        ensure!(expected.contains(&status), "it is {status:?}");
        Ok(())
    });
    system(GIVE_ADDRESS)?;
    report.check("the node comes back", published);
    report.check("a new VQP works", || {
        wait_for("it works", BOUND, || {
            let tried = Link::new(1, 4096, 4).and_then(|mut link| link.works(2));
            Ok(tried.is_ok())
        })
    });
    report.check("RC comes back to the new node", wait_until_up);
    Ok(())
}

/// How a batch ends in which a request fails.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The first that fails has this status; those behind it are flushed.
    Status(WcStatus),
    /// There is no node any more to say how.
    NodeGone,
}

/// Keeps the queue pair busy with READs until one of them fails. All of them end. Counts
/// itself in `at_work` when the first have.
fn until_one_fails(mut link: Link, at_work: &AtomicUsize) -> Result<End> {
    let start = Instant::now();
    let mut is_at_work = false;
    let wr = SendWr::read(link.local.slice(0..BYTES)?, link.remote.remote()).signaled();
    while start.elapsed() < patient(BOUND) {
        let mut wcs = [Wc::default(); REQUESTS];
        let mut done = 0;
        let mut wrs = &[wr; REQUESTS][..];
        while done < REQUESTS {
            match timely(BOUND, || link.vqp.enter(wrs, &mut wcs[done..], 1, BOUND))? {
                Ok(progress) => {
                    ensure!(progress.completed != 0, "{done} of {REQUESTS} have ended");
                    done += progress.completed;
                    wrs = &wrs[progress.submitted..];
                }
                Err(Error::NodeGone) => return Ok(End::NodeGone),
                Err(error) => return Err(error.into()),
            }
        }
        let statuses: Vec<_> = wcs.iter().filter_map(Wc::status).collect();
        let good = statuses.iter().take_while(|s| **s == WcStatus::Success);
        let rest = &statuses[good.count()..];
        if let Some((first, others)) = rest.split_first() {
            let flushed = others.iter().all(|s| *s == WcStatus::WrFlushErr);
            ensure!(flushed, "they ended with {statuses:?}");
            return Ok(End::Status(*first));
        }
        if !is_at_work {
            at_work.fetch_add(1, Ordering::Relaxed);
            is_at_work = true;
        }
    }
    Err(anyhow!("none of them fails"))
}
