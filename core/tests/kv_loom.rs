// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A peer's READ against the server's writes, in every order that the memory
//! model allows (loom).
//!
//! The reader copies a bucket word by word, as a NIC may, with nothing that
//! orders one word after another. To keep the number of executions small it
//! loads only the words that the writer may change and takes the others from a
//! picture of the table that was made before. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-core --release --test kv_loom`.

#![cfg(loom)]

use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::Arc;
use std::ops::Range;
use weft_core::kv::{
    Geometry, Key, Lookup, Step, Table, Value, BUCKET_WORDS, KEY_BYTES, SLOTS_PER_BUCKET,
    SLOT_WORDS, VALUE_BYTES,
};

const OLD: Value = [0x11; VALUE_BYTES];
const NEW: Value = [0xee; VALUE_BYTES];

fn key(number: u8) -> Key {
    [number; KEY_BYTES]
}

/// One race: what is in the table, which words change, and who looks for what.
struct Race {
    entries: u8,
    live: &'static [Range<usize>],
    write: fn(&mut Table<'_>),
    sought: u8,
    /// READs after which the reader stops.
    reads: usize,
    /// What the reader may learn, if a READ was not torn.
    allowed: &'static [Step],
}

const FIRST_SLOT: Range<usize> = 0..SLOT_WORDS;
const LINK: Range<usize> = BUCKET_WORDS - 1..BUCKET_WORDS;
/// The first slot of the only cluster bucket.
const CLUSTER_SLOT: Range<usize> = BUCKET_WORDS..BUCKET_WORDS + SLOT_WORDS;

/// Looks a key up; `None` when every READ was torn.
fn read(words: &[AtomicU64], race: &Race, before: &[u64], geometry: Geometry) -> Option<Step> {
    let mut lookup = Lookup::new(geometry, key(race.sought));
    for _ in 0..race.reads {
        let first = usize::try_from(lookup.next_read().offset).unwrap() / 8;
        let mut bytes = Vec::new();
        for at in first..first + BUCKET_WORDS {
            let word = if race.live.iter().any(|live| live.contains(&at)) {
                words[at].load(Ordering::Relaxed)
            } else {
                before[at]
            };
            bytes.extend(word.to_ne_bytes());
        }
        // A READ is over before the next one is posted.
        fence(Ordering::Acquire);
        match lookup.feed(&bytes) {
            Step::Read(_) => {}
            end => return Some(end),
        }
    }
    None
}

fn run(race: &'static Race) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    // Filling the table takes thousands of steps that nobody races.
    model.max_branches = 100_000;
    model.check(move || {
        let geometry = Geometry::new(1, 2).unwrap();
        let words: Arc<Vec<_>> =
            Arc::new((0..geometry.words()).map(|_| AtomicU64::new(0)).collect());
        let mut table = Table::new(&words, geometry).unwrap();
        for number in 0..race.entries {
            table.insert(&key(number), &OLD).unwrap();
        }
        let before: Vec<u64> = words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let peer = {
            let words = Arc::clone(&words);
            loom::thread::spawn(move || read(&words, race, &before, geometry))
        };
        (race.write)(&mut table);
        if let Some(seen) = peer.join().unwrap() {
            assert!(race.allowed.contains(&seen), "{seen:?}");
        }
    });
}

#[test]
fn an_update_shows_the_old_value_or_the_new_and_never_nothing() {
    run(&Race {
        entries: 1,
        live: &[FIRST_SLOT],
        write: |table| table.insert(&key(0), &NEW).unwrap(),
        sought: 0,
        reads: 1,
        allowed: &[Step::Found(OLD), Step::Found(NEW)],
    });
}

/// The slot of one key becomes another's.
fn replace(table: &mut Table<'_>) {
    table.remove(&key(0)).unwrap();
    table.insert(&key(1), &NEW).unwrap();
}

#[test]
fn a_removed_key_has_its_old_value_or_none() {
    run(&Race {
        entries: 1,
        live: &[FIRST_SLOT],
        write: replace,
        sought: 0,
        reads: 1,
        allowed: &[Step::Found(OLD), Step::Absent],
    });
}

#[test]
fn a_key_in_a_reused_slot_has_its_own_value_or_none() {
    run(&Race {
        entries: 1,
        live: &[FIRST_SLOT],
        write: replace,
        sought: 1,
        reads: 1,
        allowed: &[Step::Found(NEW), Step::Absent],
    });
}

#[test]
fn a_key_that_is_removed_and_comes_back_has_one_of_its_values_or_none() {
    run(&Race {
        entries: 1,
        live: &[FIRST_SLOT],
        write: |table| {
            table.remove(&key(0)).unwrap();
            table.insert(&key(0), &NEW).unwrap();
        },
        sought: 0,
        reads: 1,
        allowed: &[Step::Found(OLD), Step::Found(NEW), Step::Absent],
    });
}

#[test]
fn a_link_leads_to_a_bucket_that_is_ready() {
    run(&Race {
        entries: SLOTS_PER_BUCKET as u8,
        live: &[LINK, CLUSTER_SLOT],
        write: |table| table.insert(&key(100), &NEW).unwrap(),
        sought: 100,
        reads: 2,
        allowed: &[Step::Found(NEW), Step::Absent],
    });
}

#[test]
fn a_bucket_that_leaves_the_chain_takes_no_key_with_it() {
    run(&Race {
        entries: SLOTS_PER_BUCKET as u8 + 1,
        live: &[FIRST_SLOT, LINK, CLUSTER_SLOT],
        write: |table| {
            table.remove(&key(SLOTS_PER_BUCKET as u8)).unwrap();
            table.insert(&key(0), &NEW).unwrap();
        },
        sought: 0,
        reads: 2,
        allowed: &[Step::Found(OLD), Step::Found(NEW)],
    });
}
