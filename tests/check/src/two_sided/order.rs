// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages among WRITEs: what was written before a message is there when the
//! message is, and messages arrive in order.

use std::thread;

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Opcode, Payload, RecvWr, Remote, SendWr, Sges, WcStatus};

use super::ends::{are, ends, Ear};
use crate::data::order::drive;
use crate::rng::Rng;
use crate::world::full_access;

/// Bytes of a place, of which one step writes up to all.
const PLACE: usize = 9000;
/// Receive buffers, and steps that may be ahead of the receiver.
const BUFFERS: u32 = 64;

/// What one step writes.
struct Step {
    place: usize,
    bytes: Vec<u8>,
}

fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let step = |place| {
        let len = 1 + rng.below(PLACE >> (place % 4));
        Step {
            place,
            bytes: rng.bytes(len),
        }
    };
    (0..count).map(step).collect()
}

/// The receiver: at message `n` the first `n + 1` places are written.
fn watch(ear: &mut Ear, target: &MemoryRegion, steps: &[Step], opcode: Opcode) -> Result<()> {
    for (n, step) in steps.iter().enumerate() {
        let message = ear.next().with_context(|| format!("message {n}"))?;
        let len = message.result().with_context(|| format!("message {n}"))?;
        ensure!(message.imm() == Some(n as u32), "message {n}: {message:?}");
        ensure!(
            message.wc().opcode() == Some(opcode),
            "message {n}: {message:?}"
        );
        if opcode == Opcode::RecvWriteWithImm {
            ensure!(len as usize == step.bytes.len(), "message {n}: {len} bytes");
        }
        let mut bytes = vec![0; step.bytes.len()];
        target.copy_out(step.place * PLACE, &mut bytes)?;
        ensure!(bytes == step.bytes, "message {n} overtook its data");
        ensure!(
            ear.listener.post_recv(&[RecvWr::empty()]) == 1,
            "buffer {n} was not taken"
        );
    }
    ear.is_quiet()
}

/// Drives what `make` makes of each step, and watches it arrive.
fn run<F>(seed: u64, count: usize, opcode: Opcode, make: F) -> Result<()>
where
    F: for<'a> Fn(usize, Sges<'a>, Remote) -> Result<Vec<SendWr<'a>>>,
{
    let device = Device::open_on(0)?;
    let steps = steps(seed, count);
    let mut ear = Ear::new(4096, BUFFERS)?;
    for _ in 0..BUFFERS {
        ensure!(ear.listener.post_recv(&[RecvWr::empty()]) == 1, "no room");
    }
    let local = MemoryRegion::allocate(&device, count * PLACE, full_access())?;
    let target = MemoryRegion::allocate(&ear.device, count * PLACE, full_access())?;
    let mut wrs = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let at = step.place * PLACE;
        local.copy_in(at, &step.bytes)?;
        let from = Sges::from(local.slice(at..at + step.bytes.len())?);
        wrs.extend(make(n, from, target.remote().offset(at as u64))?);
    }
    let mut vqp = ear.sender(&device, 128)?;
    thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&mut ear, &target, &steps, opcode));
        let driven = drive(&mut vqp, &wrs, count);
        watcher
            .join()
            .map_err(|_| anyhow!("the watcher panicked"))??;
        ensure!(
            driven?.iter().copied().eq(0..count as u64),
            "completions are out of order"
        );
        Ok(())
    })
}

/// A WRITE, then a SEND that tells of it.
pub fn send_after_write(seed: u64, count: usize) -> Result<()> {
    run(seed, count, Opcode::Recv, |n, from, remote| {
        let told = SendWr::send_with_imm(Sges::EMPTY, n as u32);
        Ok(vec![
            SendWr::write(from, remote),
            told.signaled().wr_id(n as u64),
        ])
    })
}

/// A WRITE that tells of itself.
pub fn immediates(seed: u64, count: usize) -> Result<()> {
    run(seed, count, Opcode::RecvWriteWithImm, |n, from, remote| {
        let wr = SendWr::write_with_imm(from, remote, n as u32);
        Ok(vec![wr.signaled().wr_id(n as u64)])
    })
}

/// Messages with bytes, READs, WRITEs and additions in one queue: each sees what was
/// before it.
pub fn all_kinds(rounds: usize) -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(rounds * 64, rounds as u32)?;
    ear.post(rounds, 64)?;
    let target = MemoryRegion::allocate(&ear.device, rounds * 64, full_access())?;
    let local = MemoryRegion::allocate(&device, rounds * 64, full_access())?;
    let mut vqp = ear.sender(&device, 1024)?;
    let mut wrs = Vec::new();
    for n in 0..rounds {
        let (at, id) = (n * 64, n as u64 * 4);
        local.store_u64(at, n as u64 + 100)?;
        let remote = target.remote().offset(at as u64);
        wrs.push(SendWr::write(local.slice(at..at + 8)?, remote).wr_id(id));
        wrs.push(SendWr::fetch_add(local.slice(at + 8..at + 16)?, remote, 1).wr_id(id + 1));
        wrs.push(SendWr::send(local.slice(at + 8..at + 16)?).wr_id(id + 2));
        let read = SendWr::read(local.slice(at + 16..at + 24)?, remote);
        wrs.push(read.signaled().wr_id(id + 3));
    }
    let ids = drive(&mut vqp, &wrs, rounds)?;
    ensure!(
        ids.iter()
            .copied()
            .eq((0..rounds as u64).map(|n| n * 4 + 3)),
        "completions are out of order"
    );
    for n in 0..rounds {
        let message = ear.next()?;
        ensure!(
            message.wr_id() == n as u64 && message.result()? == 8,
            "message {n} is {message:?}"
        );
        let (at, value) = (n * 64, n as u64 + 100);
        let got = [local.load_u64(at + 8)?, local.load_u64(at + 16)?];
        ensure!(got == [value, value + 1], "round {n}: it read {got:?}");
    }
    ear.is_quiet()
}

/// A WRITE that may not be: no immediate arrives as if it had been, and its sender
/// knows why.
pub fn bad_immediate() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(4096, 4)?;
    ear.post(2, 64)?;
    let readable = MemoryRegion::allocate(&ear.device, 64, weft_shim::Access::REMOTE_READ)?;
    let mut vqp = ear.sender(&device, 4)?;
    let bytes = Payload::inline(b"no")?;
    let wr = SendWr::write_with_imm(bytes, readable.remote(), 7).signaled();
    let after = SendWr::send(bytes).signaled();
    are(
        "they",
        &ends(&mut vqp, &[wr, after])?,
        &[WcStatus::RemAccessErr, WcStatus::WrFlushErr],
    )?;
    let message = ear.next()?;
    ensure!(
        message.wc().status() == Some(WcStatus::RemOpErr),
        "the receiver got {message:?}"
    );
    ensure!(readable.load_u64(0)? == 0, "it was written");
    ear.works_with_posted(&device)
}

impl Ear {
    /// One more buffer is posted already; it takes the next message.
    fn works_with_posted(&mut self, device: &Device) -> Result<()> {
        let mut vqp = self.sender(device, 4)?;
        vqp.run(SendWr::send(Payload::inline(b"fine")?))?;
        let message = self.next()?;
        ensure!(message.result()? == 4, "it is {message:?}");
        Ok(())
    }
}
