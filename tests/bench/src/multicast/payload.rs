// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is in a message: words that follow from its sender and number, so that
//! every byte is written, and a sum over every byte shows whether the message is
//! that one, whole, and no older message of the same slot.
//!
//! Building a message takes an addition for each vector that is stored, checking it
//! an addition for each that is loaded: less than the memory takes.

use serde::{Deserialize, Serialize};
use weft_testkit::rng::Rng;

const WORD: usize = size_of::<u64>();
/// Words that are built and added up side by side: a cache line.
const LANES: usize = 8;
const LINE: usize = LANES * WORD;

/// How a sender's stores go to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stores {
    /// As any: the processor fetches the line from whoever has it, and keeps it.
    Cached,
    /// Past the caches, whole lines. Better where the reader's core is far away:
    /// the writer does not wait for the line that the reader has.
    Streamed,
}

impl Stores {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cached, Self::Streamed];
}

/// The first word of a message.
fn first_word(sender: usize, number: u64) -> u64 {
    Rng::new(number.rotate_left(16) ^ sender as u64).next()
}

/// Writes all bytes of a message.
pub fn write(bytes: &mut [u8], sender: usize, number: u64, stores: Stores) {
    let first = first_word(sender, number);
    match stores {
        Stores::Cached => write_cached(bytes, first),
        Stores::Streamed => write_streamed(bytes, first),
    }
}

/// Whether a message has all the bytes that [`write()`] writes.
pub fn is_whole(bytes: &[u8], sender: usize, number: u64) -> bool {
    let first = first_word(sender, number);
    let words = (bytes.len() / WORD) as u64;
    let (sum, rest) = sum_words(bytes);
    // The sum of `first + n` for all `n` below `words`.
    let pairs = words.wrapping_mul(words.wrapping_sub(1)) / 2;
    let last = first.wrapping_add(words).to_le_bytes();
    sum == words.wrapping_mul(first).wrapping_add(pairs) && *rest == last[..rest.len()]
}

fn write_cached(bytes: &mut [u8], first: u64) {
    let mut values: [u64; LANES] = std::array::from_fn(|lane| first.wrapping_add(lane as u64));
    let mut lines = bytes.chunks_exact_mut(LINE);
    for line in &mut lines {
        for (word, value) in line.chunks_exact_mut(WORD).zip(&mut values) {
            word.copy_from_slice(&value.to_le_bytes());
            *value = value.wrapping_add(LANES as u64);
        }
    }
    let words = lines.into_remainder().chunks_mut(WORD);
    for (word, value) in words.zip(values) {
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn write_streamed(bytes: &mut [u8], first: u64) {
    write_cached(bytes, first);
}

/// Writes whole lines past the caches, and what is before and behind them as usual.
#[cfg(target_arch = "x86_64")]
fn write_streamed(bytes: &mut [u8], first: u64) {
    use std::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_sfence, _mm_stream_si128};

    let head = bytes.as_ptr().align_offset(LINE);
    if head % WORD != 0 || bytes.len() < head + LINE {
        return write_cached(bytes, first);
    }
    let (before, rest) = bytes.split_at_mut(head);
    let (lines, behind) = rest.split_at_mut(rest.len() / LINE * LINE);
    write_cached(before, first);
    let mut value = first.wrapping_add((head / WORD) as u64);
    for pair in lines.chunks_exact_mut(2 * WORD) {
        // SAFETY: all processors of this kind have it; it touches no memory.
        let both = unsafe { _mm_set_epi64x(value.wrapping_add(1) as i64, value as i64) };
        // SAFETY: the pair is borrowed, as long as a vector, and aligned to one
        // because the lines are to a line.
        unsafe { _mm_stream_si128(pair.as_mut_ptr().cast::<__m128i>(), both) };
        value = value.wrapping_add(2);
    }
    // Streamed stores are in no order with others before this.
    // SAFETY: all processors of this kind have it.
    unsafe { _mm_sfence() };
    write_cached(behind, value);
}

/// The sum of all whole words, and the bytes behind them.
fn sum_words(bytes: &[u8]) -> (u64, &[u8]) {
    let value = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
    let mut sums = [0_u64; LANES];
    let lines = bytes.chunks_exact(LINE);
    let words = lines.remainder().chunks_exact(WORD);
    let rest = words.remainder();
    for line in lines {
        for (sum, word) in sums.iter_mut().zip(line.chunks_exact(WORD)) {
            *sum = sum.wrapping_add(value(word));
        }
    }
    let all = sums.into_iter().chain(words.map(value));
    (all.fold(0, u64::wrapping_add), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around words and lines, and the paper's longest.
    const LENGTHS: [usize; 10] = [1, 7, 8, 9, 63, 64, 65, 128, 1000, 10_240];

    #[test]
    fn both_ways_to_store_write_the_same_bytes_wherever_they_begin() {
        for len in LENGTHS {
            for offset in [0, 8, 24, 56, 3] {
                let mut memory = [vec![0; 64 + len + 64], vec![0; 64 + len + 64]];
                for (memory, stores) in memory.iter_mut().zip(Stores::ALL) {
                    let start = memory.as_ptr().align_offset(64) + offset;
                    write(&mut memory[start..start + len], 3, 77, stores);
                    assert!(is_whole(&memory[start..start + len], 3, 77), "{len}");
                    memory.copy_within(start..start + len, 0);
                }
                assert_eq!(memory[0][..len], memory[1][..len], "{len} at {offset}");
            }
        }
    }

    #[test]
    fn a_stale_a_foreign_and_a_torn_message_are_noticed() {
        for len in LENGTHS.into_iter().filter(|&len| len >= 8) {
            let mut bytes = vec![0; len];
            write(&mut bytes, 1, 1000, Stores::Cached);
            assert!(!is_whole(&bytes, 1, 900), "an older one, {len}");
            assert!(!is_whole(&bytes, 2, 1000), "another sender's, {len}");
            let mut torn = vec![0; len];
            write(&mut torn, 1, 900, Stores::Cached);
            torn[..len / 2].copy_from_slice(&bytes[..len / 2]);
            assert!(!is_whole(&torn, 1, 1000), "half of an older one, {len}");
            for at in [0, len / 2, len - 1] {
                bytes[at] ^= 1;
                assert!(!is_whole(&bytes, 1, 1000), "byte {at} of {len}");
                bytes[at] ^= 1;
            }
        }
    }
}
