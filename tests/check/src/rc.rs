// SPDX-License-Identifier: MIT OR Apache-2.0

//! RC queue pairs that VQPs share: the promises that hold on DC hold there, whoever
//! makes mistakes or dies, and whatever becomes of the queue pair. Three nodes, of
//! which 0 and 1 are connected.

mod blocks;
mod bursts;
mod dead_peers;
mod direct;
mod long;
mod loss;
mod lossy;
mod meta_server;
mod pins;
mod regions;
mod registration;
mod revocation;
mod switch;
mod turns;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Result};
use weft_shim::{Device, MemoryRegion};

use crate::traffic::{Traffic, SLICE};
use crate::world::{counter, full_access, Baseline, Transport};
use crate::{bad, data, killed_worker, two_sided};
use weft_testkit::report::Report;

pub use blocks::BLOCK;
pub use dead_peers::want_for_ever;
pub use meta_server::reaches_no_region as meta_server_reaches_no_region;
pub use pins::{goes_by_rc, pin, wait_until_up, with_rc};
use registration::Early;

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// The module was loaded with `pool=rc`: nobody pins.
    #[arg(long)]
    pool: bool,
    /// Only whether peers that are down delay one that is up: fourteen nodes.
    #[arg(long)]
    dead: bool,
}

/// All of it, or what `pool=rc` may change.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    if args.dead {
        return dead_peers::run(report, args.pool);
    }
    let mut early = None;
    let up = if args.pool {
        report.need("a peer that is used is connected by RC", wait_until_up)
    } else {
        report.check(
            "until RC is used, the device is told of no memory",
            registration::none_before,
        );
        pins::refusals(report);
        early = report.need("regions can be made before RC is up", Early::new);
        report.need("a pinned peer is connected by RC", pin)
    };
    if up.is_none() {
        return;
    }
    let lost = counter("rc_lost").unwrap_or(-1);
    report.check("both ends use the same queue pair", pins::both_ends);
    if let Some(early) = early {
        report.check("regions that were there before go by RC", || early.by_rc());
    }
    let name = "requests go across the ends of blocks";
    Transport::Rc.check(report, name, || blocks::requests_across(seed));
    let name = "in batches too";
    Transport::Rc.check(report, name, blocks::batches_across);
    let name = "inline bytes arrive across them";
    Transport::Rc.check(report, name, blocks::inline_across);
    let name = "what goes past a region's last block is refused";
    Transport::Rc.check(report, name, blocks::past_the_end);
    report.check(
        "a meta server reaches no region",
        meta_server::reaches_no_region,
    );
    data(report, seed, args.pool);
    if !args.pool {
        mistakes(report);
        direct::run(report, seed);
        let name = "short requests pass between the pieces of long ones";
        Transport::Rc.check(report, name, long::short_ones_pass);
        let name = "long requests have their turn among short ones";
        Transport::Rc.check(report, name, turns::long_ones_have_theirs);
        report.check("a region that peers remember goes", regions::forgotten);
        report.check(
            "that of a process that dies does too",
            regions::of_dead_process,
        );
        report.check("its owner is charged once", regions::charge);
        let name = "regions that go under deep queues break nothing";
        Transport::Rc.check(report, name, || revocation::under_load(seed));
        let name = "many that go at once cost few notices";
        Transport::Rc.check(report, name, revocation::many);
        let name = "a region waits for requests that take longer than a lease";
        Transport::Rc.check(report, name, revocation::slow);
        let name = "regions that are made while packets get lost break nothing";
        Transport::Rc.check(report, name, lossy::regions_meanwhile);
        killed_worker::run(report, seed, 6, Transport::Rc);
    }
    report.check("no queue pair broke until now", || {
        let now = counter("rc_lost")?;
        ensure!(now == lost, "{} broke", now - lost);
        Ok(())
    });
    report.check("the device forgets all regions", registration::none_after);
    if !args.pool {
        loss::run(report);
        revocation::silent(report);
    }
}

/// What arrives on DC arrives here.
fn data(report: &mut Report, seed: u64, few: bool) {
    let baseline = report.need("the gauges stand still", || Baseline::take(3));
    if !few {
        data::arrives(report, seed, Transport::Rc);
    }
    let check = |report: &mut Report, name: &str, body: &mut dyn FnMut() -> Result<()>| {
        Transport::Rc.check(report, name, body);
    };
    check(report, "WRITEs gather, READs scatter", &mut || {
        two_sided::pieces(seed, 30)
    });
    check(
        report,
        "a SEND after a WRITE is seen after it, on RC and DC in turn",
        &mut || switch::in_turn(seed, 200),
    );
    check(
        report,
        "threads that share a VQP keep its order across the change",
        &mut || switch::shared(20),
    );
    check(report, "all kinds of requests in one queue", &mut || {
        two_sided::all_kinds(100)
    });
    check(
        report,
        "bursts end though polls come late",
        &mut bursts::end,
    );
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}

/// Requests that may not be hit their own VQP, and not the queue pair.
fn mistakes(report: &mut Report) {
    let outcome = (|| -> Result<()> {
        let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
        let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
        let mut traffic = Traffic::new(&near, 1, region.remote(), 5)?;
        let stop = AtomicBool::new(false);
        let lost = counter("rc_lost")?;
        thread::scope(|scope| {
            let bystander = scope.spawn(|| traffic.until(&stop, Duration::ZERO));
            bad::run_requests(report);
            stop.store(true, Ordering::Relaxed);
            report.check("a bystander on the queue pair noticed nothing", || {
                bystander.join().map_err(|_| anyhow!("it panicked"))?
            });
        });
        report.check("all that goes by RC, and broke no queue pair", || {
            // The bystander's requests would count too: they have ended.
            bad::requests_go_by_rc()?;
            let lost = counter("rc_lost")? - lost;
            ensure!(lost == 0, "{lost} lost");
            Ok(())
        });
        Ok(())
    })();
    if let Err(error) = outcome {
        report.check("mistakes could be made", || Err(error));
    }
}
