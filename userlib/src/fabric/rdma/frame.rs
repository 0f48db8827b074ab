// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frame that opens a line between two nodes.

use crate::fabric::MAX_HELLO_BYTES;

/// Longest card: where a node's memory and its queue pair are.
pub(super) const MAX_CARD_BYTES: usize = 256;

/// What a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// All nodes of a fabric meet, or the founders of one with seats.
    Meeting,
    /// Somebody asks a node which seats are empty.
    Question,
    /// The answer, in which `nodes` is a set of seats.
    Vacant,
    /// A newcomer calls a node.
    Call,
    /// The node says who it is.
    Answer,
}

impl Purpose {
    const ALL: [(Self, [u8; 8]); 5] = [
        (Self::Meeting, *b"weftrdm2"),
        (Self::Question, *b"weftask2"),
        (Self::Vacant, *b"weftvac2"),
        (Self::Call, *b"weftcal2"),
        (Self::Answer, *b"weftans2"),
    ];

    fn magic(self) -> u64 {
        let known = Self::ALL.iter().find(|known| known.0 == self);
        known.map_or(0, |known| u64::from_le_bytes(known.1))
    }

    fn of(magic: u64) -> Option<Self> {
        let mut all = Self::ALL.iter();
        let known = all.find(|known| u64::from_le_bytes(known.1) == magic)?;
        Some(known.0)
    }
}

/// Eight words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) purpose: Purpose,
    /// Which fabric it is.
    pub(super) kind: u8,
    pub(super) rank: usize,
    /// Nodes that meet, or seats.
    pub(super) nodes: u64,
    pub(super) region_bytes: usize,
    pub(super) card_bytes: usize,
    pub(super) hello_bytes: usize,
    /// 0 of a founder.
    pub(super) incarnation: u64,
}

impl Frame {
    pub(super) const BYTES: usize = 64;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [
            self.purpose.magic(),
            u64::from(self.kind),
            self.rank as u64,
            self.nodes,
            self.region_bytes as u64,
            self.card_bytes as u64,
            self.hello_bytes as u64,
            self.incarnation,
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
            purpose: Purpose::of(word(0))?,
            kind: u8::try_from(word(1)).ok()?,
            rank: size(2)?,
            nodes: word(3),
            region_bytes: size(4)?,
            card_bytes: size(5)?,
            hello_bytes: size(6)?,
            incarnation: word(7),
        };
        let fits = frame.card_bytes <= MAX_CARD_BYTES && frame.hello_bytes <= MAX_HELLO_BYTES;
        fits.then_some(frame)
    }
}
