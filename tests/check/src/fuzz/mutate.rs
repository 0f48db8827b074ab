// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is done to a good argument to make it a bad one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use weft_core::uapi::{Pod, RecvWr, SendWr, Wc};

use crate::raw::{Field, Queue};
use crate::rng::Rng;

use super::arena::{Arena, DATA_BYTES, PAGE};
use super::live::Live;

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
        5 => arena.args() + rng.next() % PAGE,
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

/// Rewrites arguments and rings, in bursts, until told to stop. What a word becomes
/// is mostly what another one was.
pub fn rewrite(seed: u64, arenas: &[Arena], rings: &Live, stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let arena = arenas[rng.below(arenas.len())];
        for _ in 0..rng.below(40) {
            let at = |rng: &mut Rng| arena.word(arena.args() + 8 * rng.below(16) as u64);
            let (to, from) = (at(&mut rng), at(&mut rng));
            exchange(&mut rng, arena, to, from);
        }
        if let Some(queue) = rings.any(&mut rng) {
            for _ in 0..rng.below(400) {
                rewrite_entry(&mut rng, arena, &queue);
            }
            if rng.below(4) == 0 {
                rewrite_index(&mut rng, &queue);
            }
        }
        thread::sleep(Duration::from_micros(rng.below(3000) as u64));
    }
}

fn exchange(rng: &mut Rng, arena: Arena, to: &AtomicU64, from: &AtomicU64) {
    let old = to.load(Ordering::Relaxed);
    let new = match rng.below(4) {
        0 => word(rng, arena, old),
        _ => from.load(Ordering::Relaxed),
    };
    to.store(new, Ordering::Relaxed);
    if rng.below(2) == 0 {
        to.store(old, Ordering::Relaxed);
    }
}

/// A word of a ring, most often of its first entries and of the same field as
/// where the new one comes from; now and then a byte of anything.
fn rewrite_entry(rng: &mut Rng, arena: Arena, queue: &Queue) {
    let said = &queue.said;
    let (offset, entries, size) = match rng.below(4) {
        0 => (said.rq_offset, said.rq_entries, size_of::<RecvWr>()),
        1 => (said.cq_offset, said.cq_entries, size_of::<Wc>()),
        _ => (said.sq_offset, said.sq_entries, size_of::<SendWr>()),
    };
    if entries == 0 {
        return;
    }
    let field = 8 * rng.below(size / 8);
    let mut at = || {
        let entry = rng.below(entries.min(32) as usize);
        queue.rings.word(offset as usize + entry * size + field)
    };
    let (to, from) = (at(), at());
    exchange(rng, arena, to, from);
    if rng.below(16) == 0 {
        let byte = rng.below(said.ring_bytes as usize);
        let noise = rng.next() as u8;
        queue.rings.byte(byte).store(noise, Ordering::Relaxed);
    }
}

/// An index, ours or the kernel's, which mostly becomes itself again.
fn rewrite_index(rng: &mut Rng, queue: &Queue) {
    let index = queue.index(Field::ALL[rng.below(Field::ALL.len())]);
    let old = index.load(Ordering::Relaxed);
    let new = match rng.below(3) {
        0 => rng.next() as u32,
        1 => EDGES[rng.below(EDGES.len())] as u32,
        _ => old.wrapping_add(rng.below(33) as u32).wrapping_sub(16),
    };
    index.store(new, Ordering::Relaxed);
    if rng.below(4) > 0 {
        thread::sleep(Duration::from_micros(rng.below(50) as u64));
        index.store(old, Ordering::Relaxed);
    }
}
