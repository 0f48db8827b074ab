// SPDX-License-Identifier: MIT OR Apache-2.0

//! One VQP's mistakes, and what they leave alone.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{SendWr, VqpCreate, Wc, WcStatus};

use super::scene::{all_good, by, ended, in_order, signaled, statuses, with_bad_key, Peer, Scene};
use crate::raw::{message, Session};
use crate::two_sided::ends::new_port;
use crate::world::{counter, gid, system, timely, wait_for, SETTLE};

use WcStatus::{RemAccessErr, RetryExcErr, RnrRetryExcErr, Success, WrFlushErr};

const VQPS: usize = 8;
/// A dead peer is told of within this time.
const BOUND: Duration = Duration::from_secs(20);
/// A link that was down carries packets again within this time.
const BACK: Duration = Duration::from_secs(30);

/// Three WRITEs of each VQP.
fn batch(scene: &Scene, vqps: &[u32]) -> Vec<SendWr> {
    let one = |step: u64| {
        let number = move |at: usize| step * 100 + at as u64;
        let wr =
            move |(at, vqp): (usize, &u32)| signaled(scene.write(*vqp, at % 2, at, 64), number(at));
        vqps.iter().enumerate().map(wr)
    };
    (0..3).flat_map(one).collect()
}

/// One VQP's second request has a bad key: the first one is done, the third one flushed;
/// those of the others are done, then and later.
pub fn bad_key() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqps = scene.vqps(VQPS, 8)?;
    let mut wrs = batch(&scene, &vqps);
    wrs[VQPS + 3] = with_bad_key(wrs[VQPS + 3]);
    scene.post_all(&wrs)?;
    let wcs = scene.collect(wrs.len())?;
    in_order(&wcs)?;
    others_are_good(&wcs, vqps[3])?;
    ended(&wcs, vqps[3], &[Success, RemAccessErr, WrFlushErr])?;
    for _ in 0..10 {
        let wrs = batch(&scene, &vqps);
        scene.post_all(&wrs)?;
        let wcs = scene.collect(wrs.len())?;
        others_are_good(&wcs, vqps[3])?;
        ended(&wcs, vqps[3], &[WrFlushErr; 3])?;
    }
    // Another one in its place.
    scene.session.destroy_vqp(vqps[3])?;
    let next = scene.vqp(1, 8)?;
    let wcs = scene.drive(&[signaled(scene.write(next, 1, 3, 64), 1)], 1)?;
    ended(&wcs, next, &[Success])
}

fn others_are_good(wcs: &[Wc], failed: u32) -> Result<()> {
    let others: Vec<Wc> = wcs.iter().filter(|wc| wc.vqp != failed).copied().collect();
    ensure!(!others.is_empty(), "the others have done nothing");
    all_good(&others)
}

/// A peer's process closes its session: the VQPs that write there fail, the others do not.
pub fn closed_region() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqps = scene.vqps(VQPS, 8)?;
    let regions = counter("mrs")?;
    let leaving = Peer::new(1)?;
    let region = leaving.region;
    let to_leaving = |wr: SendWr| SendWr {
        remote_addr: region.addr,
        rkey: region.rkey,
        ..wr
    };
    let of_it = vqps[0];
    let first = to_leaving(signaled(scene.write(of_it, 0, 0, 64), 0));
    all_good(&scene.drive(&[first], 1)?)?;
    drop(leaving);
    // By RC that takes a round trip in the background.
    wait_for("its region is gone", SETTLE, || {
        Ok(counter("mrs")? <= regions)
    })?;
    for round in 0..10 {
        let mut wrs = batch(&scene, &vqps);
        for wr in wrs.iter_mut().filter(|wr| wr.vqp == of_it) {
            *wr = to_leaving(*wr);
        }
        scene.post_all(&wrs)?;
        let wcs = scene.collect(wrs.len())?;
        others_are_good(&wcs, of_it)?;
        let first = if round == 0 { RemAccessErr } else { WrFlushErr };
        ended(&wcs, of_it, &[first, WrFlushErr, WrFlushErr])?;
    }
    Ok(())
}

/// A VQP whose receiver has no buffers has all that it may under way, and most places of
/// the ring; another VQP of the ring goes on all the while.
pub fn slow_one() -> Result<()> {
    const SLOW: usize = 12;
    let scene = Scene::new(64, 16, 0)?;
    let port = new_port();
    let ear = &scene.peers[0].session;
    let bound = ear.queue(4, 4)?;
    ear.qbind(bound.vqp, port)?;
    let slow = scene.session.make_vqp(VqpCreate {
        gid: gid(1),
        port,
        ..scene.vqp_arg(SLOW as u32)
    })?;
    let quick = scene.vqp(0, 8)?;
    let hello = SendWr {
        vqp: slow,
        ..message(b"hello")
    };
    scene.post_all(&[hello; SLOW])?;
    // Its requests beyond its depth are not taken, whatever room the ring has.
    let refused = scene.post(&[hello]);
    ensure!(refused == Err(Errno::ENOSPC), "one more: {refused:?}");
    let (mut rounds, mut ends) = (0, Vec::new());
    while ends.len() < SLOW {
        let wrs = [signaled(scene.write(quick, 0, 1, 64), rounds); 4];
        scene.post_all(&wrs)?;
        let mut done = 0;
        while done < wrs.len() {
            for wc in scene.collect(1)? {
                match wc.vqp == slow {
                    true => ends.push(wc),
                    false => done += usize::from(wc.status == Success as u16),
                }
            }
        }
        rounds += 1;
    }
    println!("# {rounds} batches of the other one meanwhile");
    ensure!(rounds > 20, "the other one was held up: {rounds} batches");
    let mut wanted = vec![WrFlushErr; SLOW];
    wanted[0] = RnrRetryExcErr;
    ended(&ends, slow, &wanted)
}

/// A peer's link is down: requests to it end in time, and those of VQPs to others do while
/// they are under way.
pub fn dead_peer() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqps = scene.vqps(2, 8)?;
    all_good(&scene.drive(&batch(&scene, &vqps), 6)?)?;
    system("ip -n n2 link set v2 down")?;
    let outcome = timely(BOUND, || while_it_is_down(&scene, &vqps));
    system("ip -n n2 link set v2 up")?;
    outcome??;
    works_again(&scene)
}

fn while_it_is_down(scene: &Scene, vqps: &[u32]) -> Result<()> {
    let (live, dead) = (vqps[0], vqps[1]);
    let lost = [signaled(scene.write(dead, 1, 1, 64), 0); 3];
    scene.post_all(&lost)?;
    let (mut rounds, mut ends) = (0, Vec::new());
    while ends.len() < lost.len() {
        scene.post_all(&[signaled(scene.write(live, 0, 0, 64), 1)])?;
        let mut done = false;
        while !done {
            let wc = scene.collect(1)?[0];
            match wc.vqp == dead {
                true => ends.push(wc),
                false => done = true,
            }
            ensure!(
                wc.vqp == dead || wc.status == Success as u16,
                "the live one: {wc:?}"
            );
        }
        rounds += 1;
    }
    println!("# {rounds} requests to the live peer meanwhile");
    ensure!(rounds > 20, "they were held up: {rounds}");
    ended(&ends, dead, &[RetryExcErr, WrFlushErr, WrFlushErr])
}

/// Waits until a new VQP's request to node 2 is carried out.
pub fn works_again(scene: &Scene) -> Result<()> {
    wait_for("the peer is back", BACK, || {
        let Ok(vqp) = scene.vqp(1, 4) else {
            return Ok(false);
        };
        let wcs = scene.drive(&[signaled(scene.write(vqp, 1, 9, 8), 0)], 1)?;
        scene.session.destroy_vqp(vqp)?;
        Ok(wcs[0].status == Success as u16)
    })
}

/// An entry in the middle of a batch that names nothing: those before it are taken, the
/// next call says why it is not, and another entry in its place lets the others pass.
pub fn bad_handles() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let foreign = Scene::new(8, 8, 0)?;
    let vqps = scene.vqps(3, 16)?;
    let gone = scene.vqp(0, 4)?;
    scene.session.destroy_vqp(gone)?;
    let lonely = scene.session.make_vqp(scene.vqp_arg(4))?;
    let unconnected = scene.unconnected(4)?;
    let peer = scene.handles(1)?[0];
    let closed = scene.handles(1)?[0];
    scene.session.close_peer(closed)?;
    let bads = [
        (0, 0, Errno::EBADF),
        (u32::MAX, 0, Errno::EBADF),
        (gone, 0, Errno::EBADF),
        (foreign.vqp(0, 4)? ^ (1 << 20), 0, Errno::EBADF),
        (scene.rings.rings ^ (5 << 20), 0, Errno::EBADF),
        (vqps[0], peer, Errno::EBADF),
        (lonely, 0, Errno::ENOTCONN),
        (unconnected, 0, Errno::EBADF),
        (unconnected, closed, Errno::EBADF),
        (unconnected, peer ^ (1 << 20), Errno::EBADF),
        (unconnected, u32::MAX, Errno::EBADF),
    ];
    for (vqp, peer, errno) in bads {
        one_bad(&scene, &vqps, (vqp, peer), errno)
            .with_context(|| format!("VQP {vqp:#x}, peer {peer:#x}"))?;
    }
    Ok(())
}

fn one_bad(scene: &Scene, vqps: &[u32], (vqp, peer): (u32, u32), errno: Errno) -> Result<()> {
    // The VQPs go to the peers in turn, as they were made.
    let good = |at: usize| signaled(scene.write(vqps[at % 3], at % 3 % 2, at, 8), at as u64);
    let bad = by(SendWr { vqp, ..good(3) }, peer);
    let mut wrs = [good(0), good(1), good(2), bad, good(4), good(5)];
    let taken = scene.post(&wrs)?;
    ensure!(taken == 3, "{taken} were taken before it");
    all_good(&scene.collect(3)?)?;
    for _ in 0..3 {
        let refused = scene.post(&wrs[3..]);
        ensure!(refused == Err(errno), "then: {refused:?}");
    }
    scene.is_quiet()?;
    wrs[3] = good(3);
    scene.post_all(&wrs[3..])?;
    let wcs = scene.collect(3)?;
    all_good(&wcs)?;
    in_order(&wcs)
}

/// Handles of what is gone name nothing, however often their place is used again.
pub fn stale_handles() -> Result<()> {
    const TIMES: usize = 2000;
    let scene = Scene::new(16, 16, 0)?;
    let session: &Session = &scene.session;
    let mut gone: Vec<(u32, u32, u32)> = Vec::new();
    for _ in 0..TIMES {
        let rings = session.make_rings(4, 4, 0)?.rings;
        let now = (scene.vqp(0, 4)?, session.open_peer(gid(1), 0)?, rings);
        session.destroy_vqp(now.0)?;
        session.close_peer(now.1)?;
        session.destroy_rings(now.2)?;
        gone.push(now);
    }
    // Something in their places.
    let (live, unconnected) = (scene.vqp(0, 4)?, scene.unconnected(4)?);
    let peer = session.open_peer(gid(1), 0)?;
    let rings = session.make_rings(4, 4, 0)?.rings;
    for (vqp, old_peer, old_rings) in gone {
        ensure!(
            vqp != live && vqp != unconnected && old_peer != peer && old_rings != rings,
            "a handle was given again"
        );
        let none = Err(Errno::EBADF);
        let request = scene.write(vqp, 0, 0, 8);
        ensure!(
            scene.post(&[request]) == none,
            "a request of a VQP that is gone"
        );
        let request = by(scene.write(unconnected, 0, 0, 8), old_peer);
        ensure!(
            scene.post(&[request]) == none,
            "a request to a peer that is closed"
        );
        ensure!(
            session.destroy_vqp(vqp) == none.map(drop),
            "it is destroyed twice"
        );
        ensure!(
            session.close_peer(old_peer) == none.map(drop),
            "it is closed twice"
        );
        ensure!(
            session.destroy_rings(old_rings) == none.map(drop),
            "rings twice"
        );
        let entered = session.enter_rings(old_rings, 0, 0, 0);
        ensure!(entered == none, "rings that are gone: {entered:?}");
        let made = session.make_vqp(VqpCreate {
            cq: old_rings,
            ..scene.vqp_arg(4)
        });
        ensure!(
            made == Err(Errno::EBADF),
            "a VQP on rings that are gone: {made:?}"
        );
    }
    let wcs = scene.drive(&[signaled(scene.write(live, 0, 0, 8), 0)], 1)?;
    ensure!(
        statuses(&wcs, live) == [Success as u16],
        "the live one: {wcs:?}"
    );
    ensure!(
        session.destroy_rings(scene.rings.rings) == Err(Errno::EBUSY),
        "rings in use go"
    );
    Ok(())
}
