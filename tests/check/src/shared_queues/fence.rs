// SPDX-License-Identifier: MIT OR Apache-2.0

//! `SEND_FENCE`: a request that uses what one before it has brought.

use anyhow::{ensure, Result};
use weft_core::uapi::{SendWr, Sge, OP_FAA, SEND_FENCE};

use super::scene::{all_good, by, signaled, Scene, PATIENCE_NS, REGION, SLOT};
use crate::raw::request;
use crate::rng::Rng;

/// Bytes of READs: in a packet, in several, in pieces.
const LENS: [usize; 3] = [512, 64 << 10, 640 << 10];
/// Bytes of what a READ brought that are written elsewhere.
const BACK: usize = 128;
const ROUNDS: usize = 20;

/// A request that begins when those before it have ended.
fn fenced(wr: SendWr) -> SendWr {
    let flags = wr.flags | SEND_FENCE;
    SendWr { flags, ..wr }
}

/// A READ of `len` bytes, and a WRITE of the last ones of them to the last slot there, as
/// `by_way` names their VQP.
struct Pair<'a> {
    scene: &'a Scene,
    by_way: &'a dyn Fn(SendWr) -> SendWr,
    len: usize,
}

impl Pair<'_> {
    /// Both by one call, behind a request of another VQP; answers whether the WRITE wrote
    /// what the READ brought.
    fn run(&self, other: u32, has_fence: bool, rng: &mut Rng) -> Result<bool> {
        let (scene, last) = (self.scene, REGION / SLOT - 1);
        let bytes = rng.bytes(BACK);
        scene.peers[0].memory.fill(self.len - BACK, &bytes);
        let read = scene.read(0, 0, 0, self.len);
        let write = scene.write(0, 0, last, BACK);
        let back = scene.sge(REGION as u64 + (self.len - BACK) as u64, BACK);
        let mut write = (self.by_way)(with_sge(write, back));
        if has_fence {
            write = fenced(write);
        }
        let wrs = [
            signaled(scene.write(other, 1, 0, 8), 0),
            signaled((self.by_way)(read), 1),
            signaled(write, 2),
        ];
        let rings = scene.rings.rings;
        let taken =
            scene
                .queue
                .submit(&scene.session, &wrs, rings, wrs.len() as u32, PATIENCE_NS)?;
        let wcs = scene.take(wrs.len() + 1);
        ensure!(
            (taken, wcs.len()) == (wrs.len(), wrs.len()),
            "one call took {taken}, and {} completed",
            wcs.len()
        );
        all_good(&wcs)?;
        Ok(scene.peers[0].slot(last, BACK) == bytes)
    }
}

fn with_sge(mut wr: SendWr, sge: Sge) -> SendWr {
    wr.set_sge(0, sge);
    wr
}

/// A fenced WRITE carries what the READ before it in the same call has brought, on a
/// connected VQP and on one that is not, whatever the READ's length. How often one without
/// a fence does is printed.
pub fn after_read(seed: u64) -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let (vqp, other) = (scene.vqp(0, 8)?, scene.vqp(1, 8)?);
    let (unconnected, peer) = (scene.unconnected(8)?, scene.handles(1)?[0]);
    let connected = move |wr| SendWr { vqp, ..wr };
    let to_peer = move |wr| {
        let vqp = unconnected;
        by(SendWr { vqp, ..wr }, peer)
    };
    let ways: [&dyn Fn(SendWr) -> SendWr; 2] = [&connected, &to_peer];
    let mut rng = Rng::new(seed);
    for len in LENS {
        let mut stale = 0;
        for round in 0..ROUNDS {
            let pair = Pair {
                scene: &scene,
                by_way: ways[round % 2],
                len,
            };
            let is_right = pair.run(other, true, &mut rng)?;
            ensure!(is_right, "{len} bytes, round {round}: another WRITE's");
            stale += usize::from(!pair.run(other, false, &mut rng)?);
        }
        println!("# {len} bytes: without a fence {stale} of {ROUNDS} WRITEs were too early");
    }
    Ok(())
}

/// The same after an atomic operation; a batch may have many fences.
pub fn after_atomics() -> Result<()> {
    const ADDS: usize = 8;
    let scene = Scene::new(64, 64, 0)?;
    let vqp = scene.vqp(0, 32)?;
    let region = &scene.peers[0].region;
    let landing = scene.sge(REGION as u64, 8);
    let mut wrs = Vec::new();
    for at in 1..=ADDS {
        let mut add = request(OP_FAA, landing, region.addr, region.rkey);
        add.set_operands(1, 0);
        add.vqp = vqp;
        let write = with_sge(scene.write(vqp, 0, at, 8), landing);
        wrs.push(signaled(fenced(add), 2 * at as u64));
        wrs.push(signaled(fenced(write), 2 * at as u64 + 1));
    }
    let wcs = scene.drive(&wrs, wrs.len())?;
    all_good(&wcs)?;
    for at in 1..=ADDS {
        let wanted = (at as u64 - 1).to_ne_bytes();
        let got = scene.peers[0].slot(at, 8);
        ensure!(got == wanted, "addition {at}: {got:?} was written");
    }
    let first = scene.peers[0].slot(0, 8);
    ensure!(first == ADDS.to_ne_bytes(), "the sum is {first:?}");
    Ok(())
}
