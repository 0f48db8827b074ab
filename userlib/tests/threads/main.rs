// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups of threads over shared memory, with their polling threads: every
//! member delivers the same sequence, however the machine schedules them.
//!
//! `WEFT_SOAK=N` sends N times as many messages; `WEFT_SEED` repeats a run.

mod errors;
mod groups;
mod handover;
mod joining;
mod late_readers;
mod leaving;
mod plan;
mod random;
mod sequences;
mod subgroups;
mod tasks;
mod views;

use std::sync::Arc;
use std::time::Duration;
use weft::fabric::shm::Shm;

const PATIENCE: Duration = Duration::from_secs(60);

/// Members with the same settings, each handed to a thread of its own.
fn members<R: Send + 'static>(
    nodes: usize,
    run: impl Fn(Shm) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let run = Arc::new(run);
    let joining: Vec<_> = Shm::threads(nodes)
        .expect("a fabric")
        .into_iter()
        .map(|node| {
            let run = Arc::clone(&run);
            std::thread::spawn(move || run(node))
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect()
}
