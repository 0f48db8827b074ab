// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench meta` (krcore §4.2, figure 9a): look-ups at the meta server, past
//! the DCCache. How many READs each takes, how long, and what it costs the
//! server's CPU, which should be nothing. The server is on another node than the one
//! that looks up, so that look-ups cross the network.

mod publish;

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde::Serialize;
use weft_core::kv::SLOTS_PER_BUCKET;
use weft_shim::Device;

use crate::cli::MetaArgs;
use crate::connect::meta_server;
use crate::report::{number, progress, rounded, JsonLines, Sheet};
use crate::stats::Times;
use crate::weft::device;
use publish::{gid_of, Publisher};

/// How long the server may take to apply the records.
const PATIENCE: Duration = Duration::from_secs(10);
/// Look-ups between two steps of the progress bar.
const STEP: u32 = 256;

/// The result. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    lookups: u32,
    records: u32,
    /// Where the server is.
    meta_server: SocketAddr,
    /// Slots for records in its table.
    capacity: u64,
    reads_per_lookup: f64,
    lookup_us_p50: Option<f64>,
    lookup_us_p99: Option<f64>,
    server_cpu_us_per_lookup: f64,
}

/// Runs the benchmark.
pub fn run(args: &MetaArgs) -> Result<()> {
    let addr = meta_server(&[])?;
    let server = Server::find(args.server_pid)?;
    let mut json = JsonLines::create(&args.common)?;
    let device = device()?;
    let quick = args.common.quick;
    let lookups = args.lookups.unwrap_or(if quick { 5_000 } else { 50_000 });

    let mut publisher = Publisher::connect(addr)?;
    let measured = publisher
        .publish(args.records)
        .and_then(|()| wait_for_last(&device, args.records))
        .and_then(|()| measure(&device, (&server, addr), args.records, lookups));
    publisher.withdraw(args.records)?;
    let row = measured?;

    json.write(&row)?;
    let mut sheet = Sheet::new(
        &[
            "#iterations",
            "records",
            "capacity",
            "READs per look-up",
            "t_typical[usec]",
            "99% percentile[usec]",
            "server CPU per look-up[usec]",
        ],
        0,
    );
    sheet.row(vec![
        row.lookups.to_string(),
        row.records.to_string(),
        row.capacity.to_string(),
        format!("{:.4}", row.reads_per_lookup),
        number(row.lookup_us_p50),
        number(row.lookup_us_p99),
        format!("{:.4}", row.server_cpu_us_per_lookup),
    ]);
    sheet.print();
    Ok(())
}

fn measure(
    device: &Device,
    (server, meta_server): (&Server, SocketAddr),
    records: u32,
    lookups: u32,
) -> Result<Row> {
    let bar = progress("look-ups".to_owned(), u64::from(lookups));
    let mut times = Times::new();
    let mut reads = 0u64;
    let busy = server.cpu_time()?;
    for lookup in 0..lookups {
        let gid = gid_of(scattered(lookup, records));
        let start = Instant::now();
        let found = device.lookup(gid)?;
        times.record(start.elapsed());
        reads += u64::from(found.reads);
        if lookup % STEP == 0 {
            bar.inc(u64::from(STEP));
        }
    }
    let busy = server.cpu_time()?.saturating_sub(busy);
    bar.finish_and_clear();
    Ok(Row {
        bench: "meta",
        lookups,
        records,
        meta_server,
        capacity: capacity(device, meta_server)?,
        reads_per_lookup: reads as f64 / f64::from(lookups),
        lookup_us_p50: rounded(times.percentile_us(50.0)),
        lookup_us_p99: rounded(times.percentile_us(99.0)),
        server_cpu_us_per_lookup: busy.as_nanos() as f64 / 1e3 / f64::from(lookups),
    })
}

/// Slots of the table of a server that the module uses.
fn capacity(device: &Device, server: SocketAddr) -> Result<u64> {
    let servers = device.meta_servers()?;
    let server = servers.iter().find(|known| known.addr == server);
    let server = server.context("the module uses that meta server no more")?;
    Ok(u64::from(server.buckets) * SLOTS_PER_BUCKET as u64)
}

/// A record for the `n`th look-up, all over the table, the same in each run.
fn scattered(n: u32, records: u32) -> u32 {
    // Fibonacci hashing: consecutive numbers land far apart.
    let spread = u64::from(n.wrapping_mul(0x9e37_79b9));
    u32::try_from((spread * u64::from(records)) >> 32).unwrap_or(0)
}

/// Records are applied in order: when the last is there, all are.
fn wait_for_last(device: &Device, records: u32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = device.lookup(gid_of(records - 1)) {
        if Instant::now() > deadline {
            return Err(error)
                .context("the server does not show the records: is its --capacity large enough?");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A weft-meta process.
struct Server {
    pid: u32,
}

impl Server {
    /// Finds the one weft-meta that runs, if `pid` names none.
    fn find(pid: Option<u32>) -> Result<Self> {
        if let Some(pid) = pid {
            return Self::with_pid(pid);
        }
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            found.extend(pid.and_then(|pid| Self::with_pid(pid).ok()));
        }
        match (found.pop(), found.is_empty()) {
            (Some(server), true) => Ok(server),
            (Some(_), false) => bail!("several weft-meta run here: choose with --server-pid"),
            (None, _) => bail!("no weft-meta runs here: start one, see `weft-meta --help`"),
        }
    }

    /// Checks that the process is one.
    fn with_pid(pid: u32) -> Result<Self> {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"))
            .with_context(|| format!("--server-pid {pid}: no such process"))?;
        if comm.trim() != "weft-meta" {
            bail!("--server-pid {pid}: that is {}, not weft-meta", comm.trim());
        }
        Ok(Self { pid })
    }

    /// Time that it has been on a CPU. (It has one thread.)
    fn cpu_time(&self) -> Result<Duration> {
        let path = format!("/proc/{}/schedstat", self.pid);
        let text = fs::read_to_string(&path).context("weft-meta ended, or no schedstat")?;
        let ns = text.split_whitespace().next().unwrap_or_default();
        let ns = ns.parse().with_context(|| format!("cannot read {path}"))?;
        Ok(Duration::from_nanos(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_spread_over_all_records() {
        let mut hit = [false; 100];
        for n in 0..1000 {
            hit[scattered(n, 100) as usize] = true;
        }
        assert!(hit.iter().all(|&hit| hit));
        assert_eq!(scattered(u32::MAX, 1), 0);
    }

    #[test]
    fn a_process_that_is_no_server_is_refused() {
        assert!(Server::with_pid(std::process::id()).is_err());
    }
}
