// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The server's side of a [`crate::kv`] table.
//!
//! One writer, by `&mut`; peers read the same words meanwhile, through the NIC.
//! The words of a slot are stored one by one in no particular order: versions,
//! not fences, tell readers which words belong together.

use super::layout::{
    decode_slot, encode_slot, version_of, Geometry, Key, Link, Slot, SlotWords, Value,
    BUCKET_WORDS, LINK_AT, MAX_CHAIN_BUCKETS, SLOTS_PER_BUCKET, SLOT_WORDS,
};
use crate::sync::{AtomicU64, Ordering};
use core::fmt;

/// The table has no room for this key; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table is full: give it more buckets")
    }
}

impl core::error::Error for Full {}

/// A table in memory that peers may READ.
///
/// # Invariants
///
/// - `words` has the `geometry`'s length.
/// - A key is in at most one slot, which is in a bucket of the key's chain.
/// - A cluster bucket is in a chain if and only if its link says `owned`, and
///   `cluster_used` counts those. Cluster buckets outside of chains are empty.
pub struct Table<'a> {
    words: &'a [AtomicU64],
    geometry: Geometry,
    len: usize,
    cluster_used: u32,
    /// Where the search for a free cluster bucket starts.
    cluster_hint: u32,
}

#[derive(Clone, Copy)]
struct Place {
    bucket: u32,
    slot: usize,
}

fn places(bucket: u32) -> impl Iterator<Item = Place> {
    (0..SLOTS_PER_BUCKET).map(move |slot| Place { bucket, slot })
}

impl<'a> Table<'a> {
    /// An empty table in this memory, which is cleared. To be called before
    /// peers are told of it. `None`: there are not exactly
    /// [`Geometry::words`] words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], geometry: Geometry) -> Option<Self> {
        if words.len() != geometry.words() {
            return None;
        }
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        // INVARIANT: zeroes are empty slots and links to nowhere, not owned.
        Some(Self {
            words,
            geometry,
            len: 0,
            cluster_used: 0,
            cluster_hint: geometry.main_buckets(),
        })
    }

    /// The table's shape, which readers need.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Value> {
        self.find(key).map(|(_, value)| value)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        (0..self.geometry.total_buckets())
            .flat_map(places)
            .filter_map(|place| match self.slot(place) {
                Slot::Occupied(key, value) => Some((key, value)),
                Slot::Empty | Slot::Torn => None,
            })
    }

    /// Gives a key a value, new or instead of the one that it has.
    ///
    /// # Errors
    ///
    /// [`Full`]: the key is new, its chain has no free slot, and the chain has
    /// [`MAX_CHAIN_BUCKETS`] or the cluster area is used up.
    pub fn insert(&mut self, key: &Key, value: &Value) -> Result<(), Full> {
        if let Some((place, _)) = self.find(key) {
            self.write(place, Some((key, value)));
            return Ok(());
        }
        if let Some(place) = self.find_room(key) {
            self.write(place, Some((key, value)));
        } else {
            self.insert_in_new_bucket(key, value)?;
        }
        self.len += 1;
        Ok(())
    }

    /// Removes a key and answers with the value that it had.
    pub fn remove(&mut self, key: &Key) -> Option<Value> {
        let (place, value) = self.find(key)?;
        self.write(place, None);
        self.len -= 1;
        if self.geometry.is_cluster(place.bucket) {
            self.trim(key);
        }
        Some(value)
    }

    fn insert_in_new_bucket(&mut self, key: &Key, value: &Value) -> Result<(), Full> {
        let tail = self.chain(key).last().ok_or(Full)?;
        if self.chain(key).count() >= MAX_CHAIN_BUCKETS {
            return Err(Full);
        }
        let bucket = self.find_free_cluster().ok_or(Full)?;
        self.write(Place { bucket, slot: 0 }, Some((key, value)));
        self.set_link(
            bucket,
            Link {
                next: None,
                owned: true,
            },
        );
        // INVARIANT: from here the bucket is in the chain. Its entry was
        // stored first, and this store releases it.
        self.set_link(
            tail,
            Link {
                next: Some(bucket),
                ..self.link(tail)
            },
        );
        self.cluster_used += 1;
        self.cluster_hint = bucket + 1;
        Ok(())
    }

    /// Gives the empty buckets at the end of a key's chain back.
    fn trim(&mut self, key: &Key) {
        let mut keep = self.geometry.bucket_of(key);
        for bucket in self.chain(key) {
            if places(bucket).any(|place| self.slot(place) != Slot::Empty) {
                keep = bucket;
            }
        }
        let mut next = self.link(keep).next;
        self.set_link(
            keep,
            Link {
                next: None,
                ..self.link(keep)
            },
        );
        while let Some(bucket) = next {
            next = self.link(bucket).next;
            // INVARIANT: empty, in no chain, and no longer counted.
            self.set_link(
                bucket,
                Link {
                    next: None,
                    owned: false,
                },
            );
            self.cluster_used = self.cluster_used.saturating_sub(1);
        }
    }

    fn find_free_cluster(&self) -> Option<u32> {
        let (main, total) = (self.geometry.main_buckets(), self.geometry.total_buckets());
        if self.cluster_used >= total - main {
            return None;
        }
        (self.cluster_hint..total)
            .chain(main..total)
            .find(|&bucket| !self.link(bucket).owned)
    }

    /// The buckets in which a key may be, from its main bucket on.
    fn chain(&self, key: &Key) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(Some(self.geometry.bucket_of(key)), |&bucket| {
            self.link(bucket).next
        })
        .take(MAX_CHAIN_BUCKETS)
    }

    fn find(&self, key: &Key) -> Option<(Place, Value)> {
        self.chain(key)
            .flat_map(places)
            .find_map(|place| match self.slot(place) {
                Slot::Occupied(its, value) if its == *key => Some((place, value)),
                _ => None,
            })
    }

    fn find_room(&self, key: &Key) -> Option<Place> {
        self.chain(key)
            .flat_map(places)
            .find(|&place| self.slot(place) == Slot::Empty)
    }

    fn slot(&self, place: Place) -> Slot {
        decode_slot(&self.slot_words(place))
    }

    fn slot_words(&self, place: Place) -> SlotWords {
        let mut words = [0; SLOT_WORDS];
        for (copy, word) in words.iter_mut().zip(self.slot_storage(place)) {
            *copy = u64::from_le(word.load(Ordering::Relaxed));
        }
        words
    }

    /// Writes a slot with its next version (rule 1 of [`crate::kv`]).
    fn write(&mut self, place: Place, entry: Option<(&Key, &Value)>) {
        let version = version_of(&self.slot_words(place)).wrapping_add(1);
        let new_words = encode_slot(entry, version);
        for (word, new) in self.slot_storage(place).iter().zip(new_words) {
            word.store(new.to_le(), Ordering::Relaxed);
        }
    }

    fn slot_storage(&self, place: Place) -> &'a [AtomicU64] {
        let at = place.bucket as usize * BUCKET_WORDS + place.slot * SLOT_WORDS;
        self.words.get(at..at + SLOT_WORDS).unwrap_or_default()
    }

    fn link_storage(&self, bucket: u32) -> Option<&'a AtomicU64> {
        self.words.get(bucket as usize * BUCKET_WORDS + LINK_AT)
    }

    fn link(&self, bucket: u32) -> Link {
        self.link_storage(bucket)
            .and_then(|word| {
                Link::decode(u64::from_le(word.load(Ordering::Relaxed)), &self.geometry)
            })
            .unwrap_or(Link {
                next: None,
                owned: true,
            })
    }

    fn set_link(&mut self, bucket: u32, link: Link) {
        if let Some(word) = self.link_storage(bucket) {
            word.store(link.encode().to_le(), Ordering::Release);
        }
    }
}
