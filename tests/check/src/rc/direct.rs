// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that are carried out in the call that posts them (`uapi::Run`): they do
//! what those of the ring do, in turn with them, and what may not be is not begun.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{
    Pod, Run, SendWr, Sge, Wc, WcStatus, MAX_MSG_BYTES, OP_CAS, OP_READ, OP_SEND, OP_WRITE,
    RUN_RESUME,
};

use super::blocks::BLOCK;
use super::loss::{both_break, link_comes_up, set_link};
use super::pins::wait_until_up;
use crate::raw::{request, Memory, Queue, Session};
use crate::rng::Rng;
use crate::signals::under_signals;
use crate::world::{counter, gid, timely, wait_for};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

const LEN: usize = 64 << 10;

fn map() -> Result<Memory, Errno> {
    Memory::map_in_block(LEN, BLOCK as u64)
}
const GUARD: u8 = 0xee;
const WAIT_NS: u64 = 30_000_000_000;
/// The first of many requests has ended within this time.
const BEGINS: Duration = Duration::from_secs(10);
/// A call that waited for them would never return: there is always another one.
const AT_ONCE: Duration = Duration::from_secs(20);
/// The link goes down within this time.
const LINK_GOES: Duration = Duration::from_secs(30);
/// How often the link goes down until it does under a request that is run.
const TRIES: usize = 4;

/// Memory of two nodes and a VQP between them.
struct Fixture {
    near: Session,
    far: Session,
    here: Memory,
    there: Memory,
    lkey: u32,
    rkey: u32,
    queue: Queue,
}

impl Fixture {
    fn new() -> Result<Self> {
        let (near, far) = (Session::open(0)?, Session::open(1)?);
        let (here, there) = (map()?, map()?);
        let queue = near.queue(16, 0)?;
        near.qconnect(queue.vqp, gid(1))?;
        Ok(Self {
            lkey: near.register(&here, 0, LEN as u64, 7)?.lkey,
            rkey: far.register(&there, 0, LEN as u64, 7)?.rkey,
            near,
            far,
            here,
            there,
            queue,
        })
    }

    /// One that is all right: the first `len` bytes of both.
    fn good(&self, opcode: u8, len: u32) -> Run {
        Run {
            vqp: self.queue.vqp,
            opcode: opcode.into(),
            rkey: self.rkey,
            reserved: 0,
            remote_addr: self.there.addr(),
            local: Sge {
                addr: self.here.addr(),
                len,
                lkey: self.lkey,
            },
        }
    }

    fn by_ring(&self, opcode: u8, at: u64, len: u32) -> SendWr {
        let local = Sge {
            addr: self.here.addr() + at,
            len,
            lkey: self.lkey,
        };
        request(opcode, local, self.there.addr(), self.rkey)
    }

    fn succeeds(&self, run: &Run) -> Result<()> {
        let status = self.near.run(run)?;
        ensure!(status == WcStatus::Success, "it ended with {status:?}");
        Ok(())
    }
}

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    report.check(
        "what is run directly arrives, and leaves no completion",
        || arrives(seed, 200),
    );
    refused(report);
    report.check("it takes its turn behind what is in the ring", || {
        in_turn(100)
    });
    report.check("threads that run on one VQP do so one at a time", shared);
    report.check("a VQP in error runs nothing", in_error);
    report.check("a VQP that is destroyed meanwhile answers", destroyed);
}

fn arrives(seed: u64, rounds: usize) -> Result<()> {
    let fixture = Fixture::new()?;
    let mut rng = Rng::new(seed);
    let chains = counter("rc_chains")?;
    for round in 0..rounds {
        let len = 1 + rng.below(LEN);
        let bytes = rng.bytes(len);
        fixture.here.fill(0, &bytes);
        fixture.there.fill(0, &vec![GUARD; LEN]);
        fixture.succeeds(&fixture.good(OP_WRITE, len as u32))?;
        ensure!(
            fixture.there.bytes(0, len) == bytes,
            "round {round}: other bytes came"
        );
        let behind = fixture.there.bytes(len, LEN - len);
        ensure!(
            behind.iter().all(|b| *b == GUARD),
            "round {round}: more came"
        );
        fixture.here.fill(0, &vec![GUARD; LEN]);
        fixture.succeeds(&fixture.good(OP_READ, len as u32))?;
        ensure!(
            fixture.here.bytes(0, len) == bytes,
            "round {round}: other bytes were read"
        );
    }
    let chains = counter("rc_chains")? - chains;
    ensure!(
        chains >= 2 * rounds as i64,
        "{chains} chains: not all went by RC"
    );
    let completions = fixture.queue.take(&mut [Wc::zeroed()]);
    ensure!(completions == 0, "a completion came");
    Ok(())
}

/// What the ring has to judge is not begun, and harms nothing.
fn refused(report: &mut Report) {
    let fixture = report.need("memory for what may not be run", Fixture::new);
    let Some(fixture) = fixture else { return };
    let keys = report.need("keys for it", || keys(&fixture));
    let Some(Keys {
        foreign,
        read_only,
        local_only,
        gone,
        _other,
    }) = keys
    else {
        return;
    };
    let end = fixture.here.addr() + LEN as u64;
    let far_end = fixture.there.addr() + LEN as u64;
    let (read, write) = (fixture.good(OP_READ, 8), fixture.good(OP_WRITE, 8));
    let local = |run: Run, change: fn(&mut Sge, u64), value: u64| {
        let mut run = run;
        change(&mut run.local, value);
        run
    };
    let key = |sge: &mut Sge, key: u64| sge.lkey = key as u32;
    let addr = |sge: &mut Sge, addr: u64| sge.addr = addr;
    let len = |sge: &mut Sge, len: u64| sge.len = len as u32;
    let opcode = |opcode: u32| Run { opcode, ..write };
    let rkey = |run: Run, rkey: u32| Run { rkey, ..run };
    let at = |run: Run, remote_addr: u64| Run { remote_addr, ..run };
    let cases = [
        ("an atomic operation", opcode(OP_CAS.into())),
        ("a message", opcode(OP_SEND.into())),
        ("an unknown opcode", opcode(77)),
        (
            "an opcode of more than a byte",
            opcode(256 + u32::from(OP_READ)),
        ),
        ("no bytes", local(read, len, 0)),
        (
            "too many bytes",
            local(read, len, u64::from(MAX_MSG_BYTES) + 1),
        ),
        ("a local key of nobody", local(read, key, 1)),
        (
            "another session's local key",
            local(read, key, foreign.into()),
        ),
        (
            "a local region that is not for READs",
            local(read, key, read_only.into()),
        ),
        ("local bytes behind the region", local(write, addr, end - 7)),
        (
            "local bytes before the region",
            local(write, addr, fixture.here.addr() - 1),
        ),
        (
            "local bytes that wrap around",
            local(write, addr, u64::MAX - 3),
        ),
        ("a remote key of nobody", rkey(read, 1)),
        ("a remote key that has gone", rkey(write, gone)),
        (
            "a remote region that is the peer's alone",
            rkey(read, local_only),
        ),
        ("remote bytes behind the region", at(read, far_end - 7)),
        (
            "remote bytes before the region",
            at(write, fixture.there.addr() - 1),
        ),
        ("remote bytes that wrap around", at(write, u64::MAX - 3)),
    ];
    fixture.here.fill(0, &vec![GUARD; LEN]);
    fixture.there.fill(0, &vec![!GUARD; LEN]);
    for (name, run) in cases {
        report.check(&format!("{name}: EAGAIN, and nothing else"), || {
            let outcome = fixture.near.run(&run);
            ensure!(outcome == Err(Errno::EAGAIN), "it is {outcome:?}");
            let here = fixture.here.bytes(0, LEN).iter().all(|b| *b == GUARD);
            let there = fixture.there.bytes(0, LEN).iter().all(|b| *b == !GUARD);
            ensure!(here && there, "bytes have moved");
            Ok(())
        });
    }
    report.check("after all that the VQP runs what is right", || {
        fixture.succeeds(&write)
    });
}

/// Keys that do not allow something.
struct Keys {
    foreign: u32,
    read_only: u32,
    local_only: u32,
    gone: u32,
    /// The session of the first.
    _other: Session,
}

fn keys(fixture: &Fixture) -> Result<Keys> {
    let other = Session::open(0)?;
    let len = LEN as u64;
    let gone = fixture.far.register(&fixture.there, 0, len, 7)?.rkey;
    // Known to the other side before it goes.
    fixture.succeeds(&Run {
        rkey: gone,
        ..fixture.good(OP_READ, 8)
    })?;
    fixture.far.deregister(gone)?;
    Ok(Keys {
        foreign: other.register(&fixture.here, 0, len, 7)?.lkey,
        read_only: fixture.near.register(&fixture.here, 0, len, 0)?.lkey,
        local_only: fixture.far.register(&fixture.there, 0, len, 1)?.rkey,
        gone,
        _other: other,
    })
}

/// WRITEs by the ring, that nobody waits for, and then a READ of what they write.
fn in_turn(rounds: u64) -> Result<()> {
    const BATCH: u64 = 15;
    let fixture = Fixture::new()?;
    for round in 0..rounds {
        let wrs: Vec<SendWr> = (1..=BATCH)
            .map(|n| {
                let at = 8 * n;
                fixture
                    .here
                    .word(at as usize)
                    .store(round * BATCH + n, Ordering::Relaxed);
                fixture.by_ring(OP_WRITE, at, 8)
            })
            .collect();
        let taken = fixture.queue.enter(&fixture.near, &wrs, &mut [], 0, 0)?.0;
        ensure!(taken == wrs.len(), "{taken} were taken");
        fixture.succeeds(&fixture.good(OP_READ, 8))?;
        let seen = fixture.here.word(0).load(Ordering::Relaxed);
        let last = (round + 1) * BATCH;
        ensure!(
            seen == last,
            "round {round}: {seen} was read, {last} written"
        );
    }
    Ok(())
}

/// Requests that are run while signals come, until the peer is out of reach: one that is
/// interrupted is left on its way, and waited for again.
pub(super) fn interrupted(report: &mut Report) -> Result<()> {
    wait_until_up()?;
    report.check("nothing was interrupted: ENOENT", || {
        let fixture = Fixture::new()?;
        fixture.succeeds(&fixture.good(OP_READ, 8))?;
        let outcome = fixture.resume();
        ensure!(outcome == Err(Errno::ENOENT), "it is {outcome:?}");
        Ok(())
    });
    let name = "a signal ends the call and not the request, whose place no other takes";
    let last = report.need(name, || {
        let mut tries = (0..TRIES).filter_map(|_| link_goes_down().transpose());
        tries.next().context("only look-ups were interrupted")?
    });
    let Some(last) = last else { return Ok(()) };
    report.check("a signal ends the call that waits again", || {
        ensure!(last.again != 0, "{last:?}");
        Ok(())
    });
    report.check("whoever waits again learns how it ended", || {
        let outcome = last.end;
        ensure!(outcome == Ok(WcStatus::RetryExcErr), "it is {outcome:?}");
        let outcome = last.once_more;
        ensure!(outcome == Err(Errno::ENOENT), "once more: {outcome:?}");
        Ok(())
    });
    Ok(())
}

/// `None`: it did under the look-up of the key, which comes before the request.
fn link_goes_down() -> Result<Option<Interrupted>> {
    wait_until_up()?;
    let fixture = Fixture::new()?;
    fixture.succeeds(&fixture.good(OP_READ, 8))?;
    let lost = counter("rc_lost")?;
    let last = thread::scope(|scope| {
        // It begins before the link goes down: that takes long on a busy machine, and the
        // queue pair breaks soon after.
        let runner = scope.spawn(|| under_signals(|| fixture.run_until_one_fails())?);
        set_link("down")?;
        runner.join().map_err(|_| anyhow!("it panicked"))?
    });
    let broken = both_break(lost);
    // Whatever came of it: what follows needs the link.
    link_comes_up()?;
    broken?;
    last
}

type Outcome = Result<WcStatus, Errno>;

/// A request whose call a signal has ended, and which had not ended itself.
#[derive(Debug)]
struct Interrupted {
    /// How often waiting again was interrupted.
    again: usize,
    /// How the request ended.
    end: Outcome,
    /// The answer to one who waits for it after that.
    once_more: Outcome,
}

impl Fixture {
    fn resume(&self) -> Outcome {
        self.near.run(&Run {
            opcode: RUN_RESUME,
            ..self.good(OP_READ, 8)
        })
    }

    /// Runs requests while signals come, until one fails. That one is interrupted: it takes
    /// many times as long as a signal to come.
    fn run_until_one_fails(&self) -> Result<Option<Interrupted>> {
        let run = self.good(OP_READ, 8);
        let mut left = false;
        let start = Instant::now();
        while start.elapsed() < patient(LINK_GOES) {
            match self.near.run(&run) {
                Ok(WcStatus::Success) => left = false,
                // One that was left and has ended gives its place to the next.
                Err(Errno::EINTR) => left = true,
                Err(Errno::EAGAIN) if left => {
                    let last = self.wait_again();
                    if last.end != Ok(WcStatus::Success) || last.once_more != Err(Errno::ENOENT) {
                        return Ok(Some(last));
                    }
                    left = false;
                }
                Err(Errno::EAGAIN) => return Ok(None),
                other => bail!("it is {other:?}"),
            }
        }
        bail!("none of them fails")
    }

    fn wait_again(&self) -> Interrupted {
        let mut again = 0;
        let end = loop {
            match self.resume() {
                Err(Errno::EINTR) => again += 1,
                end => break end,
            }
        };
        let once_more = self.resume();
        Interrupted {
            again,
            end,
            once_more,
        }
    }
}

/// Each call has done its request, or nothing.
fn shared() -> Result<()> {
    const THREADS: usize = 4;
    const EACH: usize = 300;
    let fixture = Fixture::new()?;
    let busy = AtomicU64::new(0);
    let one = |thread: usize| -> Result<()> {
        let mut run = fixture.good(OP_WRITE, 8);
        run.local.addr += 8 * thread as u64;
        run.remote_addr += 8 * thread as u64;
        for value in 1..=EACH as u64 {
            fixture
                .here
                .word(8 * thread)
                .store(value, Ordering::Relaxed);
            loop {
                match fixture.near.run(&run) {
                    Ok(WcStatus::Success) => break,
                    Err(Errno::EAGAIN) => busy.fetch_add(1, Ordering::Relaxed),
                    other => bail!("thread {thread}: {other:?}"),
                };
                thread::yield_now();
            }
            let there = fixture.there.word(8 * thread).load(Ordering::Relaxed);
            ensure!(
                there == value,
                "thread {thread}: {there} instead of {value}"
            );
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || one(n))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("it panicked"))?)
    })?;
    let busy = busy.into_inner();
    ensure!(busy != 0, "the threads never met");
    Ok(())
}

/// A request of the ring has failed.
fn in_error() -> Result<()> {
    let fixture = Fixture::new()?;
    let run = fixture.good(OP_READ, 8);
    fixture.succeeds(&run)?;
    let bad = SendWr {
        rkey: 1,
        ..fixture.by_ring(OP_READ, 0, 8)
    };
    let mut wcs = [Wc::zeroed()];
    fixture
        .queue
        .enter(&fixture.near, &[bad], &mut wcs, 1, WAIT_NS)?;
    let status = WcStatus::from_number(wcs[0].status.into());
    ensure!(
        status == Some(WcStatus::RemAccessErr),
        "it ended with {status:?}"
    );
    let outcome = fixture.near.run(&run);
    ensure!(outcome == Err(Errno::EAGAIN), "it is {outcome:?}");
    let next = fixture
        .queue
        .outcome(&fixture.near, fixture.by_ring(OP_READ, 0, 8))?;
    ensure!(next == WcStatus::WrFlushErr, "the ring says {next:?}");
    Ok(())
}

/// A call ends well or finds no VQP; never anything else, and never not at all. The VQP
/// goes without waiting for the one who runs.
fn destroyed() -> Result<()> {
    for _ in 0..30 {
        let fixture = Fixture::new()?;
        let run = fixture.good(OP_READ, LEN as u32);
        let has_run = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let runner = scope.spawn(|| loop {
                match fixture.near.run(&run) {
                    Ok(WcStatus::Success) => has_run.store(true, Ordering::Relaxed),
                    Err(Errno::EAGAIN) => {}
                    other => return other,
                }
            });
            let began = wait_for("it runs", BEGINS, || Ok(has_run.load(Ordering::Relaxed)));
            let gone = timely(AT_ONCE, || fixture.near.destroy_vqp(fixture.queue.vqp));
            let last = runner.join().map_err(|_| anyhow!("it panicked"))?;
            began?;
            gone??;
            ensure!(last == Err(Errno::EBADF), "it ended with {last:?}");
            Ok(())
        })
        .context("a VQP that goes")?;
    }
    Ok(())
}
