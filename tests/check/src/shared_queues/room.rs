// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion rings that are full, or smaller than what their VQPs want of them.

use std::time::Duration;

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::uapi::SendWr;

use super::scene::{all_good, in_order, once_each, signaled, Scene, PATIENCE_NS};
use crate::world::timely;

/// Full of completions that were not taken, a ring lets no more requests in; none of those
/// is lost.
pub fn full() -> Result<()> {
    let scene = Scene::new(64, 8, 0)?;
    let vqps = scene.vqps(2, 8)?;
    let wr = |n: usize| signaled(scene.write(vqps[n % 2], n % 2, n, 8), n as u64);
    let wrs: Vec<SendWr> = (0..24).map(wr).collect();
    let (mut posted, mut all) = (0, Vec::new());
    while posted < wrs.len() {
        let taken = scene.post(&wrs[posted..])?;
        ensure!(taken == 8, "{taken} were taken by a ring of 8");
        posted += taken;
        // They end, and nobody takes their completions.
        scene
            .session
            .enter_rings(scene.rings.rings, 0, 8, PATIENCE_NS)?;
        let refused = scene.post(&wrs[..1]);
        ensure!(
            refused == Err(Errno::ENOSPC),
            "without waiting: {refused:?}"
        );
        let waiting = || {
            scene
                .queue
                .submit(&scene.session, &wrs[..1], scene.rings.rings, 8, PATIENCE_NS)
        };
        let refused = timely(Duration::from_secs(5), waiting)?;
        ensure!(refused == Err(Errno::ENOSPC), "with 8 there: {refused:?}");
        all.extend(scene.take(64));
        ensure!(all.len() == posted, "{} completions of {posted}", all.len());
    }
    all_good(&all)?;
    in_order(&all)?;
    once_each(&all, wrs.len())
}

/// Unsignalled requests of several VQPs make room by themselves, in one call.
pub fn unsignaled() -> Result<()> {
    let scene = Scene::new(64, 8, 0)?;
    let vqps = scene.vqps(4, 8)?;
    for _ in 0..20 {
        let wr = |n: usize| scene.write(vqps[n % 4], n % 2, n, 8);
        let mut wrs: Vec<SendWr> = (0..64).map(wr).collect();
        wrs[63] = signaled(wrs[63], 63);
        let one = |wrs: &[SendWr]| {
            scene
                .queue
                .submit(&scene.session, wrs, scene.rings.rings, 1, PATIENCE_NS)
        };
        let taken = one(&wrs)?;
        ensure!(taken == wrs.len(), "one call took {taken}");
        let wcs = scene.take(64);
        ensure!(wcs.len() == 1 && wcs[0].wr_id == 63, "{wcs:?} completed");
        all_good(&wcs)?;
    }
    Ok(())
}

/// 64 VQPs with four requests each on a ring of 16 completions: all of them end, once.
pub fn too_small() -> Result<()> {
    let scene = Scene::new(256, 16, 0)?;
    let vqps = scene.vqps(64, 4)?;
    for round in 0..4 {
        let wr = |n: usize| {
            // One VQP after the other, or all in turn.
            let at = if round % 2 == 0 { n / 4 } else { n % 64 };
            signaled(scene.write(vqps[at], at % 2, at, 512), n as u64)
        };
        let wrs: Vec<SendWr> = (0..256).map(wr).collect();
        let wcs = scene.drive(&wrs, wrs.len())?;
        all_good(&wcs)?;
        in_order(&wcs)?;
        once_each(&wcs, wrs.len())?;
    }
    scene.is_quiet()
}
