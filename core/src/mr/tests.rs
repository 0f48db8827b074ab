// SPDX-License-Identifier: GPL-2.0 OR MIT

mod revocation;

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const REGION: Record = Record {
    addr: 0x1000,
    len: 0x100,
    access: ACCESS_REMOTE_READ,
    rkey: 7,
};

#[test]
fn a_region_allows_its_range_and_its_access() {
    assert!(REGION.allows(0x1000, 0x100, ACCESS_REMOTE_READ));
    assert!(REGION.allows(0x1100, 0, ACCESS_REMOTE_READ));
    assert!(!REGION.allows(0x0fff, 1, ACCESS_REMOTE_READ));
    assert!(!REGION.allows(0x1001, 0x100, ACCESS_REMOTE_READ));
    assert!(!REGION.allows(u64::MAX, u32::MAX, ACCESS_REMOTE_READ));
    assert!(!REGION.allows(0x1000, 1, ACCESS_REMOTE_WRITE));
    assert!(!REGION.allows(0x1000, 1, ACCESS_REMOTE));
}

#[test]
fn a_device_that_relaxes_writes_gets_no_region_that_is_polled() {
    let (read, write) = (ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE);
    for access in [0, read, write, read | write, read | ACCESS_REMOTE_ATOMIC] {
        let relaxed = access | ACCESS_RELAXED_ORDERING;
        assert_eq!(
            access_by_rc(access | crate::uapi::ACCESS_LOCAL_WRITE, false),
            access
        );
        assert_eq!(access_by_rc(relaxed, false), access);
        assert_eq!(access_by_rc(relaxed, true), access);
        let is_written = access & !read != 0;
        assert_eq!(
            access_by_rc(access, true),
            if is_written { 0 } else { access }
        );
    }
}

/// A look-up with nothing in between.
fn learn(store: &mut Store, key: u32, record: Record, asked_ns: u64) {
    store.ask(name(key));
    assert!(store.learn(name(key), record, asked_ns));
}

/// The first block of a region.
fn name(key: u32) -> BlockName {
    BlockName { key, block: 0 }
}

#[test]
fn trust_ends() {
    let mut store = Store::EMPTY;
    learn(&mut store, 5, REGION, 1_000);
    assert_eq!(store.find(name(5), 1_000 + TRUST_NS - 1), Some(REGION));
    assert_eq!(store.find(name(5), 1_000 + TRUST_NS), None);
    const { assert!(TRUST_NS < LEASE_NS) };
}

#[test]
fn an_image_that_is_read_again_is_trusted_anew() {
    let mut store = Store::EMPTY;
    learn(&mut store, 5, REGION, 0);
    learn(&mut store, 5, Record { rkey: 8, ..REGION }, TRUST_NS);
    assert_eq!(
        store.find(name(5), TRUST_NS + 1),
        Some(Record { rkey: 8, ..REGION })
    );
}

#[test]
fn what_goes_is_forgotten_also_while_it_is_looked_up() {
    let mut store = Store::EMPTY;
    learn(&mut store, 5, REGION, 0);
    learn(&mut store, 6, REGION, 0);
    store.forget(&[4, 5]);
    assert_eq!(store.find(name(5), 0), None);
    assert_eq!(store.find(name(6), 0), Some(REGION), "another key stays");

    store.ask(name(7));
    store.forget(&[7]);
    assert!(!store.learn(name(7), REGION, 0));
    assert_eq!(store.find(name(7), 0), None);
    store.ask(name(7));
    store.forget(&[8]);
    assert!(
        store.learn(name(7), REGION, 0),
        "another key does not spoil it"
    );
}

#[test]
fn all_blocks_of_a_region_go_with_it() {
    let mut store = Store::EMPTY;
    for block in [0, 1, 77, u64::MAX >> 16] {
        let name = BlockName { key: 5, block };
        store.ask(name);
        assert!(store.learn(name, REGION, 0));
        assert_eq!(store.find(name, 0), Some(REGION));
        let other = BlockName {
            key: 5,
            block: block ^ 2,
        };
        assert_eq!(
            store.find(other, 0),
            None,
            "a block says nothing of another"
        );
    }
    store.forget(&[5]);
    for block in [0, 1, 77, u64::MAX >> 16] {
        assert_eq!(store.find(BlockName { key: 5, block }, 0), None);
    }
}

#[test]
fn a_full_set_forgets_one_and_keeps_the_others() {
    let mut store = Store::EMPTY;
    let keys: Vec<u32> = (0..=WAYS as u32).map(|i| 3 + i * SETS as u32).collect();
    for &key in &keys {
        learn(&mut store, key, REGION, 0);
    }
    let known = keys
        .iter()
        .filter(|&&key| store.find(name(key), 0).is_some());
    assert_eq!(known.count(), WAYS);
    assert!(
        store.find(name(keys[WAYS]), 0).is_some(),
        "the newest is there"
    );
}

fn records() -> impl Strategy<Value = Record> {
    (
        any::<u64>(),
        0u64..1 << LEN_BITS,
        0..=ACCESS_ALL,
        any::<u32>(),
    )
        .prop_map(|(addr, len, access, rkey)| Record {
            addr,
            len,
            access,
            rkey,
        })
}

proptest! {
    #[test]
    fn a_record_survives_the_table(record in records()) {
        prop_assert_eq!(Record::from_value(&record.to_value()), record);
    }

    #[test]
    fn any_value_is_judged(
        value in proptest::array::uniform18(any::<u8>()),
        addr in any::<u64>(),
        len in any::<u32>(),
    ) {
        let record = Record::from_value(&value);
        if record.allows(addr, len, ACCESS_REMOTE_READ) && len != 0 {
            prop_assert!(addr >= record.addr && u64::from(len) <= record.len);
        }
    }

    /// Against a model that forgets nothing: the store may know less, never
    /// something else or something stale.
    #[test]
    fn the_store_never_says_more_than_was_read(
        steps in proptest::collection::vec((0u32..200, records(), 0u64..TRUST_NS, any::<bool>()), 1..300),
    ) {
        let (mut store, mut model, mut now_ns) = (Store::EMPTY, HashMap::new(), 0);
        for (key, record, step_ns, inserts) in steps {
            now_ns += step_ns;
            if inserts {
                learn(&mut store, key, record, now_ns);
                model.insert(key, (record, now_ns));
                prop_assert_eq!(store.find(name(key), now_ns), Some(record));
            }
            if let Some(found) = store.find(name(key), now_ns) {
                let (record, asked_ns) = model[&key];
                prop_assert_eq!(found, record);
                prop_assert!(now_ns - asked_ns < TRUST_NS);
            }
        }
    }
}
