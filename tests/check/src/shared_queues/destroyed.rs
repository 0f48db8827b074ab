// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs that are destroyed with requests under way.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::SendWr;

use super::scene::{all_good, by, in_order, signaled, Scene};
use crate::raw::{Field, Queue};
use crate::rng::Rng;
use crate::world::{gid, wait_for};

const ROOM: usize = 64;
const OWN: usize = 12;
const OTHERS: usize = 4;
/// Bytes of its requests, at most.
const SHORT: usize = 4096;
const LONG: usize = 128 << 10;
/// Requests that were under way end within this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Again and again: no completion of the VQP comes after the call, those of another one
/// do, and no place of the ring is lost.
pub fn under_way(seed: u64, times: usize) -> Result<()> {
    let scene = Scene::new(64, ROOM as u32, 0)?;
    let other = scene.vqp(1, OTHERS as u32)?;
    let mut rng = Rng::new(seed);
    let mut seen = 0;
    for time in 0..times {
        let vqp = scene.vqp(0, OWN as u32)?;
        let goes = |n: usize| {
            // Some are long enough to be under way when the VQP goes.
            let longest = if rng.below(3) == 0 { LONG } else { SHORT };
            let wr = scene.write(vqp, 0, n, 1 + rng.below(longest));
            match n % 3 {
                0 => wr,
                _ => signaled(wr, 1000 + n as u64),
            }
        };
        let mut wrs: Vec<SendWr> = (0..OWN).map(goes).collect();
        let stay = |n: usize| signaled(scene.write(other, 1, 20 + n, 64), n as u64);
        wrs.extend((0..OTHERS).map(stay));
        seen += one(&scene, &wrs, (vqp, other), time % 2 == 0)
            .with_context(|| format!("time {time}"))?;
    }
    println!("# {seen} completions of {times} VQPs came before they were destroyed");
    has_all_places(&scene)
}

/// Answers how many completions came before the VQP was destroyed.
fn one(scene: &Scene, wrs: &[SendWr], (vqp, other): (u32, u32), at_once: bool) -> Result<usize> {
    let mut posted = 0;
    while posted < wrs.len() {
        // Requests of the one before may have their places still.
        posted += match scene.post(&wrs[posted..]) {
            Err(Errno::ENOSPC) => 0,
            taken => taken?,
        };
    }
    if !at_once {
        thread::yield_now();
    }
    scene.session.destroy_vqp(vqp)?;
    let before = scene.queue.index(Field::CqTail).load(Ordering::Acquire);
    let head = scene.queue.index(Field::CqHead).load(Ordering::Acquire);
    let early = scene.take(before.wrapping_sub(head) as usize);
    // Handles are not given again soon, so that a completion of an earlier VQP shows.
    ensure!(
        early.iter().all(|wc| wc.vqp == vqp || wc.vqp == other),
        "one of an earlier VQP: {early:?}"
    );
    let others_done = early.iter().filter(|wc| wc.vqp == other).count();
    let rest = scene.collect(OTHERS - others_done)?;
    ensure!(
        rest.iter().all(|wc| wc.vqp == other),
        "after it was destroyed: {rest:?}"
    );
    all_good(&early)?;
    all_good(&rest)?;
    let all: Vec<_> = early.iter().chain(&rest).copied().collect();
    in_order(&all)?;
    Ok(early.len() - others_done)
}

/// The ring takes as many requests as when it was new, and no more.
pub fn has_all_places(scene: &Scene) -> Result<()> {
    let vqp = scene.vqp(0, 128)?;
    let room = scene.rings.max_wc as usize;
    let wr = signaled(scene.write(vqp, 0, 0, 8), 0);
    // The last requests of those that were destroyed may end still.
    wait_for("all places are free", PATIENCE, || {
        let taken = match scene.post(&vec![wr; room.min(64)]) {
            Err(Errno::ENOSPC) => 0,
            taken => taken?,
        };
        all_good(&scene.collect(taken)?)?;
        Ok(taken == room)
    })?;
    let taken = scene.post(&vec![wr; room])?;
    let more = scene.post(&[wr]);
    ensure!(
        (taken, more) == (room, Err(Errno::ENOSPC)),
        "a ring of {room} took {taken}, then {more:?}"
    );
    all_good(&scene.collect(room)?)?;
    scene.session.destroy_vqp(vqp)?;
    scene.is_quiet()
}

/// The same of an unconnected VQP, with requests to many peers.
pub fn unconnected(times: usize) -> Result<()> {
    const PEERS: usize = 24;
    let scene = Scene::new(64, ROOM as u32, 0)?;
    let handles = scene.handles(PEERS)?;
    let other = scene.vqp(1, OTHERS as u32)?;
    for time in 0..times {
        let vqp = scene.unconnected(4)?;
        let goes = |n: usize| {
            by(
                signaled(scene.write(vqp, n % 2, n, LONG / 2), 1000 + n as u64),
                handles[n],
            )
        };
        let mut wrs: Vec<SendWr> = (0..PEERS).map(goes).collect();
        let stay = |n: usize| signaled(scene.write(other, 1, 30 + n, 64), n as u64);
        wrs.extend((0..OTHERS).map(stay));
        one(&scene, &wrs, (vqp, other), time % 2 == 0).with_context(|| format!("time {time}"))?;
    }
    has_all_places(&scene)
}

/// Peers of an unconnected VQP: so many that those without requests are let go of.
const CROWD: usize = 80;

/// An unconnected VQP is destroyed while two threads post to it, of which the one has many
/// peers, so that what the module keeps for the other's peer comes and goes: nothing comes
/// after the call, and what came before is in order.
pub fn while_others_post(seed: u64, times: usize) -> Result<()> {
    let scene = Scene::new(64, ROOM as u32, 0)?;
    let open = |_| scene.session.open_peer(gid(1), 0);
    let handles = (0..CROWD).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut rng = Rng::new(seed);
    for time in 0..times {
        let vqp = scene.unconnected(16)?;
        let pause = Duration::from_micros(rng.below(3000) as u64);
        let last = thread::scope(|scope| {
            let one = scope.spawn(|| post_until_gone(&scene, vqp, &handles[..1], 4));
            let many = scope.spawn(|| post_until_gone(&scene, vqp, &handles[1..], 1));
            let last = take_and_destroy(&scene, vqp, pause);
            for thread in [one, many] {
                thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            }
            last
        })
        .with_context(|| format!("time {time}"))?;
        let end = scene.queue.index(Field::CqTail).load(Ordering::Acquire);
        ensure!(
            end == last,
            "time {time}: {} came later",
            end.wrapping_sub(last)
        );
    }
    has_all_places(&scene)
}

/// Takes completions for a while; answers how many there had been in all when the VQP was
/// destroyed, when it has taken them too.
fn take_and_destroy(scene: &Scene, vqp: u32, pause: Duration) -> Result<u32> {
    let start = Instant::now();
    let mut wcs = Vec::new();
    while start.elapsed() < pause {
        wcs.extend(scene.take(ROOM));
    }
    scene.session.destroy_vqp(vqp)?;
    let last = scene.queue.index(Field::CqTail).load(Ordering::Acquire);
    wcs.extend(scene.take(ROOM));
    all_good(&wcs)?;
    in_order(&wcs)?;
    Ok(last)
}

/// Posts to one peer after the other, until the VQP is gone.
fn post_until_gone(scene: &Scene, vqp: u32, handles: &[u32], batch: usize) -> Result<()> {
    let rings = scene.session.make_rings(8, 0, 0)?;
    let queue = Queue::of_rings(&scene.session, &rings)?;
    let mut next = 0;
    loop {
        let number = |n: usize| next + n as u64;
        let at = next as usize % handles.len();
        let one = |n| by(signaled(scene.write(vqp, 0, 3, 64), number(n)), handles[at]);
        let wrs: Vec<SendWr> = (0..batch).map(one).collect();
        match queue.submit(&scene.session, &wrs, scene.rings.rings, 0, 0) {
            Ok(taken) => next += taken as u64,
            Err(Errno::ENOSPC) => thread::yield_now(),
            Err(Errno::EBADF) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    scene.session.destroy_rings(rings.rings)?;
    Ok(())
}
