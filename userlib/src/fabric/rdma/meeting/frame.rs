// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frame that opens a line between two nodes.

use crate::fabric::MAX_HELLO_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"weftrdm1");
/// Longest card: where a node's memory and its queue pair are.
pub(super) const MAX_CARD_BYTES: usize = 256;

/// Seven words, of which the first is always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) rank: usize,
    pub(super) nodes: usize,
    pub(super) region_bytes: usize,
    pub(super) card_bytes: usize,
    pub(super) hello_bytes: usize,
}

impl Frame {
    pub(super) const BYTES: usize = 56;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [
            MAGIC,
            u64::from(self.kind),
            self.rank as u64,
            self.nodes as u64,
            self.region_bytes as u64,
            self.card_bytes as u64,
            self.hello_bytes as u64,
        ];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; nothing if it is anything else, or
    /// announces more than is taken.
    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        };
        let size = |at| usize::try_from(word(at)).ok();
        let frame = Self {
            kind: u8::try_from(word(1)).ok()?,
            rank: size(2)?,
            nodes: size(3)?,
            region_bytes: size(4)?,
            card_bytes: size(5)?,
            hello_bytes: size(6)?,
        };
        let fits = frame.card_bytes <= MAX_CARD_BYTES && frame.hello_bytes <= MAX_HELLO_BYTES;
        (word(0) == MAGIC && fits).then_some(frame)
    }
}
