// SPDX-License-Identifier: MIT OR Apache-2.0

//! A pool that decides by itself (`pool=auto`): a busy peer goes to RC when DC has become
//! slow, and back; what is lost on the way is lost to those alone who talk to that peer.

mod cut;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Result};
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::waitpid;
use weft_shim::{Device, MemoryRegion, PoolPeer, Transport};
use weft_testkit::report::Report;

use crate::filter::{Filter, DC};
use crate::isolation::users::{become_user, in_child, with_reserve, NOBODY, ROOT};
use crate::traffic::{Traffic, SLICE};
use crate::world::{counter, full_access, gid, wait_for, Baseline, Link};

/// Longer than anything takes on the slowest machine.
const BOUND: Duration = Duration::from_secs(60);
/// DC's packets are slower then than soft-RoCE is on the busiest machine.
const SLOW: Duration = Duration::from_millis(20);

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(3)) else {
        return;
    };
    report.check("a peer that is hardly used gets no queue pair", hardly_used);
    report.check("it tells who uses a peer most", tells_users);
    let outcome = busy(report, seed);
    if let Err(error) = outcome {
        report.check("peers could be busy", || Err(error));
    }
    cut::run(report, seed);
    report.check(
        "a pinned peer gets another queue pair if its end closes one",
        pinned_by_both,
    );
    report.check("queue pairs that nobody uses are closed", || {
        wait_for("all are", BOUND, || Ok(counter("rc_queues")? == 0))
    });
    report.check("all of it leaves nothing behind", || baseline.is_back());
}

fn hardly_used() -> Result<()> {
    let mut link = Link::new(1, 4096, 4)?;
    for round in 0..50 {
        link.works(round)?;
        thread::sleep(Duration::from_millis(20));
    }
    ensure!(counter("rc_queues")? == 0, "it has one");
    Ok(())
}

/// What the pool knows of a peer.
fn known(peer: u8) -> Result<Option<PoolPeer>> {
    let peers = Device::open_on(0)?.pool_peers()?;
    Ok(peers.into_iter().find(|known| known.gid == gid(peer)))
}

/// Administrators are told who uses a peer most: us, and at another peer somebody else.
fn tells_users() -> Result<()> {
    let nobody = in_child(|| {
        become_user(NOBODY)?;
        let mut link = with_reserve(|| Link::new(2, 4096, 4))?;
        (0..).try_for_each(|round| link.works(round))
    })?;
    let user = |peer| -> Result<_> { Ok(known(peer)?.and_then(|peer| peer.user)) };
    let mut ours = Link::new(1, 4096, 4)?;
    let mut round = 0;
    let told = wait_for("both are known", BOUND, || {
        round += 1;
        ours.works(round)?;
        Ok(user(1)? == Some(ROOT) && user(2)? == Some(NOBODY))
    });
    kill(nobody, Signal::SIGKILL)?;
    waitpid(nobody, None)?;
    told
}

/// The pool knows how many VQPs there are to a peer that is busy.
fn counts_vqps(peer: u8) -> Result<()> {
    const LINKS: u32 = 5;
    let count = || -> Result<_> { Ok(known(peer)?.map_or(0, |known| known.vqps)) };
    let before = count()?;
    let links = (0..LINKS)
        .map(|_| Link::new(peer, SLICE, 64))
        .collect::<Result<Vec<_>>>()?;
    let with_links = count()?;
    ensure!(
        with_links == before + LINKS,
        "there were {before}, and with {LINKS} more {with_links}"
    );
    drop(links);
    wait_for("they are gone", BOUND, || Ok(count()? == before))
}

/// Waits until requests to a peer go this way, and says how long that took.
fn wait_for_transport(peer: u8, transport: Transport) -> Result<()> {
    let start = Instant::now();
    wait_for(
        &format!("node {peer} is reached by {transport}"),
        BOUND,
        || {
            let is_settled = |known: PoolPeer| known.transport == transport && !known.is_in_trial;
            Ok(known(peer)?.is_some_and(is_settled))
        },
    )?;
    println!("# {:?}", known(peer)?);
    println!("# by {transport} after {} ms", start.elapsed().as_millis());
    Ok(())
}

/// Both ends pin each other. The one that has asked for the queue pair lets go, and closes it
/// when nobody has used it for a while; the other one gets its own.
fn pinned_by_both() -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let is_up = || Ok(counter("rc_queues")? == 2);
    wait_for("those before are closed", BOUND, || {
        Ok(counter("rc_queues")? == 0)
    })?;
    near.pool_pin(gid(1))?;
    // The far end must not ask for one of its own.
    wait_for("it is up", BOUND, || {
        let peers = far.pool_peers()?;
        let mut back = peers.iter().filter(|known| known.gid == gid(0));
        Ok(back.any(|known| known.age_ns.is_some()))
    })?;
    far.pool_pin(gid(0))?;
    let closed = counter("rc_closed")?;
    near.pool_unpin(gid(1))?;
    wait_for("both ends are closed", BOUND, || {
        Ok(counter("rc_closed")? >= closed + 2)
    })?;
    wait_for("another one is up", BOUND, is_up)?;
    Ok(far.pool_unpin(gid(0))?)
}

/// READs in a row, until it is stopped; an error ends it.
fn read_on(peer: u8, stop: &AtomicBool, rounds: &AtomicU64) -> Result<()> {
    let mut link = Link::new(peer, SLICE, 64)?;
    while !stop.load(Ordering::Relaxed) {
        link.works(rounds.fetch_add(1, Ordering::Relaxed))?;
    }
    Ok(())
}

/// Two peers are busy; node 1 is the one whose queue pair is looked at.
fn busy(report: &mut Report, seed: u64) -> Result<()> {
    let filter = Filter::new(&[DC])?;
    let far = Device::open_on(1)?;
    let near = Device::open_on(0)?;
    let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
    let mut traffic = Traffic::new(&near, 1, region.remote(), seed)?;
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let checked = scope.spawn(|| traffic.until(&stop, Duration::ZERO));
        let busy = scope.spawn(|| read_on(1, &stop, &rounds));
        let other = scope.spawn(|| read_on(2, &stop, &rounds));
        report.check(
            "a busy peer is tried on RC, and stays with what is faster",
            || {
                wait_for("it has been tried", BOUND, || {
                    let known = known(1)?;
                    Ok(known.is_some_and(|peer| peer.moves > 0 && !peer.is_in_trial))
                })?;
                println!("# {:?}", known(1)?);
                Ok(())
            },
        );
        report.check("it counts the VQPs to a peer", || counts_vqps(1));
        report.check("a busy peer goes to RC when DC gets slow", || {
            filter.slow(DC, SLOW)?;
            wait_for_transport(1, Transport::Rc)
        });
        report.check("and back when it is fast again", || {
            // Until it has been seen how long a round trip by DC takes now.
            thread::sleep(Duration::from_secs(2));
            println!("# {:?}", known(1)?);
            filter.mend(DC)?;
            wait_for_transport(1, Transport::Dc)
        });
        report.check(
            "none of its requests has failed, or come out of turn",
            || {
                stop.store(true, Ordering::Relaxed);
                for thread in [checked, busy, other] {
                    thread.join().map_err(|_| anyhow!("it panicked"))??;
                }
                Ok(())
            },
        );
    });
    Ok(())
}
