// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tests of [`crate::kv`]: a table beside a map, read as a peer would read it.

use super::*;
use crate::sync::{AtomicU64, Ordering};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::vec::Vec;

fn storage(geometry: Geometry) -> Vec<AtomicU64> {
    (0..geometry.words()).map(|_| AtomicU64::new(0)).collect()
}

fn image(words: &[AtomicU64]) -> Vec<u8> {
    words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
        .collect()
}

fn range(at: ReadAt) -> std::ops::Range<usize> {
    let start = usize::try_from(at.offset).unwrap();
    start..start + at.len as usize
}

/// Looks a key up in a table that nobody writes; answers with the READs too.
fn look_up(table: &[u8], geometry: Geometry, key: Key) -> (Option<Value>, u32) {
    let mut lookup = Lookup::new(geometry, key);
    let mut at = lookup.next_read();
    loop {
        match lookup.feed(&table[range(at)]) {
            Step::Read(next) => at = next,
            Step::Found(value) => return (Some(value), lookup.reads()),
            Step::Absent => return (None, lookup.reads()),
            Step::GaveUp => panic!("gave up on a quiet table"),
        }
    }
}

fn key(number: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u64) -> Value {
    let mut value = [0xa5; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[10..].copy_from_slice(&number.wrapping_mul(0x0101_0101_0101_0101).to_le_bytes());
    value
}

/// A sequence of numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        layout::hash(&key(self.0))
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }
}

#[test]
fn a_geometry_that_is_no_table_is_refused() {
    assert_eq!(Geometry::new(0, 4), None);
    assert_eq!(Geometry::new(5, 4), None);
    assert_eq!(Geometry::new(1, MAX_BUCKETS + 1), None);
    assert_eq!(Geometry::for_capacity(u32::MAX), None);
    let largest = Geometry::new(1, MAX_BUCKETS).unwrap();
    assert!(largest.bytes() <= u64::from(u32::MAX));
    assert_eq!(largest.bytes(), largest.words() as u64 * 8);
}

#[test]
fn memory_of_another_size_is_no_table() {
    let geometry = Geometry::for_capacity(0).unwrap();
    let words = storage(geometry);
    assert!(Table::new(&words[1..], geometry).is_none());
    assert!(Table::new(&words, geometry).is_some());
}

#[test]
fn a_full_table_refuses_a_new_key_and_keeps_the_others() {
    let geometry = Geometry::new(1, 3).unwrap();
    let words = storage(geometry);
    let mut table = Table::new(&words, geometry).unwrap();
    for n in 0..24 {
        assert_eq!(table.insert(&key(n), &value(n)), Ok(()));
    }
    assert_eq!(table.insert(&key(24), &value(24)), Err(Full));
    assert_eq!(
        table.insert(&key(3), &value(33)),
        Ok(()),
        "an update needs no room"
    );
    assert_eq!(table.len(), 24);
    let bytes = image(&words);
    for n in 0..24 {
        let expected = if n == 3 { value(33) } else { value(n) };
        assert_eq!(look_up(&bytes, geometry, key(n)).0, Some(expected));
    }
    assert_eq!(look_up(&bytes, geometry, key(24)), (None, 3));
}

#[test]
fn a_chain_ends_at_its_limit_although_the_cluster_area_has_room() {
    let geometry = Geometry::new(1, 20).unwrap();
    let words = storage(geometry);
    let mut table = Table::new(&words, geometry).unwrap();
    let room = (MAX_CHAIN_BUCKETS * SLOTS_PER_BUCKET) as u64;
    for n in 0..room {
        assert_eq!(table.insert(&key(n), &value(n)), Ok(()));
    }
    assert_eq!(table.insert(&key(room), &value(room)), Err(Full));
    let bytes = image(&words);
    for n in 0..room {
        assert_eq!(look_up(&bytes, geometry, key(n)).0, Some(value(n)));
    }
}

#[test]
fn cluster_buckets_come_back_when_their_entries_go() {
    let geometry = Geometry::new(2, 4).unwrap();
    let words = storage(geometry);
    let mut table = Table::new(&words, geometry).unwrap();
    for round in 0..100_u64 {
        // Given a chain that takes the whole cluster area, when it goes, then
        // the other chain can have all of it.
        let of_round: Vec<Key> = (0..)
            .map(key)
            .filter(|key| u64::from(geometry.bucket_of(key)) == round % 2)
            .take(3 * SLOTS_PER_BUCKET)
            .collect();
        for key in &of_round {
            assert_eq!(table.insert(key, &value(round)), Ok(()), "round {round}");
        }
        for key in &of_round {
            assert_eq!(table.remove(key), Some(value(round)));
        }
        assert!(table.is_empty());
    }
}

#[test]
fn the_version_wraps_and_the_slot_stays_readable() {
    let geometry = Geometry::new(1, 1).unwrap();
    let words = storage(geometry);
    let mut table = Table::new(&words, geometry).unwrap();
    for n in 0..70_000 {
        table.insert(&key(1), &value(n)).unwrap();
    }
    assert_eq!(
        look_up(&image(&words), geometry, key(1)),
        (Some(value(69_999)), 1)
    );
}

#[test]
fn a_slot_that_stays_torn_ends_the_look_up() {
    let geometry = Geometry::new(1, 1).unwrap();
    let words = storage(geometry);
    let mut table = Table::new(&words, geometry).unwrap();
    table.insert(&key(1), &value(1)).unwrap();
    table.insert(&key(2), &value(2)).unwrap();
    let mut bytes = image(&words);
    bytes[6] ^= 1; // the version of the first word
    let mut lookup = Lookup::new(geometry, key(1));
    for _ in 0..MAX_TORN_READS {
        let step = lookup.feed(&bytes);
        assert_eq!(step, Step::Read(lookup.next_read()));
    }
    assert_eq!(lookup.feed(&bytes), Step::GaveUp);
    assert_eq!(
        look_up(&bytes, geometry, key(2)),
        (Some(value(2)), 1),
        "its neighbour is whole"
    );
}

#[test]
fn a_read_of_the_wrong_length_is_refused() {
    let geometry = Geometry::new(1, 1).unwrap();
    for len in [0, 1, BUCKET_BYTES - 1, BUCKET_BYTES + 1] {
        let bytes = std::vec![0; len];
        assert_eq!(Lookup::new(geometry, key(1)).feed(&bytes), Step::GaveUp);
    }
}

fn reads_per_look_up(keys: &[Key]) -> f64 {
    let geometry = Geometry::for_capacity(u32::try_from(keys.len()).unwrap()).unwrap();
    let words = storage(geometry);
    let mut table = Table::new(&words, geometry).unwrap();
    for (n, key) in keys.iter().enumerate() {
        table.insert(key, &value(n as u64)).unwrap();
    }
    let main_slots = geometry.main_buckets() as usize * SLOTS_PER_BUCKET;
    assert!(
        keys.len() * 1000 >= main_slots * 749,
        "the occupancy is 75 %"
    );
    let bytes = image(&words);
    let mut reads = 0;
    for (n, key) in keys.iter().enumerate() {
        let (found, its_reads) = look_up(&bytes, geometry, *key);
        assert_eq!(found, Some(value(n as u64)));
        reads += its_reads;
    }
    f64::from(reads) / keys.len() as f64
}

#[test]
fn ten_thousand_records_at_75_percent_take_at_most_1_1_reads_on_average() {
    let mut random = Random(0x57ef);
    let random_keys: Vec<Key> = (0..10_000)
        .map(|_| {
            let mut key = [0; KEY_BYTES];
            key[..8].copy_from_slice(&random.next().to_le_bytes());
            key[8..].copy_from_slice(&random.next().to_le_bytes());
            key
        })
        .collect();
    let addresses: Vec<Key> = (0..10_000_u32)
        .map(|n| crate::gid::Gid::from_ipv4((0x0a00_0000 + n).to_be_bytes()).0)
        .collect();
    for (what, keys) in [
        ("random keys", random_keys),
        ("addresses in a row", addresses),
    ] {
        let mean = reads_per_look_up(&keys);
        std::println!("{what}: {mean:.4} READs per look-up");
        assert!(mean <= 1.1, "{what}: {mean}");
    }
}

#[test]
fn tables_of_every_size_hold_what_they_are_made_for() {
    for records in (0..200).chain([1_000, 5_000, 50_000]) {
        let geometry = Geometry::for_capacity(records).unwrap();
        let words = storage(geometry);
        let mut table = Table::new(&words, geometry).unwrap();
        for n in 0..u64::from(records) {
            assert_eq!(
                table.insert(&key(n), &value(n)),
                Ok(()),
                "{records} records"
            );
        }
        assert_eq!(table.iter().count(), table.len());
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64, u64),
    Remove(u64),
}

fn op(keys: u64) -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..keys, any::<u64>()).prop_map(|(k, v)| Op::Insert(k, v)),
        2 => (0..keys).prop_map(Op::Remove),
    ]
}

/// Does the same to a table and to a map.
fn apply(table: &mut Table<'_>, model: &mut HashMap<u64, u64>, op: Op) {
    match op {
        Op::Insert(k, v) => match table.insert(&key(k), &value(v)) {
            Ok(()) => {
                model.insert(k, v);
            }
            Err(Full) => assert!(!model.contains_key(&k), "an update needs no room"),
        },
        Op::Remove(k) => assert_eq!(table.remove(&key(k)), model.remove(&k).map(value)),
    }
    assert_eq!(table.len(), model.len());
}

proptest! {
    #[test]
    fn a_table_is_a_map(
        main in 1..4_u32,
        cluster in 0..5_u32,
        ops in proptest::collection::vec(op(48), 0..300),
    ) {
        let geometry = Geometry::new(main, main + cluster).unwrap();
        let words = storage(geometry);
        let mut table = Table::new(&words, geometry).unwrap();
        let mut model = HashMap::new();
        for op in ops {
            apply(&mut table, &mut model, op);
        }
        let bytes = image(&words);
        for k in 0..48 {
            let expected = model.get(&k).copied().map(value);
            prop_assert_eq!(look_up(&bytes, geometry, key(k)).0, expected);
            prop_assert_eq!(table.get(&key(k)), expected);
        }
        let listed: HashSet<_> = table.iter().collect();
        let expected: HashSet<_> = model.into_iter().map(|(k, v)| (key(k), value(v))).collect();
        prop_assert_eq!(listed, expected);
    }

    /// Each word of each READ is taken from any moment of the READ's time.
    #[test]
    fn a_read_torn_in_any_way_gives_only_what_was_there(
        main in 1..3_u32,
        ops in proptest::collection::vec(op(20), 1..60),
        sought in 0..20_u64,
        start in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let geometry = Geometry::new(main, main + 2).unwrap();
        let words = storage(geometry);
        let mut table = Table::new(&words, geometry).unwrap();
        let mut model = HashMap::new();
        let mut history = std::vec![(image(&words), None)];
        for op in ops {
            apply(&mut table, &mut model, op);
            history.push((image(&words), model.get(&sought).copied().map(value)));
        }
        let last = history.len() - 1;
        let begin = start.index(history.len());
        let mut random = Random(seed);
        let mut now = begin;
        let mut lookup = Lookup::new(geometry, key(sought));
        let end = loop {
            let done = last.min(now + random.between(0, 4));
            let mut bytes = Vec::new();
            for at in range(lookup.next_read()).step_by(8) {
                bytes.extend(&history[random.between(now, done)].0[at..at + 8]);
            }
            now = done;
            match lookup.feed(&bytes) {
                Step::Read(at) => prop_assert_eq!(at, lookup.next_read()),
                end => break end,
            }
        };
        let mut during = history[begin..=now].iter().map(|(_, value)| *value);
        match end {
            Step::Found(found) => prop_assert!(during.any(|value| value == Some(found))),
            Step::Absent => prop_assert!(during.any(|value| value.is_none())),
            step => prop_assert!(false, "the table got quiet, and yet: {step:?}"),
        }
    }

    #[test]
    fn garbage_ends_within_the_limits_and_stays_in_the_table(
        main in 1..5_u32,
        cluster in 0..5_u32,
        wanted in any::<Key>(),
        seed in any::<u64>(),
    ) {
        let geometry = Geometry::new(main, main + cluster).unwrap();
        let mut random = Random(seed);
        let mut lookup = Lookup::new(geometry, wanted);
        let mut at = lookup.next_read();
        let limit = MAX_CHAIN_BUCKETS as u32 + MAX_TORN_READS;
        loop {
            prop_assert!(at.offset + u64::from(at.len) <= geometry.bytes());
            let mut bytes = Vec::new();
            for word in 0..BUCKET_WORDS {
                let value = match random.next() % 16 {
                    0 => random.next(),
                    1 if word == layout::LINK_AT => random.next() % 16,
                    _ if word == layout::LINK_AT => (0x574c << 48) | (random.next() % 10),
                    _ => 0,
                };
                bytes.extend(value.to_le_bytes());
            }
            match lookup.feed(&bytes) {
                Step::Read(next) => at = next,
                Step::Found(_) => prop_assert!(false, "garbage is nobody's value"),
                Step::Absent | Step::GaveUp => break,
            }
            prop_assert!(lookup.reads() < limit);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), BUCKET_BYTES)) {
        let geometry = Geometry::new(1, MAX_BUCKETS).unwrap();
        let mut lookup = Lookup::new(geometry, key(7));
        let mut fed = 0;
        while let Step::Read(at) = lookup.feed(&bytes) {
            prop_assert!(at.offset + u64::from(at.len) <= geometry.bytes());
            fed += 1;
            prop_assert!(fed <= MAX_CHAIN_BUCKETS as u32 + MAX_TORN_READS);
        }
    }
}
