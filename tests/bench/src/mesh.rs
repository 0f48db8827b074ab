// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench mesh` (krcore §5.1, figure 8b): workers that connect to one
//! another, and the time until all are connected.
//!
//! Workers are threads, spread over the nodes in turn. Each has a connection of
//! its own to every other. What a worker has before it connects is ready before
//! the clock starts: for verbs the device, protection domain, memory and
//! completion queue, for Weft the session. The DCCaches are empty. Verbs workers
//! hand each other their queue pairs' addresses in memory, which costs less than
//! any network would: that favours verbs.

mod verbs_mesh;
mod weft_mesh;

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Result};
use serde::Serialize;

use crate::cli::{MeshArgs, System};
use crate::nodes::Node;
use crate::report::{number, progress, rounded, JsonLines, Sheet};
use crate::stats::Times;

/// One number of workers and one system. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    system: &'static str,
    workers: u16,
    nodes: u16,
    connections: u32,
    rounds: u64,
    total_us: Option<f64>,
    total_us_min: Option<f64>,
    total_us_max: Option<f64>,
}

/// One worker, with all that it has before it connects.
trait Worker: Send {
    /// What must be done before the clock starts.
    fn prepare(&mut self) -> Result<()>;
    /// First half: what a worker does before it needs to hear from others.
    fn offer(&mut self) -> Result<()>;
    /// Second half: connects to all others.
    fn connect(&mut self) -> Result<()>;
    /// Lets all connections go.
    fn disconnect(&mut self);
}

/// Runs the benchmark.
pub fn run(args: &MeshArgs) -> Result<()> {
    ensure!(
        !args.systems.contains(&System::Ref),
        "--systems: a mesh of ref is nothing"
    );
    let quick = args.common.quick;
    let sizes = match (&args.workers[..], quick) {
        ([], true) => &[2, 8, 32][..],
        ([], false) => &[2, 4, 8, 16, 32, 64],
        (list, _) => list,
    };
    let rounds = args.rounds.unwrap_or(if quick { 3 } else { 11 });
    let mut json = JsonLines::create(args.common.json.as_deref())?;
    let mut sheet = Sheet::new(
        &[
            "system",
            "#workers",
            "#connections",
            "#iterations",
            "t_min[usec]",
            "t_typical[usec]",
            "t_max[usec]",
        ],
        1,
    );
    for &workers in sizes {
        for row in measure(args, workers, rounds)? {
            json.write(&row)?;
            sheet.row(vec![
                row.system.to_owned(),
                row.workers.to_string(),
                row.connections.to_string(),
                row.rounds.to_string(),
                number(row.total_us_min),
                number(row.total_us),
                number(row.total_us_max),
            ]);
        }
    }
    sheet.print();
    Ok(())
}

/// Makes a mesh of each system in turn, `rounds` times.
fn measure(args: &MeshArgs, workers: u16, rounds: u32) -> Result<Vec<Row>> {
    let places: Vec<Node> = (0..workers)
        .map(|worker| Node(worker % args.nodes))
        .collect();
    let mut meshes = Vec::new();
    for &system in &args.systems {
        let mesh = match system {
            System::Weft => weft_mesh::workers(&places)?,
            System::Verbs | System::Ref => verbs_mesh::workers(&places)?,
        };
        meshes.push((system, mesh, Times::new()));
    }
    let bar = progress(format!("mesh of {workers}"), u64::from(rounds));
    for _ in 0..rounds {
        for (_, mesh, times) in &mut meshes {
            times.record(round(mesh)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let row = |(system, _, times): (System, _, Times)| Row {
        bench: "mesh",
        system: system.name(),
        workers,
        nodes: args.nodes,
        connections: u32::from(workers) * (u32::from(workers) - 1),
        rounds: times.count(),
        total_us: rounded(times.percentile_us(50.0)),
        total_us_min: rounded(times.min_us()),
        total_us_max: rounded(times.max_us()),
    };
    Ok(meshes.into_iter().map(row).collect())
}

/// Makes one mesh and answers with the time from when all workers set off until
/// the last is connected to all others.
fn round(workers: &mut [Box<dyn Worker>]) -> Result<Duration> {
    for worker in workers.iter_mut() {
        worker.prepare()?;
    }
    let barrier = Barrier::new(workers.len());
    let spans = thread::scope(|scope| -> Result<Vec<(Instant, Instant)>> {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(|| span(worker.as_mut(), &barrier)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a worker panicked"))?)
            .collect()
    });
    for worker in workers {
        worker.disconnect();
    }
    let spans = spans?;
    let start = spans.iter().map(|span| span.0).min();
    let end = spans.iter().map(|span| span.1).max();
    Ok(start
        .zip(end)
        .map_or(Duration::ZERO, |(start, end)| end - start))
}

/// One worker's beginning and end.
fn span(worker: &mut dyn Worker, barrier: &Barrier) -> Result<(Instant, Instant)> {
    barrier.wait();
    let start = Instant::now();
    let offered = worker.offer();
    // All come here, also those that failed, so that none waits for ever.
    barrier.wait();
    offered?;
    worker.connect()?;
    Ok((start, Instant::now()))
}
