// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data that arrives: sizes and offsets, order, queues, many at once.

mod atomics;
mod crowd;
mod lossy;
pub mod order;
mod sizes;

use crate::report::Report;
use crate::world::Baseline;

pub use lossy::run as run_lossy;

/// All checks on a good network.
pub fn run(report: &mut Report, seed: u64) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    report.check(
        "every size arrives at odd offsets, and nothing beside it",
        || sizes::all(seed),
    );
    report.check(
        "a region sees what is stored after it was registered",
        sizes::late_stores,
    );
    report.check(
        "unsignalled requests complete silently, the others in order",
        order::batches,
    );
    report.check(
        "a READ sees the WRITEs before it, whatever their sizes",
        || order::mixed(seed),
    );
    report.check(
        "a full queue takes no more until it is reaped",
        order::queue_full,
    );
    report.check(
        "a call that finds the queue full reaps it",
        order::full_and_reaping,
    );
    report.check(
        "unsignalled requests leave the queue by themselves",
        order::queue_drains,
    );
    report.check(
        "a batch that is larger than all queues goes through",
        order::large_batch,
    );
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
    report.check("96 VQPs interleaved", || crowd::vqps(seed));
    report.check("8 threads", || crowd::threads(seed, 60));
    report.check("threads that share one VQP", crowd::shared_vqp);
    report.check("4 processes, in both directions", || {
        crowd::processes(seed, 40)
    });
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}
