// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What server and readers of a [`crate::kv`] table share: its shape, the bits
//! of a slot and of a link, and the hash.
//!
//! All words are little-endian. A bucket is eight slots of six words and one
//! link word, 392 bytes. It is not padded: wherever it starts, it touches seven
//! cache lines, which is the least that 392 bytes can touch.

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 18;
/// A key: a GID, or whatever else names an entry.
pub type Key = [u8; KEY_BYTES];
/// A value.
pub type Value = [u8; VALUE_BYTES];

/// Entries that a bucket has room for.
pub const SLOTS_PER_BUCKET: usize = 8;
/// 8-byte words of a slot.
pub const SLOT_WORDS: usize = 6;
/// 8-byte words of a bucket: its slots, then its link.
pub const BUCKET_WORDS: usize = SLOTS_PER_BUCKET * SLOT_WORDS + 1;
/// Bytes of a bucket, which is what one READ fetches.
pub const BUCKET_BYTES: usize = BUCKET_WORDS * 8;
/// Where in a bucket its link is, in words.
pub(super) const LINK_AT: usize = SLOTS_PER_BUCKET * SLOT_WORDS;

/// Most buckets of a table: 8 million slots in 392 MiB, so that every byte
/// offset fits 32 bits.
pub const MAX_BUCKETS: u32 = 1 << 20;
const _: () = assert!(MAX_BUCKETS as u64 * BUCKET_BYTES as u64 <= u32::MAX as u64);

/// Most buckets of a chain. Keys that collide beyond it are refused as if the
/// table were full.
pub const MAX_CHAIN_BUCKETS: usize = 8;

/// Entries per main bucket that [`Geometry::for_capacity`] aims at: 75 %.
const TARGET_PER_BUCKET: u32 = 6;
/// Cluster buckets that a table gets over the quarter of its main buckets, for
/// the spread of small numbers.
const SPARE_CLUSTER_BUCKETS: u32 = 16;

/// The shape of a table: how many main buckets, then how many in the cluster
/// area.
///
/// # Invariants
///
/// `1 <= main <= total <= MAX_BUCKETS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    main: u32,
    total: u32,
}

impl Geometry {
    /// A table of `total` buckets, the first `main` of which are main buckets.
    /// `None`: there is no main bucket, or fewer buckets than main buckets, or
    /// more than [`MAX_BUCKETS`].
    #[must_use]
    pub const fn new(main: u32, total: u32) -> Option<Self> {
        if main == 0 || total < main || total > MAX_BUCKETS {
            return None;
        }
        // INVARIANT: just checked.
        Some(Self { main, total })
    }

    /// A table for this many records at 75 % occupancy of its main slots.
    ///
    /// At that load 15 % of main buckets overflow (Poisson, mean 6, more than
    /// 8); a quarter of them and 16 more is beyond six standard
    /// deviations of that for every size. `None`: over [`MAX_BUCKETS`].
    #[must_use]
    pub const fn for_capacity(records: u32) -> Option<Self> {
        let main = records.div_ceil(TARGET_PER_BUCKET);
        let main = if main == 0 { 1 } else { main };
        // A third of u32::MAX at most: the sum cannot overflow.
        Self::new(main, main + main / 4 + SPARE_CLUSTER_BUCKETS)
    }

    /// Buckets that keys hash to.
    #[must_use]
    pub const fn main_buckets(&self) -> u32 {
        self.main
    }

    /// All buckets, those of the cluster area included.
    #[must_use]
    pub const fn total_buckets(&self) -> u32 {
        self.total
    }

    /// Bytes of the table.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.total as u64 * BUCKET_BYTES as u64
    }

    /// 8-byte words of the table.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.total as usize * BUCKET_WORDS
    }

    /// The main bucket of a key.
    pub(super) fn bucket_of(&self, key: &Key) -> u32 {
        let spread = (hash(key) >> 32) * u64::from(self.main);
        // Two 32-bit factors: the high half is below `main`.
        (spread >> 32) as u32
    }

    /// Whether a link may lead to this bucket.
    pub(super) const fn is_cluster(&self, bucket: u32) -> bool {
        self.main <= bucket && bucket < self.total
    }
}

/// Spreads a key over 64 bits: both halves go through the finaliser of
/// splitmix64, in a row. Server and readers must agree on it for ever.
pub(super) fn hash(key: &Key) -> u64 {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *key;
    let low = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let high = u64::from_le_bytes(rest);
    mix(mix(low ^ 0x9e37_79b9_7f4a_7c15) ^ high)
}

const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Payload bytes of a slot: key, value, flags.
const PAYLOAD_BYTES: usize = KEY_BYTES + VALUE_BYTES + 2;
/// Payload bytes of a word; the version takes the other two.
const WORD_PAYLOAD_BYTES: usize = 6;
const _: () = assert!(PAYLOAD_BYTES == SLOT_WORDS * WORD_PAYLOAD_BYTES);
/// The flags of a slot that holds an entry. Those of an empty one are zero.
const OCCUPIED: u16 = 1;

/// A slot's words, as numbers.
pub(super) type SlotWords = [u64; SLOT_WORDS];

/// What a slot's words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Free.
    Empty,
    /// Holds an entry.
    Occupied(Key, Value),
    /// The words come from different writes, or were never a slot.
    Torn,
}

/// The words of a slot that holds `entry`, or of an empty one.
pub(super) fn encode_slot(entry: Option<(&Key, &Value)>, version: u16) -> SlotWords {
    let mut payload = [0; PAYLOAD_BYTES];
    if let Some((key, value)) = entry {
        payload[..KEY_BYTES].copy_from_slice(key);
        payload[KEY_BYTES..KEY_BYTES + VALUE_BYTES].copy_from_slice(value);
        payload[KEY_BYTES + VALUE_BYTES..].copy_from_slice(&OCCUPIED.to_le_bytes());
    }
    let [v0, v1] = version.to_le_bytes();
    let mut words = [0; SLOT_WORDS];
    for (word, part) in words
        .iter_mut()
        .zip(payload.chunks_exact(WORD_PAYLOAD_BYTES))
    {
        let mut bytes = [0, 0, 0, 0, 0, 0, v0, v1];
        bytes[..WORD_PAYLOAD_BYTES].copy_from_slice(part);
        *word = u64::from_le_bytes(bytes);
    }
    words
}

/// Reads a slot's words.
pub(super) fn decode_slot(words: &SlotWords) -> Slot {
    let version = version_of(words);
    let mut payload = [0; PAYLOAD_BYTES];
    for (word, part) in words
        .iter()
        .zip(payload.chunks_exact_mut(WORD_PAYLOAD_BYTES))
    {
        let [a, b, c, d, e, f, v0, v1] = word.to_le_bytes();
        if u16::from_le_bytes([v0, v1]) != version {
            return Slot::Torn;
        }
        part.copy_from_slice(&[a, b, c, d, e, f]);
    }
    let mut key = [0; KEY_BYTES];
    let mut value = [0; VALUE_BYTES];
    let mut flags = [0; 2];
    key.copy_from_slice(&payload[..KEY_BYTES]);
    value.copy_from_slice(&payload[KEY_BYTES..KEY_BYTES + VALUE_BYTES]);
    flags.copy_from_slice(&payload[KEY_BYTES + VALUE_BYTES..]);
    match u16::from_le_bytes(flags) {
        0 => Slot::Empty,
        OCCUPIED => Slot::Occupied(key, value),
        _ => Slot::Torn,
    }
}

/// The version of a slot's first word, which is the slot's if it is whole.
pub(super) const fn version_of(words: &SlotWords) -> u16 {
    let [first, ..] = words;
    (*first >> 48) as u16
}

/// A bucket's link word: where the chain goes on, in the low 32 bits, and a
/// mark that tells a link from garbage in the high 16. Bit 32 says that the
/// bucket belongs to a chain; only the server looks at it.
///
/// # Invariants
///
/// `next`, if any, is in the cluster area of the table's geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) next: Option<u32>,
    pub(super) owned: bool,
}

const LINK_MARK: u64 = 0x574c << 48;
const LINK_MARK_MASK: u64 = 0xffff << 48;
const LINK_OWNED: u64 = 1 << 32;

impl Link {
    /// The link as a word.
    pub(super) fn encode(self) -> u64 {
        let owned = if self.owned { LINK_OWNED } else { 0 };
        self.next.map_or(0, |next| LINK_MARK | u64::from(next)) | owned
    }

    /// Reads a link word. `None`: it is garbage or leads out of the table.
    pub(super) fn decode(word: u64, geometry: &Geometry) -> Option<Self> {
        let owned = word & LINK_OWNED != 0;
        // The low 32 bits are the index.
        let index = word as u32;
        let next = match word & LINK_MARK_MASK {
            0 if index == 0 => None,
            // INVARIANT: in the cluster area.
            LINK_MARK if geometry.is_cluster(index) => Some(index),
            _ => return None,
        };
        Some(Self { next, owned })
    }
}
