// SPDX-License-Identifier: MIT OR Apache-2.0

//! A quick look at throughput and latency over shared memory: the ablation
//! ladder (spindle §IV.A), members as threads of this process.
//!
//! `cargo run --release -p weft --example ladder -- [members] [bytes] [senders]
//! [window] [seconds] [step]`; `senders` is a number, `step` one of the ladder.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use weft::fabric::{shm::Shm, Fabric, Write};
use weft::predicates::IdlePolicy;
use weft::{Group, Metrics, Options, Subgroup};

const STAMPS: usize = 1 << 15;
const PATIENCE: Duration = Duration::from_secs(20);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy)]
struct Case {
    members: usize,
    senders: usize,
    bytes: usize,
    window: usize,
    seconds: f64,
    options: Options,
}

/// What one member saw.
struct Seen {
    delivered: u64,
    seconds: f64,
    latencies_ns: Vec<u64>,
    metrics: Metrics,
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: usize| -> Result<usize, Failure> {
        Ok(args.next().map_or(Ok(default), |arg| arg.parse())?)
    };
    let members = number(2)?;
    let bytes = number(10_240)?;
    let senders = number(members)?;
    let window = number(100)?;
    let seconds = args.next().map_or(Ok(1.0), |arg| arg.parse())?;
    let only = args.next();
    let raw = raw_writes(bytes, window)?;
    println!(
        "plain writes: {:.2} GB/s, {:.0}/s",
        raw * bytes as f64 / 1e9,
        raw
    );
    println!(
        "lone message: {:.1} us to everybody and back (median)",
        lone_message()? as f64 / 1e3
    );
    println!("step       msgs/s/member   GB/s  p50 us  p99 us  posts/msg nulls/msg  batches s/r/d");
    for (name, options) in Options::LADDER {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let case = Case {
            members,
            senders,
            bytes,
            window,
            seconds,
            options,
        };
        report(name, bytes, &run(case)?);
    }
    Ok(())
}

fn report(name: &str, bytes: usize, seen: &[Seen]) {
    let mean = |of: &dyn Fn(&Seen) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
    let rate = mean(&|seen| seen.delivered as f64 / seen.seconds);
    let sent: u64 = seen.iter().map(|seen| seen.metrics.sent).sum();
    let per_message = |of: &dyn Fn(&Metrics) -> u64| {
        seen.iter().map(|seen| of(&seen.metrics)).sum::<u64>() as f64 / sent as f64
    };
    let mut latencies: Vec<u64> = seen
        .iter()
        .flat_map(|seen| &seen.latencies_ns)
        .copied()
        .collect();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{name:10} {rate:13.0} {:6.2} {:7.1} {:7.1} {:10.3} {:9.3}  {:.1}/{:.1}/{:.1} wait {:.0}%",
        rate * bytes as f64 / 1e9,
        at(0.5),
        at(0.99),
        per_message(&|metrics| metrics.posts),
        per_message(&|metrics| metrics.nulls),
        mean(&|seen| seen.metrics.send_batches.mean()),
        mean(&|seen| seen.metrics.receive_batches.mean()),
        mean(&|seen| seen.metrics.delivery_batches.mean()),
        mean(&|seen| seen.metrics.waited.as_secs_f64() / seen.seconds * 100.0),
    );
}

fn run(case: Case) -> Result<Vec<Seen>, Failure> {
    let start = Arc::new(Barrier::new(case.members));
    let joining: Vec<_> = Shm::threads(case.members)?
        .into_iter()
        .map(|node| {
            let start = Arc::clone(&start);
            std::thread::spawn(move || member(node, case, &start))
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| thread.join().expect("a member does not panic"))
        .collect()
}

/// The polling threads' policy, from `WEFT_SPINS` and `WEFT_QUIESCE_US`.
fn idle() -> IdlePolicy {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let default = IdlePolicy::default();
    IdlePolicy {
        spins: number("WEFT_SPINS").map_or(default.spins, |spins| spins as u32),
        quiesce_after: number("WEFT_QUIESCE_US")
            .map_or(default.quiesce_after, Duration::from_micros),
        contended_after: number("WEFT_CONTENDED_US")
            .map_or(default.contended_after, Duration::from_micros),
    }
}

/// When a member's own messages were sent and delivered.
struct Clock {
    epoch: Instant,
    stamps: Vec<AtomicU64>,
}

impl Clock {
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

fn member(node: Shm, case: Case, start: &Barrier) -> Result<Seen, Failure> {
    let rank = node.rank();
    let clock = Arc::new(Clock {
        epoch: Instant::now(),
        stamps: (0..STAMPS).map(|_| AtomicU64::new(0)).collect(),
    });
    let stop = Arc::new(AtomicBool::new(false));
    let (delivered, latencies) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(std::sync::Mutex::new(Vec::new())),
    );
    let subgroup = Subgroup::new("bench")
        .senders(0..case.senders)
        .window(case.window)
        .max_message(case.bytes)
        .options(case.options);
    let upcall = {
        let (clock, delivered, latencies) = (
            Arc::clone(&clock),
            Arc::clone(&delivered),
            Arc::clone(&latencies),
        );
        let mut own = 0;
        move |batch: &mut weft::Batch<'_>| {
            let now = clock.now();
            let mut count = 0;
            for message in batch {
                count += 1;
                if message.sender == rank {
                    let sent = clock.stamps[own % STAMPS].load(Ordering::Relaxed);
                    if own % 16 == 0 {
                        latencies
                            .lock()
                            .expect("no panic")
                            .push(now.saturating_sub(sent));
                    }
                    own += 1;
                }
            }
            delivered.fetch_add(count, Ordering::Relaxed);
        }
    };
    let group = Group::builder(node)
        .subgroup(subgroup)
        .deliver("bench", upcall)
        .idle(idle())
        .timeout(PATIENCE)
        .join()?;
    start.wait();
    let began = Instant::now();
    let sending = (rank < case.senders).then(|| -> Result<_, Failure> {
        let sender = group.sender("bench")?;
        let (stop, clock) = (Arc::clone(&stop), Arc::clone(&clock));
        Ok(std::thread::spawn(move || {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let done = sender.send(|slot| {
                    clock.stamps[sent as usize % STAMPS].store(clock.now(), Ordering::Relaxed);
                    slot[..case.bytes.min(8)]
                        .copy_from_slice(&sent.to_le_bytes()[..case.bytes.min(8)]);
                    slot.set_len(case.bytes);
                });
                if done.is_err() {
                    break;
                }
                sent += 1;
            }
        }))
    });
    let sending = sending.transpose()?;
    std::thread::sleep(Duration::from_secs_f64(case.seconds));
    let (count, seconds) = (
        delivered.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
    );
    let metrics = group.metrics("bench")?;
    start.wait();
    stop.store(true, Ordering::Relaxed);
    drop(group);
    if let Some(sending) = sending {
        sending.join().expect("a sender does not panic");
    }
    let latencies_ns = std::mem::take(&mut *latencies.lock().expect("no panic"));
    Ok(Seen {
        delivered: count,
        seconds,
        latencies_ns,
        metrics,
    })
}

/// Plain one-sided writes a second, round a ring of the same size.
fn raw_writes(bytes: usize, window: usize) -> Result<f64, Failure> {
    let slot = bytes.next_multiple_of(8);
    let region = slot * window + 4096;
    let joining: Vec<_> = Shm::threads(2)?
        .into_iter()
        .map(|node| std::thread::spawn(move || node.connect(region, &[], PATIENCE)))
        .collect();
    let mut nodes = Vec::new();
    for thread in joining {
        nodes.push(thread.join().expect("no panic")?.endpoint);
    }
    let began = Instant::now();
    let mut count = 0_u64;
    while began.elapsed() < Duration::from_millis(500) {
        for at in 0..window {
            let write = Write {
                local: at * slot,
                remote: at * slot,
                len: slot,
            };
            nodes[0].post(1, &[write])?;
        }
        count += window as u64;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Median nanoseconds from sending on an idle group to the own delivery.
fn lone_message() -> Result<u64, Failure> {
    let joining: Vec<_> = Shm::threads(2)?
        .into_iter()
        .map(|node| {
            std::thread::spawn(move || -> Result<Vec<u64>, Failure> {
                let rank = node.rank();
                let group = Group::builder(node)
                    .subgroup(Subgroup::new("lone").senders([0]))
                    .deliver("lone", |batch| batch.for_each(drop))
                    .join()?;
                let mut took = Vec::new();
                if rank == 0 {
                    let sender = group.sender("lone")?;
                    for _ in 0..200 {
                        std::thread::sleep(Duration::from_millis(4));
                        let began = Instant::now();
                        sender.send_bytes(b"12345678")?;
                        group.flush(PATIENCE)?;
                        took.push(began.elapsed().as_nanos() as u64);
                    }
                } else {
                    while !group.left().contains(0) {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
                Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for thread in joining {
        took.extend(thread.join().expect("no panic")?);
    }
    took.sort_unstable();
    Ok(took[took.len() / 2])
}
