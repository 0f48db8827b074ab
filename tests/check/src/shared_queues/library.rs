// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library's `Queues`, `Qp` and `PeerHandle`, as a program uses them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{
    Device, Error, MemoryRegion, Payload, PeerHandle, Qp, QpConfig, Queues, QueuesConfig, Receive,
    RecvWr, SendWr, Wc, WcStatus,
};
use weft_testkit::pace::patient;

use crate::two_sided::Ear;
use crate::world::{full_access, gid};

const QPS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(30);

/// A device of node 0, and a region on each of nodes 1 and 2.
struct Desk {
    device: Device,
    local: MemoryRegion,
    far: [MemoryRegion; 2],
}

impl Desk {
    fn new() -> Result<Self> {
        let device = Device::open_on(0)?;
        let region = |node| MemoryRegion::allocate(&Device::open_on(node)?, 4096, full_access());
        Ok(Self {
            local: MemoryRegion::allocate(&device, 4096, full_access())?,
            far: [region(1)?, region(2)?],
            device,
        })
    }

    fn queues(&self) -> Result<Queues, Error> {
        Queues::create(&self.device, &QueuesConfig::default())
    }

    /// A WRITE of a word, to the node whose turn it is.
    fn write(&self, at: usize) -> Result<SendWr<'_>> {
        let from = self.local.slice(8 * at..8 * at + 8)?;
        let remote = self.far[at % 2].remote().offset(8 * at as u64);
        Ok(SendWr::write(from, remote).signaled().wr_id(at as u64))
    }

    fn has_arrived(&self, at: usize, value: u64) -> Result<()> {
        let there = self.far[at % 2].load_u64(8 * at)?;
        ensure!(there == value, "word {at} is {there}, not {value}");
        Ok(())
    }
}

fn node(at: usize) -> weft_shim::Gid {
    gid(1 + (at % 2) as u8)
}

/// Queue pairs to the nodes in turn.
fn connect(queues: &Queues, count: usize) -> Result<Vec<Qp>, Error> {
    let one = |at| queues.connect(node(at), 0, &QpConfig::default());
    (0..count).map(one).collect()
}

/// So many completions.
fn wait_for_all(queues: &mut Queues, count: usize) -> Result<Vec<Wc>> {
    let mut all = Vec::new();
    let mut wcs = [Wc::default(); 64];
    while all.len() < count {
        let done = queues.enter(&[], &mut wcs, 1, patient(PATIENCE))?.completed;
        ensure!(done > 0, "{} of {count} have ended", all.len());
        all.extend_from_slice(&wcs[..done]);
    }
    ensure!(all.len() == count, "{} have ended, not {count}", all.len());
    Ok(all)
}

/// 16 WRITEs of 16 queue pairs are one system call; `poll_cq` is none.
pub fn one_call() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    let qps = connect(&queues, QPS)?;
    for round in 0..50 {
        let value = |at: usize| round * 100 + at as u64;
        let mut wrs = Vec::new();
        for (at, qp) in qps.iter().enumerate() {
            desk.local.store_u64(8 * at, value(at))?;
            wrs.push(desk.write(at)?.on(qp));
        }
        let mut wcs = [Wc::default(); QPS];
        let before = queues.system_calls();
        let progress = queues.enter(&wrs, &mut wcs, QPS, patient(PATIENCE))?;
        let more = queues.poll_cq(&mut [Wc::default(); 4]);
        let calls = queues.system_calls() - before;
        ensure!(
            (progress.submitted, progress.completed, more, calls) == (QPS, QPS, 0, 1),
            "{progress:?}, then {more}, in {calls} calls"
        );
        for wc in &wcs {
            let at = wc.wr_id() as usize;
            ensure!(wc.result()? == 8 && wc.vqp() == qps[at].number(), "{wc:?}");
            desk.has_arrived(at, value(at))?;
        }
    }
    Ok(())
}

/// Completions of queue pairs that were dropped are thrown away, those of others are not.
pub fn dropped() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    for round in 0..300 {
        let mut qps = connect(&queues, 4)?;
        let mut wrs = Vec::new();
        for n in 0..16 {
            wrs.push(desk.write(n)?.on(&qps[n % 4]));
        }
        let taken = queues.post_send(&wrs)?;
        ensure!(taken == wrs.len(), "{taken} were taken");
        if round % 2 == 0 {
            // So that completions are in the ring.
            thread::sleep(Duration::from_micros(300));
        }
        let kept = qps.remove(round % 4);
        drop(qps);
        let wcs = wait_for_all(&mut queues, 4)?;
        let are_its = wcs
            .iter()
            .all(|wc| wc.vqp() == kept.number() && wc.result().is_ok());
        ensure!(are_its, "round {round}: {wcs:?}");
        let more = queues.poll_cq(&mut [Wc::default(); 64]);
        ensure!(more == 0, "round {round}: {more} more");
    }
    Ok(())
}

/// A call that waits does not take completions of queue pairs that were dropped for what it
/// waits for.
pub fn waits_for_others() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    let mut ear = Ear::new(4096, 8)?;
    let slow = queues.connect(gid(1), ear.port, &QpConfig::default())?;
    let gone = connect(&queues, 1)?;
    let taken = queues.post_send(&[desk.write(0)?.on(&gone[0]); 4])?;
    ensure!(taken == 4, "{taken} were taken");
    thread::sleep(Duration::from_millis(50));
    drop(gone);
    let call = SendWr::send(Payload::inline(b"call")?).signaled().on(&slow);
    let mut wcs = [Wc::default(); 8];
    let progress = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            ear.post(1, 64)
        });
        queues.enter(&[call], &mut wcs, 1, patient(PATIENCE))
    })?;
    ensure!(
        (progress.submitted, progress.completed, wcs[0].vqp()) == (1, 1, slow.number()),
        "{progress:?}, {:?}",
        wcs[0]
    );
    wcs[0].result()?;
    Ok(())
}

/// A queue pair is dropped during a wait, which its completion helps to end: the wait goes on,
/// but not from the start.
pub fn waits_once() -> Result<()> {
    const WAIT: Duration = Duration::from_secs(2);
    // A target without a buffer fails a SEND after two seconds: well before that.
    const UNTIL_BUFFER: Duration = Duration::from_millis(1200);
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    let mut ear = Ear::new(4096, 8)?;
    let slow = queues.connect(gid(1), ear.port, &QpConfig::default())?;
    let gone = connect(&queues, 1)?;
    let taken = queues.post_send(&[desk.write(0)?.on(&gone[0])])?;
    ensure!(taken == 1, "{taken} were taken");
    thread::sleep(Duration::from_millis(50));
    let call = SendWr::send(Payload::inline(b"call")?).signaled().on(&slow);
    let mut wcs = [Wc::default(); 8];
    let start = Instant::now();
    let (progress, posted) = thread::scope(|scope| {
        let poster = scope.spawn(|| {
            thread::sleep(UNTIL_BUFFER / 10);
            drop(gone);
            thread::sleep(UNTIL_BUFFER * 9 / 10);
            let posted = start.elapsed();
            ear.post(1, 64).map(|()| posted)
        });
        let progress = queues.enter(&[call], &mut wcs, 2, WAIT);
        let posted = poster.join().expect("the poster does not panic");
        anyhow::Ok((progress?, posted?))
    })?;
    let took = start.elapsed();
    ensure!(
        (progress.submitted, progress.completed, wcs[0].vqp()) == (1, 1, slow.number()),
        "{progress:?}, {:?}",
        wcs[0]
    );
    wcs[0].result()?;
    // The call's completion would have begun a wait of full length.
    ensure!(
        took < posted + WAIT,
        "a wait of {WAIT:?} took {took:?}, with a completion at {posted:?}"
    );
    Ok(())
}

/// A queue pair that has the number of one that was dropped before gets its completions.
pub fn numbers_again() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    let first = connect(&queues, 1)?.remove(0).number();
    let mut tries = 0;
    let qp = loop {
        let qp = connect(&queues, 1)?.remove(0);
        tries += 1;
        if qp.number() == first {
            break qp;
        }
        ensure!(tries < 10_000, "no number was given again");
    };
    println!("# a number was given again after {tries} queue pairs");
    let mut wcs = [Wc::default()];
    for _ in 0..3 {
        let wr = desk.write(0)?.on(&qp);
        let progress = queues.enter(&[wr], &mut wcs, 1, patient(PATIENCE / 10))?;
        ensure!(progress.completed == 1, "{progress:?}");
        wcs[0].result()?;
    }
    Ok(())
}

/// Room for receive buffers.
const BUFFERS: usize = 8;

/// Queues on node 0 with receive buffers that have their numbers.
fn with_buffers(desk: &Desk) -> Result<Queues> {
    let config = QueuesConfig {
        max_recv_wr: BUFFERS as u32,
        ..QueuesConfig::default()
    };
    let mut queues = Queues::create(&desk.device, &config)?;
    let buffer = |n: usize| {
        let into = desk.local.slice(64 * n..64 * n + 64)?;
        Ok::<_, Error>(RecvWr::new(into).wr_id(n as u64))
    };
    let buffers = (0..BUFFERS + 1)
        .map(buffer)
        .collect::<Result<Vec<_>, _>>()?;
    let posted = queues.post_recv(&buffers);
    ensure!(posted == BUFFERS, "it has room for {posted} buffers");
    Ok(queues)
}

/// Calls a port; the one there answers with a number.
fn be_answered(queues: &mut Queues, qp: &Qp, ear: &mut Ear, number: u32) -> Result<()> {
    ear.post(1, 64)?;
    let call = SendWr::send(Payload::inline(b"call")?).on(qp);
    ensure!(queues.post_send(&[call])? == 1, "it was not taken");
    let sender = ear.next()?.sender();
    let sender = sender.context("it has no sender")?;
    let answer = SendWr::send_with_imm(Payload::inline(b"answer")?, number);
    ear.listener.vqp(sender)?.run(answer)?;
    Ok(())
}

/// Queue pairs that share receive buffers take them in order, and those of one that is
/// dropped or fails are not lost.
pub fn receives() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = with_buffers(&desk)?;
    let mut ear = Ear::new(4096, 8)?;
    let shared = QpConfig {
        receive: Receive::Shared,
        ..QpConfig::default()
    };
    let connect = |_| queues.connect(gid(1), ear.port, &shared);
    let mut qps = (0..3).map(connect).collect::<Result<Vec<_>, _>>()?;
    let own = QpConfig {
        receive: Receive::Own,
        ..shared
    };
    let refused = queues.connect(gid(1), ear.port, &own);
    ensure!(
        matches!(refused, Err(Error::ReceiveQueueInUse)),
        "{refused:?}"
    );
    for (n, qp) in (0..).zip(&qps) {
        be_answered(&mut queues, qp, &mut ear, n)?;
    }
    // The answer to one that is dropped is in the ring; its buffer comes back with it.
    let numbers: Vec<u32> = qps.iter().map(Qp::number).collect();
    drop(qps.remove(1));
    let nowhere = weft_shim::Remote { addr: 64, rkey: 3 };
    let bad = SendWr::write(desk.local.slice(0..8)?, nowhere).on(&qps[0]);
    ensure!(queues.post_send(&[bad])? == 1, "it was not taken");
    let wcs = wait_for_all(&mut queues, 4)?;
    for (n, wc) in wcs.iter().filter(|wc| wc.is_recv()).enumerate() {
        let told = (wc.wr_id(), wc.vqp(), wc.imm(), wc.result()?);
        ensure!(
            told == (n as u64, numbers[n], Some(n as u32), 6),
            "answer {n}: {wc:?}"
        );
    }
    let last = wcs.last().and_then(Wc::status);
    ensure!(last == Some(WcStatus::RemAccessErr), "the bad one: {wcs:?}");
    // The failed one has given none back; the third one takes the next.
    be_answered(&mut queues, &qps[1], &mut ear, 9)?;
    let wc = wait_for_all(&mut queues, 1)?[0];
    ensure!(
        (wc.wr_id(), wc.imm(), wc.vqp()) == (3, Some(9), numbers[2]),
        "{wc:?}"
    );
    Ok(())
}

/// The buffers of a queue pair whose own the receive queue is come back when it fails.
pub fn own_receives() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = with_buffers(&desk)?;
    let mut ear = Ear::new(4096, 8)?;
    let own = QpConfig {
        receive: Receive::Own,
        ..QpConfig::default()
    };
    let qp = queues.connect(gid(1), ear.port, &own)?;
    let beside = connect(&queues, 1)?.remove(0);
    be_answered(&mut queues, &qp, &mut ear, 1)?;
    let wc = wait_for_all(&mut queues, 1)?[0];
    ensure!(
        (wc.wr_id(), wc.imm(), wc.result()?) == (0, Some(1), 6),
        "{wc:?}"
    );
    let nowhere = weft_shim::Remote { addr: 64, rkey: 3 };
    let bad = SendWr::write(desk.local.slice(0..8)?, nowhere).on(&qp);
    let good = desk.write(0)?.on(&beside);
    ensure!(queues.post_send(&[bad, good])? == 2, "they were not taken");
    let wcs = wait_for_all(&mut queues, 2 + BUFFERS - 1)?;
    let buffers = wcs.iter().filter(|wc| wc.is_recv());
    let flushed = buffers.filter(|wc| wc.status() == Some(WcStatus::WrFlushErr));
    let numbers: Vec<u64> = flushed.map(Wc::wr_id).collect();
    ensure!(
        numbers.iter().copied().eq(1..BUFFERS as u64),
        "{numbers:?} came back"
    );
    let good = wcs.iter().filter(|wc| wc.vqp() == beside.number());
    ensure!(
        good.map(|wc| wc.result()).eq([Ok(8)]),
        "the other one: {wcs:?}"
    );
    Ok(())
}

/// One queue pair without a peer, and handles: an error is one handle's.
pub fn unconnected() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    let qp = queues.unconnected(&QpConfig::default())?;
    let open = |at| PeerHandle::open(&desk.device, node(at), 0);
    let mut peers = (0..QPS).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut wrs = Vec::new();
    for (at, peer) in peers.iter().enumerate() {
        desk.local.store_u64(8 * at, 7000 + at as u64)?;
        let wr = desk.write(at)?;
        // A READ to where nothing is.
        let nowhere = weft_shim::Remote { addr: 64, rkey: 3 };
        let bad = SendWr::read(desk.local.slice(2048..2056)?, nowhere).signaled();
        wrs.push(if at == 5 { bad.wr_id(5) } else { wr }.on_to(&qp, peer));
    }
    let mut wcs = [Wc::default(); QPS];
    let before = queues.system_calls();
    let progress = queues.enter(&wrs, &mut wcs, QPS, patient(PATIENCE))?;
    ensure!(
        (progress.completed, queues.system_calls() - before) == (QPS, 1),
        "{progress:?}"
    );
    for wc in &wcs {
        let at = wc.wr_id() as usize;
        ensure!(
            wc.peer() == Some(peers[at].number()),
            "another peer is named: {wc:?}"
        );
        match at {
            5 => ensure!(
                wc.status() == Some(WcStatus::RemAccessErr),
                "the bad one: {wc:?}"
            ),
            _ => desk.has_arrived(at, 7000 + wc.result().map(|_| at as u64)?)?,
        }
    }
    let again = desk.write(5)?.on_to(&qp, &peers[5]);
    let progress = queues.enter(&[again], &mut wcs, 1, patient(PATIENCE))?;
    ensure!(progress.completed == 1, "{progress:?}");
    ensure!(
        wcs[0].status() == Some(WcStatus::WrFlushErr),
        "{:?}",
        wcs[0]
    );
    let number = peers[5].number();
    peers[5] = open(5)?;
    ensure!(peers[5].number() != number, "a handle was given twice");
    let again = desk.write(5)?.on_to(&qp, &peers[5]);
    let progress = queues.enter(&[again], &mut wcs, 1, patient(PATIENCE))?;
    ensure!(progress.completed == 1, "{progress:?}");
    wcs[0].result()?;
    desk.has_arrived(5, 7005)
}

/// What cannot be is an error that says why.
pub fn refusals() -> Result<()> {
    let desk = Desk::new()?;
    let mut queues = desk.queues()?;
    let config = QpConfig::default();
    let refused = queues.connect(gid(200), 0, &config);
    ensure!(matches!(refused, Err(Error::UnknownPeer(_))), "{refused:?}");
    let refused = PeerHandle::open(&desk.device, gid(200), 0);
    ensure!(matches!(refused, Err(Error::UnknownPeer(_))), "{refused:?}");
    let refused = queues.connect(weft_shim::Gid::default(), 0, &config);
    ensure!(matches!(refused, Err(Error::ZeroGid)), "{refused:?}");
    let refused = queues.qp(&QpConfig {
        max_send_wr: 0,
        ..config
    });
    ensure!(
        matches!(refused, Err(Error::BadCapacity { .. })),
        "{refused:?}"
    );
    let hears = QpConfig {
        receive: Receive::Own,
        ..config
    };
    for refused in [queues.qp(&hears), queues.unconnected(&hears)] {
        ensure!(matches!(refused, Err(Error::MissingQueue)), "{refused:?}");
    }
    let lonely = queues.qp(&config)?;
    let refused = queues.post_send(&[desk.write(0)?.on(&lonely)]);
    ensure!(matches!(refused, Err(Error::NotConnected)), "{refused:?}");
    let refused = queues.post_send(&[desk.write(0)?]);
    ensure!(
        matches!(refused, Err(Error::NoSuchVqp)),
        "on no queue pair: {refused:?}"
    );
    lonely.qconnect(gid(1), 0)?;
    let refused = lonely.qconnect(gid(1), 0);
    ensure!(
        matches!(refused, Err(Error::AlreadyConnected)),
        "{refused:?}"
    );
    let refused = queues.unconnected(&config)?.qconnect(gid(1), 0);
    ensure!(matches!(refused, Err(Error::CannotConnect)), "{refused:?}");
    // Places for completions are taken by those that were not reaped.
    let wrs = [desk.write(0)?.on(&lonely); 16];
    let mut taken = 0;
    let refused = loop {
        match queues.post_send(&wrs) {
            Ok(count) => taken += count,
            refused => break refused,
        }
        ensure!(taken <= 1024, "{taken} were taken");
        // Some are under way still, and `lonely` may have only so many.
        thread::sleep(Duration::from_millis(1));
    };
    ensure!(matches!(refused, Err(Error::QueueFull)), "{refused:?}");
    wait_for_all(&mut queues, taken).map(drop)
}
