// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs that are made and connected in one call, and 100,000 of them.

use std::time::Instant;

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::gid::Gid;
use weft_core::uapi::{self, VqpCreate, MAX_PORT, MAX_SEND_WR, RINGS_NONE};
use weft_testkit::pace::keeps_freed_memory;

use super::scene::{all_good, in_order, signaled, Scene};
use crate::packets::memory_kib;
use crate::world::{counter, gid, wait_for, SETTLE};

const MANY: usize = 100_000;
/// Bytes that a VQP may cost in the kernel.
const EACH: u64 = 1024;
/// Kernel memory that may stay when they are gone: caches fill up.
const SLACK_KIB: u64 = 8 << 10;

/// What cannot be made is refused, and nothing of it stays.
pub fn refusals() -> Result<()> {
    let scene = Scene::new(8, 8, 8)?;
    let base = counter("vqps")?;
    let make = |change: &dyn Fn(&mut VqpCreate)| {
        let mut arg = scene.vqp_arg(4);
        change(&mut arg);
        scene.session.make_vqp(arg)
    };
    let nobody = Gid::from_ipv4([10, 77, 9, 9]);
    let refused = make(&|arg| arg.gid = nobody);
    ensure!(
        refused == Err(Errno::EHOSTUNREACH),
        "an unknown peer: {refused:?}"
    );
    let odd: [&dyn Fn(&mut VqpCreate); 10] = [
        &|arg| (arg.gid, arg.port) = (gid(1), MAX_PORT + 1),
        &|arg| arg.port = 5,
        &|arg| (arg.gid, arg.flags) = (gid(1), uapi::VQP_UNCONNECTED),
        &|arg| (arg.rq, arg.flags) = (arg.cq, uapi::VQP_UNCONNECTED),
        &|arg| (arg.gid, arg.flags) = (gid(1), 1 << 2),
        &|arg| arg.flags = uapi::VQP_SHARED_RECEIVE,
        &|arg| arg.max_send_wr = 0,
        &|arg| (arg.gid, arg.max_send_wr) = (gid(1), MAX_SEND_WR + 1),
        &|arg| (arg.gid, arg.reserved[0]) = (gid(1), 1),
        &|arg| (arg.gid, arg.reserved[5]) = (gid(1), 1),
    ];
    for (at, change) in odd.into_iter().enumerate() {
        let refused = make(change);
        ensure!(refused == Err(Errno::EINVAL), "mistake {at}: {refused:?}");
    }
    let refused = make(&|arg| (arg.gid, arg.cq) = (gid(1), RINGS_NONE));
    ensure!(refused == Err(Errno::EBADF), "no rings: {refused:?}");
    ensure!(counter("vqps")? == base, "a VQP is left behind");
    // The rings are free still.
    let own = make(&|arg| (arg.gid, arg.rq) = (gid(1), arg.cq))?;
    scene.session.destroy_vqp(own)?;
    scene.session.destroy_rings(scene.rings.rings)?;
    Ok(())
}

/// A VQP carries requests as soon as it is made, and is connected.
pub fn at_once() -> Result<()> {
    let scene = Scene::new(8, 8, 0)?;
    for n in 0..200 {
        let vqp = scene.vqp(n % 2, 4)?;
        all_good(&scene.drive(&[signaled(scene.write(vqp, n % 2, 0, 8), 0)], 1)?)?;
        let again = scene.session.qconnect(vqp, gid(1));
        ensure!(
            again == Err(Errno::EISCONN),
            "connecting it again: {again:?}"
        );
        scene.session.destroy_vqp(vqp)?;
    }
    Ok(())
}

/// 100,000 connected VQPs of one session, some of which carry requests; then none.
pub fn many() -> Result<()> {
    let base = counter("vqps")?;
    let scene = Scene::new(1024, 1024, 0)?;
    // So that what the first ones need is there.
    let first = scene.vqps(64, 4)?;
    let before = memory_kib("SUnreclaim")?;
    let start = Instant::now();
    let vqps = scene.vqps(MANY, 4)?;
    let took = start.elapsed();
    let grown = memory_kib("SUnreclaim")?.saturating_sub(before);
    let each = (grown << 10) / MANY as u64;
    println!("# {MANY} in {took:?}, of {each} bytes each");
    ensure!(
        counter("vqps")? == base + (64 + MANY) as i64,
        "the gauge says something else"
    );
    ensure!(
        each <= EACH || keeps_freed_memory(),
        "each costs {each} bytes"
    );
    for batch in [
        &vqps[..512],
        &vqps[MANY / 2..MANY / 2 + 512],
        &vqps[MANY - 512..],
    ] {
        let of =
            |(at, vqp): (usize, &u32)| signaled(scene.write(*vqp, at % 2, at % 256, 8), at as u64);
        let wrs: Vec<_> = batch.iter().enumerate().map(of).collect();
        let wcs = scene.drive(&wrs, wrs.len())?;
        all_good(&wcs)?;
        in_order(&wcs)?;
    }
    // Half of them one by one, the others with the session.
    for vqp in vqps.iter().step_by(2).chain(&first) {
        scene.session.destroy_vqp(*vqp)?;
    }
    drop(scene);
    wait_for("they are gone", SETTLE, || Ok(counter("vqps")? == base))?;
    if keeps_freed_memory() {
        return Ok(());
    }
    wait_for("their memory is back", SETTLE, || {
        Ok(memory_kib("SUnreclaim")? < before + SLACK_KIB)
    })
}
