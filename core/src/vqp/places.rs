// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Places by the handle of who has them: a hash table in memory of the caller's.

use core::ops::DerefMut;

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceEntry {
    handle: u32,
    place: u32,
}

impl PlaceEntry {
    /// Nobody has a place: zero is nobody's handle.
    pub const NONE: Self = Self {
        handle: 0,
        place: 0,
    };
}

/// Open addressing with linear probing (Knuth, volume 3, 6.4, algorithms L and R). `M` is
/// the memory: a vector, whose length is a power of two. At most half of it is in use, so
/// that a look-up sees one or two entries. Handles that are chosen to collide cost their
/// owner a walk over as many entries as it has.
///
/// # Invariants
///
/// - The number of entries is a power of two, and at most half of them are taken.
/// - Between an entry's first choice, which its handle's hash says, and its place there is
///   no free one.
pub struct PlaceTable<M> {
    entries: M,
    count: usize,
}

impl<M: DerefMut<Target = [PlaceEntry]>> PlaceTable<M> {
    /// An empty table in `entries`, which are overwritten. `None`: they are no power of two.
    #[must_use]
    pub fn new(mut entries: M) -> Option<Self> {
        if !entries.len().is_power_of_two() {
            return None;
        }
        entries.fill(PlaceEntry::NONE);
        // INVARIANT: nothing is taken.
        Some(Self { entries, count: 0 })
    }

    /// The place of a handle.
    #[inline]
    #[must_use]
    pub fn get(&self, handle: u32) -> Option<u32> {
        let at = self.find(handle)?;
        self.entries.get(at).map(|entry| entry.place)
    }

    /// Whether another handle fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        2 * (self.count + 1) <= self.entries.len()
    }

    /// Gives a handle a place. `false`: there is no room, or it has one, or is zero.
    #[must_use]
    pub fn insert(&mut self, handle: u32, place: u32) -> bool {
        if handle == 0 || !self.has_room() {
            return false;
        }
        let mut at = self.first(handle);
        while let Some(entry) = self.entries.get_mut(at) {
            if entry.handle == 0 {
                // INVARIANT: the first free one from its first choice on.
                *entry = PlaceEntry { handle, place };
                self.count += 1;
                return true;
            }
            if entry.handle == handle {
                return false;
            }
            at = self.next(at);
        }
        false
    }

    /// Takes the place of a handle back.
    pub fn remove(&mut self, handle: u32) -> Option<u32> {
        let mut free = self.find(handle)?;
        let place = self.entries.get(free)?.place;
        let mut at = self.next(free);
        while let Some(&entry) = self.entries.get(at).filter(|entry| entry.handle != 0) {
            // INVARIANT: one whose first choice is not behind the free entry moves there.
            let way = self.distance(self.first(entry.handle), at);
            if way >= self.distance(free, at) {
                *self.entries.get_mut(free)? = entry;
                free = at;
            }
            at = self.next(at);
        }
        *self.entries.get_mut(free)? = PlaceEntry::NONE;
        self.count -= 1;
        Some(place)
    }

    /// Moves to other memory, which is overwritten. Answers what it had before.
    ///
    /// # Errors
    ///
    /// The memory that was not taken: it is not larger, or no power of two. The table stays
    /// where it is.
    pub fn move_to(&mut self, entries: M) -> Result<M, M> {
        if entries.len() <= self.entries.len() || !entries.len().is_power_of_two() {
            return Err(entries);
        }
        let mut before = core::mem::replace(&mut self.entries, entries);
        self.entries.fill(PlaceEntry::NONE);
        self.count = 0;
        for entry in before.iter_mut().filter(|entry| entry.handle != 0) {
            // There is room: it is larger.
            let _ = self.insert(entry.handle, entry.place);
        }
        Ok(before)
    }

    /// Where a handle is.
    #[inline]
    fn find(&self, handle: u32) -> Option<usize> {
        let mut at = self.first(handle);
        loop {
            let entry = self.entries.get(at)?;
            if entry.handle == handle {
                return (handle != 0).then_some(at);
            }
            // Half of them are free.
            if entry.handle == 0 {
                return None;
            }
            at = self.next(at);
        }
    }

    /// A handle's first choice: multiplied by the golden ratio (Knuth, volume 3, 6.4).
    #[inline]
    fn first(&self, handle: u32) -> usize {
        let hash = u64::from(handle).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Steps from one entry to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn table(len: usize) -> PlaceTable<Vec<PlaceEntry>> {
        PlaceTable::new(vec![PlaceEntry::NONE; len]).expect("a power of two")
    }

    #[test]
    fn memory_that_is_no_power_of_two_is_refused() {
        for len in [0, 3, 6, 12] {
            assert!(PlaceTable::new(vec![PlaceEntry::NONE; len]).is_none());
        }
    }

    #[test]
    fn nobody_has_no_place() {
        let mut table = table(4);
        assert!(!table.insert(0, 1));
        assert_eq!(table.get(0), None);
        assert_eq!(table.remove(0), None);
    }

    #[test]
    fn half_of_it_is_filled_and_more_only_in_more_memory() {
        let mut table = table(4);
        assert!(table.insert(1, 10) && table.insert(2, 20));
        assert!(!table.has_room() && !table.insert(3, 30));
        assert!(table.move_to(vec![PlaceEntry::NONE; 4]).is_err());
        assert!(table.move_to(vec![PlaceEntry::NONE; 8]).is_ok());
        assert!(table.insert(3, 30));
        assert_eq!(
            (table.get(1), table.get(2), table.get(3)),
            (Some(10), Some(20), Some(30))
        );
    }

    #[test]
    fn a_handle_has_one_place() {
        let mut table = table(8);
        assert!(table.insert(7, 1));
        assert!(!table.insert(7, 2));
        assert_eq!(table.remove(7), Some(1));
        assert_eq!(table.get(7), None);
    }

    proptest! {
        /// It answers as a map does, whatever was put in and taken out before. Few
        /// handles and little memory: they collide, and runs go around its end.
        #[test]
        fn it_says_what_a_map_says(
            steps in prop::collection::vec((any::<bool>(), 1_u32..40, any::<u32>()), 1..400),
        ) {
            let (mut table, mut map) = (table(16), BTreeMap::new());
            for (is_insert, handle, place) in steps {
                if !is_insert {
                    prop_assert_eq!(table.remove(handle), map.remove(&handle));
                } else if map.contains_key(&handle) || map.len() == 8 {
                    prop_assert!(!table.insert(handle, place));
                } else {
                    prop_assert!(table.insert(handle, place));
                    map.insert(handle, place);
                }
                for handle in 1..40 {
                    prop_assert_eq!(table.get(handle), map.get(&handle).copied());
                }
            }
        }

        /// Nothing is lost on the way to more memory.
        #[test]
        fn moving_keeps_all(handles in prop::collection::btree_set(1_u32.., 1..64)) {
            let mut table = table(2);
            for (place, &handle) in handles.iter().enumerate() {
                if !table.has_room() {
                    let longer = vec![PlaceEntry::NONE; 2 * table.entries.len()];
                    prop_assert!(table.move_to(longer).is_ok());
                }
                prop_assert!(table.insert(handle, place as u32));
            }
            for (place, &handle) in handles.iter().enumerate() {
                prop_assert_eq!(table.get(handle), Some(place as u32));
            }
        }
    }
}
