// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that no initiator or target would send, to the UDP ports of three nodes:
//! drawn from the protocol's grammar, and genuine ones that were captured and changed,
//! from the attacker's address, from nobody's and from other nodes'. Meanwhile
//! bystanders look after their own traffic, by DC and by RC, and nothing of it may
//! fail; afterwards nothing is left.
//!
//! The attacker is a member of the network: it knows the nodes' DC targets, as anybody
//! does who can read a meta server's table. It does not use tokens that it captured
//! under their owner's address: against whoever sits on the path packets do not protect.

mod grammar;
mod network;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use weft_core::dc::wire::Destination;
use weft_shim::{Device, MemoryRegion, Remote};
use weft_testkit::pace::keeps_freed_memory;

use crate::rng::Rng;
use crate::traffic::{Traffic, SLICE};
use crate::world::{counter, full_access, wait_for, Baseline, Link};
use grammar::Grammar;
pub use grammar::Target;
pub use network::in_namespace;
use network::{Capture, Sender};
use weft_testkit::report::Report;

/// Contexts that the attacker has opened are gone after that.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Memory that may be missing at the end, in KiB: caches and per-CPU lists grow.
const GROWTH_KIB: u64 = 64 << 10;
/// The same where KASAN keeps what was freed.
const GROWTH_CHECKED_KIB: u64 = 192 << 10;
/// How long each of the phases lasts that the flood is judged by.
const PHASE: Duration = Duration::from_secs(2);
/// Pairs of phases, without and with the flood.
const PHASES: usize = 5;
/// A stranger's packets in a second.
const FLOOD_PER_SECOND: u64 = 10_000;
/// How many times longer a bystander's batch may take meanwhile.
const FLOOD_RATIO: f64 = 2.0;

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// Packets to send
    #[arg(long, default_value_t = 20_000)]
    packets: u64,
    /// Packets a second at most; 0: as fast as they go
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Judge how much a stranger's 10,000 packets a second slow bystanders down
    #[arg(long)]
    flood: bool,
}

/// All of it.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let targets = report.need("a member of the network knows the targets", || {
        (0..3).map(target).collect::<Result<Vec<_>>>()
    });
    let (Some(targets), Some(())) = (targets, report.need("a peer by RC", crate::rc::pin)) else {
        return;
    };
    let base = report.need("the gauges stand still", || {
        Ok((Baseline::take(3)?, available_kib()?))
    });
    report.check_within("bystanders notice nothing", crate::failnth::LONGEST, || {
        with_bystanders(seed, || attack(args, &targets, seed))
    });
    report.check("the nodes can be connected to as before", || {
        Link::between(2, 0, 4096, 16)?.works(1)?;
        Link::between(0, 1, 4096, 16)?.works(2)
    });
    if args.flood {
        report.check_within("a stranger's flood", crate::failnth::LONGEST, || {
            flood(&targets, seed)
        });
    }
    let Some((baseline, before_kib)) = base else {
        return;
    };
    report.check("contexts that nobody uses go", || {
        wait_for("contexts go", FORGOTTEN, || Ok(counter("contexts")? < 64))
    });
    report.check("nothing else is left behind", || baseline.is_back());
    report.check("memory has not grown beyond its limit", || {
        let grown = before_kib.saturating_sub(available_kib()?);
        println!("# {grown} KiB less are available");
        let limit = match keeps_freed_memory() {
            true => GROWTH_CHECKED_KIB,
            false => GROWTH_KIB,
        };
        ensure!(grown <= limit, "{grown} KiB, at most {limit} are allowed");
        Ok(())
    });
}

/// What a meta server's table says of a node.
pub fn target(node: u8) -> Result<Target> {
    let addr = [10, 77, 0, node + 1];
    let name = std::net::Ipv4Addr::from(addr).to_string();
    let output = Command::new("weft-probe")
        .args(["target", &name])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let words = text.split_whitespace().map(str::parse);
    let words = words.collect::<Result<Vec<u64>, _>>()?;
    let [number, key, incarnation, port] = words[..] else {
        return Err(anyhow!("weft-probe says {text:?}"));
    };
    Ok(Target {
        addr,
        port: u16::try_from(port)?,
        destination: Destination {
            dct_number: u32::try_from(number)?,
            dct_key: key,
            incarnation: u32::try_from(incarnation)?,
        },
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn available_kib() -> Result<u64> {
    memory_kib("MemAvailable")
}

/// A figure of the machine's memory.
pub fn memory_kib(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    Ok(number.with_context(|| format!("no {name}"))?.parse()?)
}

/// Runs `body` while traffic goes on, by RC from node 0 to node 1 and by DC from node 0
/// to node 2.
fn with_bystanders(seed: u64, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let near = Device::open_on(0)?;
    let mut traffics = Vec::new();
    for to in [1, 2] {
        let far = Device::open_on(u32::from(to))?;
        let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
        let traffic = Traffic::new(&near, to, region.remote(), seed)?;
        traffics.push((to, region, traffic));
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let bystanders: Vec<_> = traffics
            .iter_mut()
            .map(|(to, _, traffic)| {
                let stop = &stop;
                scope.spawn(move || -> Result<usize> {
                    let mut rounds = 0;
                    while !stop.load(Ordering::Relaxed) {
                        traffic
                            .round()
                            .with_context(|| format!("to node {to}, round {rounds}"))?;
                        rounds += 1;
                    }
                    Ok(rounds)
                })
            })
            .collect();
        let outcome = body();
        stop.store(true, Ordering::Relaxed);
        for bystander in bystanders {
            let rounds = bystander.join().map_err(|_| anyhow!("it panicked"))??;
            println!("# a bystander's rounds: {rounds}");
            ensure!(rounds > 0, "a bystander did nothing");
        }
        outcome
    })
}

/// Sends the packets.
fn attack(args: &Args, targets: &[Target], seed: u64) -> Result<()> {
    let capture = Capture::start()?;
    let mut sender = Sender::new()?;
    let own = Device::open_on(1)?;
    let region = MemoryRegion::allocate(&own, 1 << 16, full_access())?;
    let mut grammar = Grammar::new(Rng::new(seed), targets, region.remote());
    let mut counts = BTreeMap::new();
    let start = Instant::now();
    for sent in 0..args.packets {
        let packet = grammar.next(&capture);
        if sender.send(&packet) {
            *counts.entry(packet.kind).or_insert(0_u64) += 1;
        }
        pace(start, sent, args.rate);
        if sent % 50_000 == 49_999 {
            println!("# {} packets", sent + 1);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "# {counts:?}, {:.0} a second",
        args.packets as f64 / seconds
    );
    ensure!(
        counts.values().sum::<u64>() > args.packets / 2,
        "most packets could not be sent"
    );
    Ok(())
}

/// Sends packets to all nodes while they come and go, until it is killed. Whenever a
/// meta server answers, it learns their targets anew.
pub fn flood_for_ever(seed: u64) -> Result<()> {
    let known = Mutex::new(first_targets());
    let capture = Capture::start()?;
    let mut sender = Sender::new()?;
    // What it may not use: a region would be lent to it by the module that is unloaded.
    let nobodys = Remote { addr: 0, rkey: 1 };
    thread::scope(|scope| {
        scope.spawn(|| loop {
            for node in 0..3 {
                if let Ok(target) = target(node) {
                    lock(&known)[usize::from(node)] = target;
                }
            }
            thread::sleep(Duration::from_millis(200));
        });
        for round in 0.. {
            let targets = lock(&known).clone();
            let mut grammar = Grammar::new(Rng::new(seed.wrapping_add(round)), &targets, nobodys);
            for _ in 0..500 {
                sender.send(&grammar.next(&capture));
            }
        }
        Ok(())
    })
}

/// The targets, once a meta server answers.
fn first_targets() -> Vec<Target> {
    loop {
        match (0..3).map(target).collect::<Result<Vec<_>>>() {
            Ok(targets) => return targets,
            Err(error) => eprintln!("# no targets yet: {error:#}"),
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until the next packet is due.
fn pace(start: Instant, sent: u64, rate: u64) {
    if rate != 0 && sent % 64 == 0 {
        let due = Duration::from_micros(sent.saturating_mul(1_000_000) / rate);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

/// Alternates between quiet and flooded phases, and compares a bystander's batches.
fn flood(targets: &[Target], seed: u64) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(2)?);
    let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
    let mut traffic = Traffic::new(&near, 2, region.remote(), seed)?;
    let mut times = [Vec::new(), Vec::new()];
    for phase in 0..2 * PHASES {
        let flooded = phase % 2 == 1;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let stranger = flooded.then(|| scope.spawn(|| be_stranger(targets, seed, &stop)));
            let start = Instant::now();
            while start.elapsed() < PHASE {
                let begin = Instant::now();
                traffic.round()?;
                times[usize::from(flooded)].push(begin.elapsed());
            }
            stop.store(true, Ordering::Relaxed);
            if let Some(stranger) = stranger {
                let sent = stranger.join().map_err(|_| anyhow!("it panicked"))??;
                println!("# {sent} packets in {:?}", start.elapsed());
            }
            Ok(())
        })?;
    }
    let [quiet, flooded] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = flooded.as_secs_f64() / quiet.as_secs_f64();
    println!("# a batch takes {quiet:?}, with the flood {flooded:?}: {ratio:.2} times");
    ensure!(ratio <= FLOOD_RATIO, "{ratio:.2} times as long");
    Ok(())
}

/// Sends requests with a wrong key, at the rate that is judged.
fn be_stranger(targets: &[Target], seed: u64, stop: &AtomicBool) -> Result<u64> {
    let mut sender = Sender::new()?;
    let mut rng = Rng::new(seed);
    let (start, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        sender.send(&grammar::stranger(&mut rng, &targets[2]));
        sent += 1;
        pace(start, sent, FLOOD_PER_SECOND);
    }
    Ok(sent)
}
