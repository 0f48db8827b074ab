// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many at once: VQPs, threads, processes.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use weft_core::uapi::{Pod, SendWr as RawWr, Sge, OP_WRITE, SEND_SIGNALED};
use weft_shim::{Device, MemoryRegion, SendWr, Wc};

use crate::raw::{request, Memory, Session};
use crate::rng::Rng;
use crate::traffic::{self, Traffic, SLICE};
use crate::world::{connect, full_access, gid};

const PATIENCE: Duration = Duration::from_secs(30);

/// 96 VQPs of one session, each with a word and a page of its own, all with
/// requests in flight at the same time.
pub fn vqps(seed: u64) -> Result<()> {
    const VQPS: usize = 96;
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let local = MemoryRegion::allocate(&near, VQPS * 8192, full_access())?;
    let remote = MemoryRegion::allocate(&far, VQPS * 4096, full_access())?;
    let mut vqps = Vec::new();
    for _ in 0..VQPS {
        vqps.push(connect(&near, 1, 8)?);
    }
    let mut rng = Rng::new(seed);
    for round in 0..8 {
        let bytes = rng.bytes(VQPS * 4096);
        for (i, vqp) in vqps.iter_mut().enumerate() {
            let (from, back) = (i * 8192, i * 8192 + 4096);
            local.copy_in(from, &bytes[i * 4096..(i + 1) * 4096])?;
            let to = remote.remote().offset(i as u64 * 4096);
            let wrs = [
                SendWr::write(local.slice(from..back)?, to),
                SendWr::read(local.slice(back..back + 4096)?, to)
                    .signaled()
                    .wr_id(i as u64),
            ];
            ensure!(vqp.post_send(&wrs)? == 2, "VQP {i} did not take both");
        }
        for (i, vqp) in vqps.iter_mut().enumerate() {
            let mut wcs = [Wc::default(); 4];
            let done = vqp.enter(&[], &mut wcs, 1, PATIENCE)?.completed;
            ensure!(
                done == 1 && wcs[0].wr_id() == i as u64,
                "VQP {i} got another's completion"
            );
            wcs[0]
                .result()
                .with_context(|| format!("round {round}, VQP {i}"))?;
            let mut back = vec![0; 4096];
            local.copy_out(i * 8192 + 4096, &mut back)?;
            ensure!(
                back == bytes[i * 4096..(i + 1) * 4096],
                "VQP {i} read something else"
            );
        }
    }
    Ok(())
}

/// 8 threads of one session, a VQP each.
pub fn threads(seed: u64, rounds: usize) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let remote = MemoryRegion::allocate(&far, 8 * SLICE, full_access())?;
    thread::scope(|scope| {
        let mut running = Vec::new();
        for i in 0..8u64 {
            let (near, remote) = (&near, &remote);
            running.push(scope.spawn(move || -> Result<()> {
                let at = i as usize * SLICE;
                let mut traffic =
                    Traffic::new(near, 1, remote.remote().offset(at as u64), seed + i)?;
                for round in 0..rounds {
                    traffic
                        .round()
                        .with_context(|| format!("thread {i}, round {round}"))?;
                }
                let mut bytes = vec![0; SLICE];
                remote.copy_out(at, &mut bytes)?;
                ensure!(
                    bytes == traffic.model(),
                    "thread {i}: the peer's memory is wrong"
                );
                Ok(())
            }));
        }
        running
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

/// 4 threads that post on one VQP and reap from it: as many completions as
/// requests, whoever gets them.
pub fn shared_vqp() -> Result<()> {
    const EACH: usize = 300;
    let (near, far) = (Session::open(0)?, Session::open(1)?);
    let (here, there) = (Memory::map(4096)?, Memory::map(4096)?);
    let lkey = near.register(&here, 0, 4096, 7)?.lkey;
    let rkey = far.register(&there, 0, 4096, 7)?.rkey;
    let queue = near.queue(32, 0)?;
    near.qconnect(queue.vqp, gid(1))?;
    let local = Sge {
        addr: here.addr(),
        len: 8,
        lkey,
    };
    let wr = RawWr {
        flags: SEND_SIGNALED,
        ..request(OP_WRITE, local, there.addr(), rkey)
    };
    let reaped = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for _ in 0..4 {
            running.push(scope.spawn(|| -> Result<()> {
                let (mut posted, mut wcs) = (0, [Pod::zeroed(); 8]);
                while posted < EACH || reaped.load(Ordering::Relaxed) < 4 * EACH {
                    let wrs = &[wr; 4][..(EACH - posted).min(4)];
                    match queue.enter(&near, wrs, &mut wcs, 0, 0) {
                        Ok((submitted, completed)) => {
                            posted += submitted;
                            reaped.fetch_add(completed, Ordering::Relaxed);
                            ensure!(
                                wcs[..completed].iter().all(|wc| wc.status == 0),
                                "one failed"
                            );
                        }
                        Err(nix::errno::Errno::ENOSPC) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Ok(())
            }));
        }
        running
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let count = reaped.load(Ordering::Relaxed);
    ensure!(
        count == 4 * EACH,
        "{count} completions of {} requests",
        4 * EACH
    );
    Ok(())
}

/// Two processes on each node, talking to the other.
pub fn processes(seed: u64, rounds: usize) -> Result<()> {
    let sessions = [Device::open_on(0)?, Device::open_on(1)?];
    let mut regions = Vec::new();
    let mut children = Vec::new();
    for i in 0..4u64 {
        let to = (i % 2) as usize;
        let region = MemoryRegion::allocate(&sessions[to], SLICE, full_access())?;
        let child = traffic::process(region.remote(), seed + i)?
            .args(["--node", &(1 - to).to_string(), "--to", &to.to_string()])
            .args(["--rounds", &rounds.to_string()])
            .stdout(Stdio::null())
            .spawn()?;
        regions.push(region);
        children.push(child);
    }
    let statuses = children
        .iter_mut()
        .map(Child::wait)
        .collect::<Result<Vec<_>, _>>()?;
    ensure!(
        statuses.iter().all(|status| status.success()),
        "{statuses:?}"
    );
    Ok(())
}
