// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs that go from RC to DC, for their messages, and back: requests stay in order.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{Pod, SendWr as RawWr, Sge, OP_SEND_WITH_IMM, OP_WRITE, SEND_INLINE};
use weft_shim::{Device, MemoryRegion, Payload, RecvWr, SendWr};

use crate::raw::{request, Memory, Session};
use crate::rng::Rng;
use crate::two_sided::{ends, Ear};
use crate::world::{counter, full_access, gid};

const WAIT_NS: u64 = 30_000_000_000;

/// Batches of WRITEs with a message at the end, one after the other, so that each
/// begins on RC and ends on DC. When the message is there, so is what was written.
pub fn in_turn(seed: u64, rounds: usize) -> Result<()> {
    const PLACE: usize = 6000;
    const WRITES: usize = 6;
    let device = Device::open_on(0)?;
    let mut rng = Rng::new(seed);
    let mut ear = Ear::new(4096, 16)?;
    let local = MemoryRegion::allocate(&device, WRITES * PLACE, full_access())?;
    let target = MemoryRegion::allocate(&ear.device, WRITES * PLACE, full_access())?;
    let mut vqp = ear.sender(&device, 64)?;
    let chains = counter("rc_chains")?;
    for round in 0..rounds {
        ensure!(
            ear.listener.post_recv(&[RecvWr::empty()]) == 1,
            "no room for a buffer"
        );
        let mut wrs = Vec::new();
        let writes = 1 + rng.below(WRITES);
        let mut sent = Vec::new();
        for at in (0..writes).map(|n| n * PLACE) {
            let len = 1 + rng.below(PLACE);
            let bytes = rng.bytes(len);
            local.copy_in(at, &bytes)?;
            let remote = target.remote().offset(at as u64);
            wrs.push(SendWr::write(local.slice(at..at + len)?, remote));
            sent.push(bytes);
        }
        let told = SendWr::send_with_imm(Payload::inline(b"")?, round as u32);
        wrs.push(told.signaled());
        ends::post(&mut vqp, &wrs)?;
        let message = ear.next()?;
        ensure!(
            message.result()? == 0 && message.imm() == Some(round as u32),
            "round {round}: {message:?}"
        );
        for (n, bytes) in sent.iter().enumerate() {
            let mut there = vec![0; bytes.len()];
            target.copy_out(n * PLACE, &mut there)?;
            ensure!(there == *bytes, "round {round}: WRITE {n} was overtaken");
        }
        ends::reap(&mut vqp, 1).with_context(|| format!("round {round}"))?;
    }
    let chains = counter("rc_chains")? - chains;
    ensure!(
        chains >= rounds as i64,
        "{chains} chains of {rounds} rounds went by RC"
    );
    ear.is_quiet()
}

/// One VQP, whose ring several threads submit an entry at a time from: WRITEs of a
/// growing word, with messages among them. The word never goes back.
pub fn shared(rounds: usize) -> Result<()> {
    const RING: u32 = 512;
    const EVERY: u32 = 8;
    let near = Session::open(0)?;
    let buffers = RING / EVERY;
    let mut ear = Ear::new(4096, buffers)?;
    let here = Memory::map(8 * RING as usize)?;
    let lkey = near.register(&here, 0, 8 * u64::from(RING), 0)?.lkey;
    let remote = ear.memory.remote();
    let queue = near.queue(RING, 0)?;
    near.qconnect_port(queue.vqp, gid(1), ear.port)?;
    for round in 0..rounds as u32 {
        for _ in 0..buffers {
            ensure!(
                ear.listener.post_recv(&[RecvWr::empty()]) == 1,
                "no room for a buffer"
            );
        }
        for n in 0..RING {
            let value = round * RING + n + 1;
            let local = Sge {
                addr: here.addr() + 8 * u64::from(n),
                len: 8,
                lkey,
            };
            here.word(8 * n as usize)
                .store(value.into(), Ordering::Relaxed);
            queue.put_next(
                n,
                &if n % EVERY == EVERY - 1 {
                    RawWr {
                        opcode: OP_SEND_WITH_IMM,
                        flags: SEND_INLINE,
                        imm: value,
                        ..Pod::zeroed()
                    }
                } else {
                    request(OP_WRITE, local, remote.addr, remote.rkey)
                },
            );
        }
        submit_all(&near, queue.vqp, RING as usize, &ear)?;
        queue.took(RING);
        for n in 1..=buffers {
            let imm = ear.next()?.imm();
            let wanted = round * RING + n * EVERY;
            ensure!(imm == Some(wanted), "message {wanted} is {imm:?}");
        }
    }
    Ok(())
}

/// Four threads submit, and one watches the word.
fn submit_all(near: &Session, vqp: u32, count: usize, ear: &Ear) -> Result<()> {
    let (left, stop) = (AtomicUsize::new(count), AtomicBool::new(false));
    let last = AtomicU64::new(0);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let now = ear.memory.load_u64(0)?;
                let before = last.swap(now, Ordering::Relaxed);
                ensure!(now >= before, "the word went back from {before} to {now}");
                thread::yield_now();
            }
            Ok(())
        });
        let submit = || -> Result<()> {
            let take = |left: usize| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                loop {
                    match near.enter(vqp, 1, 0, WAIT_NS) {
                        Ok(1) => break,
                        Ok(_) | Err(Errno::ENOSPC) => thread::yield_now(),
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(submit)).collect();
        let submitted = threads
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?);
        stop.store(true, Ordering::Relaxed);
        watcher
            .join()
            .map_err(|_| anyhow!("the watcher panicked"))??;
        submitted
    })
}
