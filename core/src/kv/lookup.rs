// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A look-up in a [`crate::kv`] table that lies in another host's memory.
//!
//! Whoever drives it performs the READs: [`Lookup::next_read`] says which
//! comes first, [`Lookup::feed`] takes the bytes and says what comes next. The
//! bytes are not trusted: whatever they are, the look-up ends after at most
//! [`MAX_CHAIN_BUCKETS`] + [`MAX_TORN_READS`] READs, all within the table.

use super::layout::{
    decode_slot, Geometry, Key, Link, Slot, Value, BUCKET_BYTES, MAX_CHAIN_BUCKETS, SLOT_WORDS,
};

/// READs that one look-up repeats because a slot was being written.
pub const MAX_TORN_READS: u32 = 32;

/// Which bytes of the table to READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// Distance from the table's first byte, in bytes; a multiple of 8.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// What a look-up wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// READ these bytes and feed them.
    Read(ReadAt),
    /// The key has this value.
    Found(Value),
    /// The key is not in the table.
    Absent,
    /// The table is written all the time, or what was fed is not one. Trying
    /// again later may help.
    GaveUp,
}

/// A look-up in progress.
///
/// # Invariants
///
/// `bucket < geometry.total_buckets()`.
#[derive(Clone, Debug)]
pub struct Lookup {
    geometry: Geometry,
    key: Key,
    bucket: u32,
    links_left: usize,
    torn_reads_left: u32,
    reads: u32,
}

/// What one image of a bucket says about a key.
enum Image {
    Has(Value),
    Torn,
    Ends,
    Continues(u32),
    Garbage,
}

impl Lookup {
    /// Starts to look `key` up in a table of this shape.
    #[must_use]
    pub fn new(geometry: Geometry, key: Key) -> Self {
        Self {
            geometry,
            key,
            // INVARIANT: a hash leads to a main bucket.
            bucket: geometry.bucket_of(&key),
            links_left: MAX_CHAIN_BUCKETS - 1,
            torn_reads_left: MAX_TORN_READS,
            reads: 0,
        }
    }

    /// The READ that the look-up waits for.
    #[must_use]
    pub fn next_read(&self) -> ReadAt {
        ReadAt {
            offset: u64::from(self.bucket) * BUCKET_BYTES as u64,
            len: BUCKET_BYTES as u32,
        }
    }

    /// READs that were fed so far.
    #[must_use]
    pub fn reads(&self) -> u32 {
        self.reads
    }

    /// Takes the bytes that [`Self::next_read`] asked for. After anything but
    /// [`Step::Read`] the look-up is over.
    pub fn feed(&mut self, bucket_bytes: &[u8]) -> Step {
        self.reads = self.reads.saturating_add(1);
        match self.examine(bucket_bytes) {
            Image::Has(value) => Step::Found(value),
            Image::Ends => Step::Absent,
            Image::Torn => self.read_again(),
            Image::Continues(next) => self.follow(next),
            Image::Garbage => Step::GaveUp,
        }
    }

    fn read_again(&mut self) -> Step {
        let Some(left) = self.torn_reads_left.checked_sub(1) else {
            return Step::GaveUp;
        };
        self.torn_reads_left = left;
        Step::Read(self.next_read())
    }

    fn follow(&mut self, next: u32) -> Step {
        let Some(left) = self.links_left.checked_sub(1) else {
            return Step::GaveUp;
        };
        self.links_left = left;
        // INVARIANT: `Link` leads only to buckets of the cluster area.
        self.bucket = next;
        Step::Read(self.next_read())
    }

    fn examine(&self, bucket_bytes: &[u8]) -> Image {
        let Ok(bytes) = <&[u8; BUCKET_BYTES]>::try_from(bucket_bytes) else {
            return Image::Garbage;
        };
        let mut torn = false;
        let slots = bytes.chunks_exact(SLOT_WORDS * 8);
        let link_bytes = slots.remainder();
        for slot in slots {
            let mut words = [0; SLOT_WORDS];
            for (word, bytes) in words.iter_mut().zip(slot.chunks_exact(8)) {
                *word = le_word(bytes);
            }
            match decode_slot(&words) {
                Slot::Occupied(key, value) if key == self.key => return Image::Has(value),
                Slot::Torn => torn = true,
                Slot::Occupied(..) | Slot::Empty => {}
            }
        }
        if torn {
            return Image::Torn;
        }
        match Link::decode(le_word(link_bytes), &self.geometry) {
            Some(Link {
                next: Some(next), ..
            }) => Image::Continues(next),
            Some(Link { next: None, .. }) => Image::Ends,
            None => Image::Garbage,
        }
    }
}

/// The little-endian word in eight bytes.
fn le_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}
