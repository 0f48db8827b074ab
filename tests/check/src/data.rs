// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data that arrives: sizes and offsets, order, queues, many at once.

mod atomics;
mod crowd;
mod lossy;
pub mod order;
mod sizes;

use anyhow::Result;

use crate::world::{Baseline, Transport};
use weft_testkit::report::Report;

pub use lossy::run as run_lossy;

/// All checks on a good network.
pub fn run(report: &mut Report, seed: u64) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    arrives(report, seed, Transport::Usual);
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}

/// The checks themselves, of requests that go by `transport`.
pub fn arrives(report: &mut Report, seed: u64, transport: Transport) {
    // soft-RoCE takes its time.
    let rounds = if transport == Transport::Rc { 15 } else { 60 };
    let mut check = |name: &str, body: &mut dyn FnMut() -> Result<()>| {
        transport.check(report, name, body);
    };
    check(
        "every size arrives at odd offsets, and nothing beside it",
        &mut || sizes::all(seed),
    );
    check(
        "a region sees what is stored after it was registered",
        &mut sizes::late_stores,
    );
    check(
        "unsignalled requests complete silently, the others in order",
        &mut order::batches,
    );
    check(
        "a READ sees the WRITEs before it, whatever their sizes",
        &mut || order::mixed(seed),
    );
    check(
        "a full queue takes no more until it is reaped",
        &mut order::queue_full,
    );
    check(
        "a call that finds the queue full reaps it",
        &mut order::full_and_reaping,
    );
    check(
        "unsignalled requests leave the queue by themselves",
        &mut order::queue_drains,
    );
    check(
        "a batch that is larger than all queues goes through",
        &mut order::large_batch,
    );
    check("96 VQPs interleaved", &mut || crowd::vqps(seed));
    check("8 threads", &mut || crowd::threads(seed, rounds));
    check("threads that share one VQP", &mut crowd::shared_vqp);
    check("4 processes, in both directions", &mut || {
        crowd::processes(seed, rounds.min(40))
    });
    // These may go by DC anyway: not every RDMA device makes them atomic enough.
    report.check("additions are made once, and answer what was there", || {
        atomics::additions(8, 500)
    });
    report.check(
        "a word is swapped only if it is as expected",
        atomics::swaps,
    );
    report.check(
        "what atomic operations may not do is refused",
        atomics::refusals,
    );
}
