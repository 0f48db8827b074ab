// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many VQPs on one completion ring, and one call for all of them.

use anyhow::{ensure, Context, Result};
use weft_core::uapi::{Pod, SendWr};

use super::scene::{all_good, in_order, once_each, signaled, Scene, PATIENCE_NS, SLOT};
use crate::rng::Rng;

const VQPS: usize = 16;
/// Requests of a VQP in a call: two WRITEs to the same bytes, and a READ of them.
const STEPS: usize = 3;
const ROUNDS: usize = 40;

/// In each round one call submits the requests of 16 VQPs and waits for all of them.
pub fn one_call(seed: u64) -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqps = scene.vqps(VQPS, 8)?;
    let mut rng = Rng::new(seed);
    for round in 0..ROUNDS {
        one_round(&scene, &vqps, &mut rng, round).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

fn one_round(scene: &Scene, vqps: &[u32], rng: &mut Rng, round: usize) -> Result<()> {
    let len = 1 + rng.below(SLOT);
    let bytes: Vec<_> = (0..2 * VQPS).map(|_| rng.bytes(len)).collect();
    let mut wrs = [SendWr::zeroed(); VQPS * STEPS];
    for (at, vqp) in vqps.iter().copied().enumerate() {
        // The second WRITE's bytes are in another slot, and go to the first one's.
        let (first, second) = (at, VQPS + at);
        scene.fill(first, &bytes[first]);
        scene.fill(second, &bytes[second]);
        let to = at % 2;
        let over = SendWr {
            remote_addr: scene.write(vqp, to, first, len).remote_addr,
            ..scene.write(vqp, to, second, len)
        };
        let steps = [
            scene.write(vqp, to, first, len),
            over,
            scene.read(vqp, to, first, len),
        ];
        for (step, wr) in steps.into_iter().enumerate() {
            // One VQP after the other, or all VQPs' first requests first.
            let place = match round % 2 {
                0 => at * STEPS + step,
                _ => step * VQPS + at,
            };
            wrs[place] = signaled(wr, (step * VQPS + at) as u64);
        }
    }
    let all = wrs.len();
    let taken = scene.queue.submit(
        &scene.session,
        &wrs,
        scene.rings.rings,
        all as u32,
        PATIENCE_NS,
    )?;
    let wcs = scene.take(2 * all);
    ensure!(
        (taken, wcs.len()) == (all, all),
        "one call took {taken} of {all}, and {} completed",
        wcs.len()
    );
    all_good(&wcs)?;
    in_order(&wcs)?;
    once_each(&wcs, all)?;
    for (at, vqp) in vqps.iter().enumerate() {
        let own = wcs.iter().filter(|wc| wc.vqp == *vqp);
        ensure!(
            own.clone().count() == STEPS && own.clone().all(|wc| wc.wr_id as usize % VQPS == at),
            "completions name another VQP"
        );
        let wanted = &bytes[VQPS + at];
        ensure!(
            &scene.peers[at % 2].slot(at, len) == wanted,
            "VQP {at} wrote other bytes"
        );
        ensure!(
            &scene.landed(at, len) == wanted,
            "VQP {at} read other bytes"
        );
    }
    Ok(())
}

/// 256 VQPs on one ring of completions, each of which has two requests under way.
pub fn many(seed: u64) -> Result<()> {
    const MANY: usize = 256;
    let scene = Scene::new(1024, 1024, 0)?;
    let vqps = scene.vqps(MANY, 2)?;
    let bytes = Rng::new(seed).bytes(MANY * 8);
    let mut wrs = Vec::new();
    for (at, vqp) in vqps.iter().copied().enumerate() {
        scene.fill(at, &bytes[8 * at..8 * at + 8]);
        wrs.push(signaled(scene.write(vqp, at % 2, at, 8), 2 * at as u64));
        wrs.push(signaled(scene.read(vqp, at % 2, at, 8), 2 * at as u64 + 1));
    }
    for round in 0..4 {
        scene
            .post_all(&wrs)
            .with_context(|| format!("round {round}"))?;
        let wcs = scene.collect(wrs.len())?;
        all_good(&wcs)?;
        in_order(&wcs)?;
        once_each(&wcs, wrs.len())?;
    }
    for at in 0..MANY {
        let wanted = &bytes[8 * at..8 * at + 8];
        ensure!(
            scene.peers[at % 2].slot(at, 8) == wanted,
            "VQP {at} wrote other bytes"
        );
        ensure!(scene.landed(at, 8) == wanted, "VQP {at} read other bytes");
    }
    scene.is_quiet()
}
