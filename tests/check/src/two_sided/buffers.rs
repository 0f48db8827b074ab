// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receivers without buffers, with late ones, with bad ones, and no receiver at all.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{
    Access, Device, MemoryRegion, Payload, RecvWr, SendWr, Sges, Vqp, VqpConfig, Wc, WcStatus,
};

use super::ends::{are, ends, new_port, post, reap, reap_wcs, sender, Ear, PATIENCE};
use crate::world::{connect, counter, full_access, wait_for, Link};
use weft_testkit::pace::patient;

use WcStatus::{
    LocLenErr, LocProtErr, RemAbortErr, RemInvReqErr, RemOpErr, RetryExcErr, RnrRetryExcErr,
    Success, WrFlushErr,
};

fn hello(imm: u32) -> Result<SendWr<'static>> {
    let payload = Payload::inline(b"hello")?;
    Ok(SendWr::send_with_imm(payload, imm).signaled())
}

/// Nobody offers a buffer: the message ends after a while, what is behind it is
/// flushed, and all the while other VQPs of this thread, and so of its CPU, go on.
pub fn none_at_all() -> Result<()> {
    let device = Device::open_on(0)?;
    let (mut deaf, mut other) = (Ear::new(4096, 4)?, Ear::new(4096, 16)?);
    let mut link = Link::new(1, 4096, 16)?;
    let mut held_up = deaf.sender(&device, 16)?;
    let mut one_sided = connect(&device, 1, 16)?;
    let local = MemoryRegion::allocate(&device, 64, full_access())?;
    // Connected to the receiver's port too, but it sends nothing there.
    let mut neighbour = deaf.sender(&device, 16)?;
    post(&mut held_up, &[hello(0)?; 5])?;
    let mut rounds = 0;
    let mut wcs = [Wc::default(); 8];
    let mut statuses = Vec::new();
    while statuses.len() < 5 {
        for vqp in [&mut one_sided, &mut neighbour] {
            vqp.write(local.slice(0..8)?, link.remote.remote())?;
        }
        link.works(rounds + 1)?;
        other.works(&device)?;
        let done = held_up.poll_cq(&mut wcs)?;
        statuses.extend(wcs[..done].iter().filter_map(Wc::status));
        rounds += 1;
    }
    let mut wanted = vec![WrFlushErr; 5];
    wanted[0] = RnrRetryExcErr;
    are("they", &statuses, &wanted)?;
    ensure!(rounds > 2, "others were held up: {rounds} rounds meanwhile");
    println!("# {rounds} rounds of other VQPs meanwhile");
    deaf.is_quiet()?;
    deaf.works(&device).context("the receiver, afterwards")
}

/// Buffers that come after the messages.
pub fn late() -> Result<()> {
    const MESSAGES: usize = 40;
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(4096, 8)?;
    let mut vqp = ear.sender(&device, 64)?;
    let mut wrs = Vec::new();
    for n in 0..MESSAGES {
        wrs.push(hello(n as u32)?.wr_id(n as u64));
    }
    let before = counter("not_ready")?;
    post(&mut vqp, &wrs)?;
    wait_for("it is told that there is no buffer", PATIENCE, || {
        Ok(counter("not_ready")? > before)
    })?;
    for n in 0..MESSAGES {
        ear.post(1, 64)?;
        let message = ear.next()?;
        ensure!(
            message.result()? == 5 && message.imm() == Some(n as u32),
            "message {n} is {message:?}"
        );
    }
    let ids: Vec<u64> = reap_wcs(&mut vqp, MESSAGES)?
        .iter()
        .map(|wc| wc.result().map(|_| wc.wr_id()))
        .collect::<Result<_, _>>()?;
    ensure!(ids.iter().copied().eq(0..MESSAGES as u64), "{ids:?}");
    ear.is_quiet()
}

/// The same for the immediate of a WRITE: its bytes may be there before it, and it
/// not before them.
pub fn late_immediate() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(4096, 8)?;
    let mut vqp = ear.sender(&device, 16)?;
    let local = MemoryRegion::allocate(&device, 20_000, full_access())?;
    let target = MemoryRegion::allocate(&ear.device, 20_000, full_access())?;
    local.copy_in(0, &[7; 20_000])?;
    let before = counter("not_ready")?;
    let from = local.slice(0..20_000)?;
    post(
        &mut vqp,
        &[SendWr::write_with_imm(from, target.remote(), 3).signaled()],
    )?;
    wait_for("it is told that there is no buffer", PATIENCE, || {
        Ok(counter("not_ready")? > before)
    })?;
    ensure!(vqp.poll_cq(&mut [Wc::default()])? == 0, "it has ended");
    ensure!(
        ear.listener.post_recv(&[RecvWr::empty()]) == 1,
        "no room for a buffer"
    );
    let message = ear.next()?;
    ensure!(
        (message.result()?, message.imm()) == (20_000, Some(3)),
        "it is {message:?}"
    );
    let mut bytes = vec![0; 20_000];
    target.copy_out(0, &mut bytes)?;
    ensure!(bytes.iter().all(|byte| *byte == 7), "bytes are missing");
    are("it", &reap(&mut vqp, 1)?, &[Success])
}

/// Nobody is bound to the port.
pub fn nobody() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut vqp = sender(&device, new_port(), 16, 0)?;
    are(
        "they",
        &ends(&mut vqp, &[hello(0)?; 3])?,
        &[RetryExcErr, WrFlushErr, WrFlushErr],
    )?;
    // One that may send no messages at all.
    let mut vqp = connect(&device, 1, 16)?;
    are(
        "a message of a VQP without port",
        &ends(&mut vqp, &[hello(0)?])?,
        &[WcStatus::LocQpOpErr],
    )
}

/// One message that its receiver cannot take, of `len` bytes, into a buffer of `room`
/// bytes in `memory`; nothing of that is touched but perhaps the buffer itself.
fn refused(ear: &mut Ear, len: usize, room: usize, wanted: [WcStatus; 2]) -> Result<()> {
    const AT: usize = 4091;
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, len, full_access())?;
    local.copy_in(0, &vec![0xbb; len])?;
    let size = ear.memory.len();
    ear.memory.copy_in(0, &vec![0xee; size])?;
    let buffer = RecvWr::new(ear.memory.slice(AT..AT + room)?).wr_id(5);
    ensure!(ear.listener.post_recv(&[buffer]) == 1, "no room");
    let mut vqp = ear.sender(&device, 16)?;
    let wr = SendWr::send(local.slice(0..len)?).signaled();
    are(
        "they",
        &ends(&mut vqp, &[wr, hello(1)?])?,
        &[wanted[1], WrFlushErr],
    )?;
    let message = ear.next()?;
    ensure!(
        message.wr_id() == 5 && message.wc().status() == Some(wanted[0]),
        "the receiver got {message:?}"
    );
    let mut bytes = vec![0; size];
    ear.memory.copy_out(0, &mut bytes)?;
    let outside = bytes[..AT].iter().chain(&bytes[AT + room..]);
    ensure!(
        outside.copied().all(|byte| byte == 0xee),
        "a byte beside the buffer has changed"
    );
    Ok(())
}

/// Shorter than its message: by one byte, by all of them, by many packets.
pub fn too_small() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(64 << 10, 4)?;
    for (len, room) in [
        (1, 0),
        (101, 100),
        (4097, 4096),
        (50_000, 49_999),
        (50_000, 3),
    ] {
        refused(&mut ear, len, room, [LocLenErr, RemInvReqErr])
            .with_context(|| format!("{len} bytes into {room}"))?;
        ear.works(&device)
            .with_context(|| format!("after {len} bytes into {room}"))?;
    }
    Ok(())
}

/// Memory that may not be written by its own VQP.
pub fn read_only() -> Result<()> {
    let mut ear = Ear::on(new_port(), 32 << 10, 4, Access::REMOTE_READ)?;
    for len in [1, 4096, 20_000] {
        refused(&mut ear, len, len, [LocProtErr, RemOpErr])
            .with_context(|| format!("{len} bytes"))?;
    }
    Ok(())
}

/// A buffer whose memory was deregistered after it was posted.
pub fn deregistered() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(4096, 4)?;
    {
        let gone = MemoryRegion::allocate(&ear.device, 64, full_access())?;
        let buffer = RecvWr::new(gone.slice(0..64)?).wr_id(5);
        ensure!(ear.listener.post_recv(&[buffer]) == 1, "no room");
    }
    let mut vqp = ear.sender(&device, 16)?;
    are(
        "they",
        &ends(&mut vqp, &[hello(0)?, hello(1)?])?,
        &[RemOpErr, WrFlushErr],
    )?;
    let status = ear.next()?.wc().status();
    ensure!(status == Some(LocProtErr), "the receiver got {status:?}");
    ear.works(&device)
}

/// A message whose last bytes its sender may not read: its buffer comes back at once, though
/// the sender stays.
pub fn half_sent() -> Result<()> {
    const GOOD: usize = 8192;
    const BAD: usize = 4096;
    // If the sender says nothing the target forgets it only after ten seconds.
    const AT_ONCE: Duration = Duration::from_secs(3);
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(GOOD + BAD, 4)?;
    ear.post(1, GOOD + BAD)?;
    let local = MemoryRegion::allocate(&device, GOOD, full_access())?;
    let foreign = MemoryRegion::allocate(&ear.device, BAD, full_access())?;
    let mut vqp = ear.sender(&device, 16)?;
    let sges = Sges::new(&[local.slice(0..GOOD)?, foreign.slice(0..BAD)?])?;
    let statuses = ends(&mut vqp, &[SendWr::send(sges).signaled(), hello(1)?])?;
    are("they", &statuses, &[LocProtErr, WrFlushErr])?;
    let start = Instant::now();
    let status = ear.next()?.wc().status();
    ensure!(status == Some(RemAbortErr), "the receiver got {status:?}");
    ensure!(start.elapsed() < patient(AT_ONCE), "it was told late");
    ear.works(&device)
}

/// What was posted to a connected VQP comes back when the VQP fails; and so does what
/// is posted later.
pub fn flushed() -> Result<()> {
    const BUFFERS: u64 = 8;
    let device = Device::open_on(0)?;
    let ear = Ear::new(4096, 4)?;
    let local = MemoryRegion::allocate(&device, 4096, full_access())?;
    let mut vqp = sender(&device, ear.port, 4, BUFFERS as u32)?;
    for n in 0..BUFFERS {
        let wr = RecvWr::new(local.slice(0..64)?).wr_id(n);
        ensure!(vqp.post_recv(&[wr]) == 1, "no room for buffer {n}");
    }
    let remote = ear.memory.remote();
    let bad = weft_shim::Remote {
        rkey: remote.rkey ^ 1,
        ..remote
    };
    let wr = SendWr::write(local.slice(0..8)?, bad).signaled().wr_id(77);
    post(&mut vqp, &[wr])?;
    let check = |wcs: &[Wc], wanted: &mut dyn Iterator<Item = u64>| -> Result<()> {
        for wc in wcs {
            let right = if wc.is_recv() {
                wc.status() == Some(WrFlushErr) && Some(wc.wr_id()) == wanted.next()
            } else {
                wc.status() == Some(WcStatus::RemAccessErr) && wc.wr_id() == 77
            };
            ensure!(right, "it got {wc:?}");
        }
        Ok(())
    };
    let wcs = reap_wcs(&mut vqp, BUFFERS as usize + 1)?;
    check(&wcs, &mut (0..BUFFERS))?;
    for n in 0..BUFFERS {
        let wr = RecvWr::new(local.slice(0..64)?).wr_id(n);
        ensure!(vqp.post_recv(&[wr]) == 1, "no room for buffer {n}");
    }
    let wcs = reap_wcs(&mut vqp, BUFFERS as usize)?;
    check(&wcs, &mut (0..BUFFERS))
}

/// A port has one receiver at a time; it is free when that has gone, and what was
/// connected to the port reaches the next one.
pub fn ports() -> Result<()> {
    let device = Device::open_on(0)?;
    let port = new_port();
    let mut first = Ear::on(port, 4096, 4, full_access())?;
    let config = VqpConfig {
        max_send_wr: 4,
        max_recv_wr: 4,
    };
    let second = Vqp::create(&first.device, &config)?.bind(port);
    let refused = second.err().context("two VQPs are bound to one port")?;
    ensure!(
        matches!(refused.error(), weft_shim::Error::PortInUse(_)),
        "binding twice: {refused:?}"
    );
    // The VQP that was refused can still be bound, and connected.
    let other_port = new_port();
    drop(refused.into_vqp().bind(other_port)?);
    // The same port of another node is another port.
    drop(Vqp::create(&device, &config)?.bind(port)?);
    first.works(&device)?;
    let mut vqp = first.sender(&device, 4)?;
    for round in 0..10 {
        drop(first);
        first = Ear::on(port, 4096, 4, full_access())?;
        first.post(1, 64)?;
        are("it", &ends(&mut vqp, &[hello(round)?])?, &[Success])?;
        let imm = first.next()?.imm();
        ensure!(imm == Some(round), "it got {imm:?}, not {round}");
    }
    Ok(())
}

/// A reply to a sender that has no buffer yet, and to one that has gone.
pub fn connected_receivers() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(4096, 4)?;
    ear.post(2, 64)?;
    let local = MemoryRegion::allocate(&device, 64, full_access())?;
    let mut vqp = sender(&device, ear.port, 4, 4)?;
    vqp.run(hello(1)?)?;
    let from = ear.next()?.sender().context("no sender")?;
    let reply = ear.listener.vqp(from)?;
    // The sender has posted nothing yet: the reply waits.
    let before = counter("not_ready")?;
    post(reply, &[hello(2)?])?;
    wait_for("it is told that there is no buffer", PATIENCE, || {
        Ok(counter("not_ready")? > before)
    })?;
    let wr = RecvWr::new(local.slice(0..64)?).wr_id(6);
    ensure!(vqp.post_recv(&[wr]) == 1, "no room");
    let wc = reap_wcs(&mut vqp, 1)?[0];
    ensure!(
        (wc.wr_id(), wc.imm(), wc.result()?, wc.sender()) == (6, Some(2), 5, None),
        "it got {wc:?}"
    );
    are("the reply", &reap(reply, 1)?, &[Success])?;
    // The sender goes: the next reply finds nobody.
    drop(vqp);
    are("it", &ends(reply, &[hello(3)?])?, &[RetryExcErr])
}
