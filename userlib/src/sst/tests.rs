// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows between nodes of this process.

use super::{Counter, Flag, List, ListFull, Table};
use crate::fabric::{shm::Shm, sim::Sim, Endpoint, Fabric, FabricError, NodeSet};
use std::sync::Arc;
use std::time::Duration;

crate::sst_row! {
    /// One of each.
    struct Sample {
        /// A counter.
        a: Counter,
        /// A flag.
        b: Flag,
        /// Counters.
        c: [Counter; 3],
        /// A list over three cache lines.
        list: List<20>,
    }
}

fn tables(nodes: usize) -> Vec<Table<Sample>> {
    tables_over(Shm::threads(nodes).expect("a fabric"))
}

fn tables_over<F: Fabric + Send + 'static>(fabric: Vec<F>) -> Vec<Table<Sample>> {
    let nodes = fabric.len();
    let joining: Vec<_> = fabric
        .into_iter()
        .map(|node| {
            let bytes = Table::<Sample>::bytes(nodes);
            std::thread::spawn(move || {
                // SAFETY: the regions are tables, which are words.
                unsafe { node.connect(bytes, &[], Duration::from_secs(20)) }
            })
        })
        .collect();
    let endpoints: Vec<Arc<dyn Endpoint>> = joining
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .expect("no panic")
                .expect("they meet")
                .endpoint
        })
        .collect();
    endpoints
        .into_iter()
        .map(|endpoint| Table::new(endpoint, 0).expect("a table"))
        .collect()
}

#[test]
fn a_push_reaches_its_columns_and_its_members_only() {
    let tables = tables(3);
    let own = tables[0].own();
    own.a.advance(1);
    own.b.raise();
    own.c[2].advance(3);
    let columns = Sample::b().through(Sample::c());
    tables[0]
        .push(columns, NodeSet::from_iter([0, 2]))
        .expect("a push");
    let seen = tables[2].row(0);
    assert_eq!(
        (seen.a.get(), seen.b.is_raised(), seen.c[2].get()),
        (0, true, 3)
    );
    let other = tables[1].row(0);
    assert!(!other.b.is_raised());
    assert_eq!(tables[2].row(1).c[2].get(), 0);
}

#[test]
fn a_list_arrives_whole_and_wraps() {
    let tables = tables(2);
    let list = &tables[0].own().list;
    let everybody = NodeSet::from_iter([0, 1]);
    let push = || {
        tables[0]
            .push_list::<20>(Sample::list(), everybody)
            .expect("a push");
    };
    let mut next = 0;
    for round in 1..20 {
        let words: Vec<u64> = (next..next + round).map(|n| n * 7).collect();
        next += round;
        list.append(&words).expect("room");
        push();
        let seen = tables[1].row(0).list.snapshot();
        assert_eq!(seen.len() as u64, round);
        assert!(seen.iter().all(|&(at, word)| word == at * 7));
        list.truncate(round);
        push();
        assert_eq!(tables[1].row(0).list.snapshot(), []);
    }
}

/// The owner waits for nothing; what it has pushed arrives late, word by word.
#[test]
fn a_list_is_true_at_any_moment_of_its_arrival() {
    for seed in 0..200 {
        let (sim, nodes) = Sim::new(2, seed, false);
        let tables = tables_over(nodes);
        let list = &tables[0].own().list;
        let peer = NodeSet::from_iter([1]);
        let push = || {
            let pushed = tables[0].push_list::<20>(Sample::list(), peer);
            pushed.expect("a push");
        };
        for round in 0..3 {
            let words: Vec<u64> = (round * 20..(round + 1) * 20).collect();
            list.append(&words).expect("room");
            push();
            list.truncate(20);
            push();
        }
        while !sim.busy_links().is_empty() {
            sim.advance(0, 1);
            let seen = tables[1].row(0).list.snapshot();
            assert!(
                seen.iter().all(|&(at, word)| word == at),
                "seed {seed}: {seen:?}"
            );
        }
    }
}

#[test]
fn a_list_has_a_limit() {
    let list = List::<4>::default();
    list.append(&[1, 2, 3]).expect("room");
    assert_eq!(list.append(&[4, 5]), Err(ListFull(4)));
    list.truncate(1);
    list.append(&[4, 5]).expect("room now");
    let words: Vec<u64> = list.snapshot().into_iter().map(|(_, word)| word).collect();
    assert_eq!(words, [2, 3, 4, 5]);
}

#[test]
fn a_table_outside_of_the_region_is_refused() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    // SAFETY: nothing is posted.
    let met = unsafe { node.connect(4096, &[], Duration::from_secs(20)) };
    let endpoint = met.expect("alone").endpoint;
    let table = |base| Table::<Sample>::new(Arc::clone(&endpoint), base).map(drop);
    assert!(matches!(table(4096), Err(FabricError::BadRange { .. })));
    assert!(matches!(table(8), Err(FabricError::Misaligned(8))));
}
