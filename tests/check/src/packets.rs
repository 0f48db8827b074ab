// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that no initiator or target would send, to the UDP ports of three nodes:
//! drawn from the protocol's grammar, and genuine ones that were captured and changed,
//! from the attacker's addresses, from nobody's and from other nodes', whole and in IP
//! fragments. Meanwhile bystanders look after their own traffic, by DC and by RC, and
//! after messages, and nothing of it may fail; and a user has a peer that lies. The run
//! says how far the attacker got, and fails if that is not far. Afterwards nothing is
//! left.
//!
//! The attacker is a member of the network: it knows the nodes' DC targets, as anybody
//! does who can read a meta server's table. Of what it captures it uses neither tokens
//! under their owner's address nor keys of others' regions: against whoever sits on the
//! path packets do not protect.

mod arrival;
mod bystanders;
mod capture;
mod flood;
mod grammar;
mod liar;
mod network;
mod requests;
mod streams;
mod victim;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use weft_core::dc::wire::Destination;
use weft_shim::{Device, MemoryRegion, Remote, Vqp, VqpConfig};
use weft_testkit::pace::{is_slow, keeps_freed_memory};

use crate::messenger;
use crate::rng::Rng;
use crate::world::{counter, full_access, wait_for, Baseline, Link};
use arrival::Depth;
use capture::Capture;
use grammar::{Grammar, STARVED};
pub use grammar::{Prey, Target};
pub use network::in_namespace;
use network::Sender;
use requests::REGION;
use weft_testkit::report::Report;

/// Contexts that the attacker has opened are gone after that.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Memory that may be missing at the end, in KiB: caches and per-CPU lists grow.
const GROWTH_KIB: u64 = 64 << 10;
/// The same where KASAN keeps what was freed.
const GROWTH_CHECKED_KIB: u64 = 192 << 10;
/// Nodes that are attacked.
const NODES: u8 = 3;
/// Packets of an endless flood that are sent in a row, and how many rows there are before
/// it looks which targets there are now.
const BURST: usize = 20;
const BURSTS: usize = 25;

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// Packets to send
    #[arg(long, default_value_t = 20_000)]
    packets: u64,
    /// Packets a second at most; 0: as fast as they go
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Judge how much a stranger's 10,000 packets a second slow bystanders down, in place
    /// of all that
    #[arg(long)]
    flood: bool,
}

/// All of it.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let targets = report.need("a member of the network knows the targets", targets);
    let (Some(targets), Some(())) = (targets, report.need("a peer by RC", crate::rc::pin)) else {
        return;
    };
    let base = report.need("the gauges stand still", || {
        Ok((Baseline::take(u32::from(NODES))?, available_kib()?))
    });
    if args.flood {
        for (name, node) in [("over the cable", 0), ("by loopback", 2)] {
            let name = format!("a stranger's flood {name}");
            report.check_within(&name, crate::failnth::LONGEST, || {
                flood::flood(&targets[node], seed)
            });
        }
    } else {
        attacks(report, args, &targets, seed);
    }
    report.check("the nodes can be connected to as before", || {
        Link::between(2, 0, 4096, 16)?.works(1)?;
        Link::between(0, 1, 4096, 16)?.works(2)
    });
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

/// What is sent, and what comes of it.
fn attacks(report: &mut Report, args: &Args, targets: &[Target], seed: u64) {
    report.check("packets arrive, most of them", || {
        with_prey(targets, |prey| arrival::most_arrive(prey, seed))
    });
    report.check("what comes in fragments is put where it belongs", || {
        with_prey(targets, |prey| arrival::fragments_land(prey, seed))
    });
    let mut depth = None;
    report.check_within("bystanders notice nothing", crate::failnth::LONGEST, || {
        with_prey(targets, |prey| {
            let (before, mut ends) = (Depth::begin()?, None);
            let others = bystanders::among_bystanders(seed, || {
                ends = Some(victim::beside_liar(targets[0], seed, || {
                    attack(args, prey, seed, &before)
                })?);
                Ok(())
            })?;
            depth = Some((before.take()?, others, ends.unwrap_or_default()));
            Ok(())
        })
    });
    let Some((depth, others, ends)) = depth else {
        return;
    };
    report.check("requests get deep into streams", || depth.is_deep());
    report.check("targets give every kind of answer", || {
        depth.has_all_answers()
    });
    report.check("messages reach ports", || depth.has_messages(&others));
    report.check("a liar's answers are taken", || victim::expect_all(&ends));
}

/// Runs `body` with nodes of each of which the attacker has a region and a port.
fn with_prey(targets: &[Target], body: impl FnOnce(&[Prey]) -> Result<()>) -> Result<()> {
    let (mut kept, mut prey) = (Vec::new(), Vec::new());
    for (node, target) in (0..).zip(targets) {
        let device = Device::open_on(node)?;
        let region = MemoryRegion::allocate(&device, REGION, full_access())?;
        let starved = VqpConfig {
            max_recv_wr: 4,
            ..VqpConfig::default()
        };
        let starved = Vqp::create(&device, &starved)?.bind(STARVED)?;
        prey.push(Prey {
            target: *target,
            region: region.remote(),
            memory: Some(region),
            port: (node == messenger::NODE).then_some(messenger::PORT),
        });
        kept.push(starved);
    }
    body(&prey)
}

/// All nodes' targets.
fn targets() -> Result<Vec<Target>> {
    (0..NODES).map(target).collect()
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

/// Sends the packets.
fn attack(args: &Args, prey: &[Prey], seed: u64, depth: &Depth) -> Result<()> {
    let mut sender = Sender::new()?;
    let mut grammar = Grammar::new(Rng::new(seed), prey, depth.capture());
    let mut counts = BTreeMap::new();
    let start = Instant::now();
    for sent in 0..args.packets {
        let packet = grammar.next();
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

/// Sends packets to all nodes while they come and go, until it is killed: as fast as they
/// go, or half as fast on a slow kernel. Whenever a meta server answers, it learns their
/// targets anew.
pub fn flood_for_ever(seed: u64) -> Result<()> {
    let known = Mutex::new(first_targets());
    let capture = Capture::start()?;
    let mut sender = Sender::new()?;
    // What it may not use: a region would be lent to it by the module that is unloaded.
    let nobodys = Remote { addr: 0, rkey: 1 };
    thread::scope(|scope| {
        scope.spawn(|| loop {
            for node in 0..NODES {
                if let Ok(target) = target(node) {
                    lock(&known)[usize::from(node)] = target;
                }
            }
            thread::sleep(Duration::from_millis(200));
        });
        for round in 0.. {
            let prey = lock(&known).clone().into_iter().map(|target| Prey {
                target,
                region: nobodys,
                memory: None,
                port: None,
            });
            let prey: Vec<_> = prey.collect();
            let mut grammar = Grammar::new(Rng::new(seed.wrapping_add(round)), &prey, &capture);
            for _ in 0..BURSTS {
                let start = Instant::now();
                for _ in 0..BURST {
                    sender.send(&grammar.next());
                }
                // A packet is handled in the call that sends it. Where that takes long,
                // nobody else would have the processor.
                if is_slow() {
                    thread::sleep(start.elapsed());
                }
            }
        }
        Ok(())
    })
}

/// The targets, once a meta server answers.
fn first_targets() -> Vec<Target> {
    loop {
        match targets() {
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
