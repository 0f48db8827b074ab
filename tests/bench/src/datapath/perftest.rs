// SPDX-License-Identifier: MIT OR Apache-2.0

//! The package perftest as a witness: its tools measure the same operations on the
//! same nodes, so that a reader sees whether our client of verbs is as good as
//! theirs.
//!
//! The server of a pair runs in the network namespace of the clients' peer. The
//! latency tools take one time stamp for each request and report the differences;
//! `--latency_gap`, which they compute between requests, is part of those and is
//! taken off. The bandwidth tools post lists of as many requests as our batches
//! have, with no more on the way.

mod parse;
mod process;

use anyhow::{bail, ensure, Context as _, Result};

use super::args::{Mode, Operation};
use super::clients::Lane;
use super::plan::Work;
use super::result::Figures;
use super::BATCH;
use crate::nodes::{CLIENT, SERVER};
use parse::{Bandwidth, Latency};
use process::Tool;

/// Fewest and most requests of a run: the tools take no fewer than 5, and keep a
/// time stamp for each.
const MIN_REQUESTS: u32 = 20;
const MAX_REQUESTS: u32 = 1_000_000;
/// How often a tool may fail to find the rate of the processor's clock, without
/// which it has no figures, before that is an error.
const TRIES: u32 = 3;

/// A tool, and which way it reports.
enum Test {
    Latency(&'static [&'static str]),
    Bandwidth(&'static str),
}

/// The tool for this work, and its own arguments.
fn test(work: Work) -> Option<Test> {
    if work.clients != 1 {
        return None;
    }
    let latency = |words| Some(Test::Latency(words));
    match (work.mode, work.op) {
        (Mode::Sync, Operation::Read) => latency(&["ib_read_lat"]),
        (Mode::Sync, Operation::Cas) => latency(&["ib_atomic_lat", "-A", "CMP_AND_SWAP"]),
        (Mode::Sync, Operation::Faa) => latency(&["ib_atomic_lat", "-A", "FETCH_AND_ADD"]),
        (Mode::Sync, Operation::WritePp) => latency(&["ib_write_lat"]),
        (Mode::Sync, Operation::SendPp) => latency(&["ib_send_lat"]),
        // Those tools measure ping-pongs only.
        (Mode::Sync, Operation::Write | Operation::Send) => None,
        _ if work.pause_us > 0 => None,
        (Mode::Async, Operation::Read) => Some(Test::Bandwidth("ib_read_bw")),
        (Mode::Async, Operation::Write) => Some(Test::Bandwidth("ib_write_bw")),
        (Mode::Async, Operation::Send) => Some(Test::Bandwidth("ib_send_bw")),
        (Mode::Async, _) => None,
    }
}

/// Whether perftest measures this work.
pub fn can(work: Work) -> bool {
    test(work).is_some()
}

/// The version of the tools, as they say it. They end with an error then, so that
/// only what they say counts.
pub fn version() -> Result<String> {
    let said = process::output_of(&["ib_read_lat", "--version"])?;
    let version = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Version:"));
    let version = version.with_context(|| format!("perftest did not say its version: {said}"))?;
    Ok(version.trim().to_owned())
}

/// Has perftest measure a work, with about so many of our samples, and answers with
/// what its row is of and its figures.
pub fn run(work: Work, samples: u32) -> Result<(Lane, Figures)> {
    let test = test(work).context("perftest does not measure this")?;
    for _ in 0..TRIES {
        match once(work, &test, samples)? {
            Some(measured) => return Ok(measured),
            None => eprintln!("weft-bench: perftest found no clock rate; it runs again"),
        }
    }
    bail!("perftest found no clock rate in {TRIES} runs: is the machine this busy?")
}

/// Runs a pair of tools; none if it had no clock.
fn once(work: Work, test: &Test, samples: u32) -> Result<Option<(Lane, Figures)>> {
    let requests = samples.clamp(MIN_REQUESTS, MAX_REQUESTS);
    let said = pair(&words(work, test, requests))?;
    let path_mtu = parse::path_mtu(&said)?;
    let figures = match test {
        Test::Latency(_) => Latency::parse(&said, work.bytes)?
            .map(|latency| of_latency(&latency, work))
            .transpose()?,
        Test::Bandwidth(_) => Bandwidth::parse(&said, work.bytes)?.map(|rate| Figures {
            requests: rate.requests,
            ops_per_sec: Some(rate.ops_per_sec),
            ..Figures::default()
        }),
    };
    Ok(figures.map(|figures| (Lane::perftest(path_mtu), figures)))
}

fn of_latency(latency: &Latency, work: Work) -> Result<Figures> {
    let pause = f64::from(work.pause_us);
    let without = |us: f64| {
        let own = us - pause;
        ensure!(
            own > 0.0,
            "perftest made no pause of {pause} us: it took {us} us in all"
        );
        Ok(Some(own))
    };
    Ok(Figures {
        requests: latency.requests,
        lat_us_min: without(latency.min_us)?,
        lat_us_p50: without(latency.typical_us)?,
        lat_us_avg: without(latency.avg_us)?,
        lat_us_p99: without(latency.p99_us)?,
        ..Figures::default()
    })
}

/// The arguments of both ends but device and peer.
fn words(work: Work, test: &Test, requests: u32) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|&word| word.to_owned()));
    let bytes = work.bytes.to_string();
    match test {
        Test::Latency(tool) => {
            add(tool);
            if !work.op.is_atomic() {
                add(&["-s", &bytes]);
            }
            add(&["-n", &requests.to_string()]);
            if work.pause_us > 0 {
                add(&[&format!("--latency_gap={}", work.pause_us)]);
            }
        }
        Test::Bandwidth(tool) => {
            let (batch, requests) = (
                BATCH.to_string(),
                requests.saturating_mul(BATCH).to_string(),
            );
            add(&[
                tool, "-s", &bytes, "-n", &requests, "-t", &batch, "-l", &batch, "-N",
            ]);
        }
    }
    // Without a warning that the clock of the processor may change.
    add(&["-F"]);
    words
}

/// Runs a tool on both nodes, and answers with what the client's said.
fn pair(words: &[String]) -> Result<String> {
    let server = Tool::serve(SERVER, words)?;
    let client = Tool::run(CLIENT, words, SERVER)?;
    let said = client.end().context("perftest's client")?;
    server.end().context("perftest's server")?;
    Ok(said)
}
