// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is done to a good argument to make it a bad one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weft_core::uapi::Pod;

use crate::rng::Rng;

use super::arena::{Arena, DATA_BYTES, PAGE};

/// Addresses and numbers at which something changes.
const EDGES: [u64; 14] = [
    0,
    1,
    7,
    8,
    255,
    256,
    1023,
    1024,
    4095,
    1 << 30,
    0xffff_ffff,
    0x7fff_ffff_f000,
    0xffff_8000_0000_0000,
    u64::MAX,
];

/// An address, wild or nearly right.
pub fn address(rng: &mut Rng, arena: Arena) -> u64 {
    let data = arena.data() + rng.next() % DATA_BYTES;
    match rng.below(8) {
        0 => EDGES[rng.below(EDGES.len())],
        1 => arena.read_only() + rng.next() % PAGE,
        2 => arena.hole() - rng.next() % 128,
        3 => arena.hole() + rng.next() % PAGE,
        4 => data ^ (1 << rng.below(64)),
        5 => arena.wrs() + rng.next() % 4096,
        _ => data,
    }
}

/// One word that takes another's place.
fn word(rng: &mut Rng, arena: Arena, old: u64) -> u64 {
    match rng.below(6) {
        0 => EDGES[rng.below(EDGES.len())],
        1 => rng.next(),
        2 => address(rng, arena),
        3 => old.wrapping_add(rng.next() % 17).wrapping_sub(8),
        _ => old ^ (1 << rng.below(64)),
    }
}

/// Changes a word or two of a struct.
pub fn mutate<T: Pod>(rng: &mut Rng, arena: Arena, value: &mut T) {
    let words = size_of::<T>() / 8;
    for _ in 0..=rng.below(2) {
        let at = 8 * rng.below(words);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&value.as_bytes()[at..at + 8]);
        let new = word(rng, arena, u64::from_ne_bytes(bytes));
        value.as_bytes_mut()[at..at + 8].copy_from_slice(&new.to_ne_bytes());
    }
}

/// Rewrites arguments and work requests of these parts, in bursts, until told
/// to stop. What a word becomes is mostly what another one was.
pub fn rewrite(seed: u64, arenas: &[Arena], stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let arena = arenas[rng.below(arenas.len())];
        for _ in 0..rng.below(400) {
            let (at, other) = if rng.below(4) == 0 {
                (8 * rng.below(8), 8 * rng.below(8))
            } else {
                let (line, field) = (rng.below(32), 8 * rng.below(8));
                let from = (arena.wrs() - arena.args()) as usize;
                (from + 64 * line + field, from + 64 * rng.below(32) + field)
            };
            let at = arena.word(arena.args() + at as u64);
            let old = at.load(Ordering::Relaxed);
            let new = match rng.below(4) {
                0 => word(&mut rng, arena, old),
                _ => arena
                    .word(arena.args() + other as u64)
                    .load(Ordering::Relaxed),
            };
            at.store(new, Ordering::Relaxed);
            if rng.below(2) == 0 {
                at.store(old, Ordering::Relaxed);
            }
        }
        thread::sleep(Duration::from_micros(rng.below(3000) as u64));
    }
}
