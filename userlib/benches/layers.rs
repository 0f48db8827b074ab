// SPDX-License-Identifier: MIT OR Apache-2.0

//! What each layer costs by itself, over shared memory: a push of a table's
//! columns, a slot from taking to delivery, a round of the polling thread.
//!
//! `cargo bench -p weft`

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use std::sync::Arc;
use std::time::Duration;
use weft::fabric::{shm::Shm, Endpoint, Fabric, NodeSet, Write};
use weft::predicates::{Outcome, Predicates};
use weft::smc::outbox::Limit;
use weft::smc::{Inbox, Outbox, Ring, Sent, Shape, Slots};
use weft::sst::{Counter, List, Table};

weft::sst_row! {
    /// A row as multicast has it, and a list.
    struct Row {
        first: Counter,
        second: Counter,
        third: Counter,
        list: List<32>,
    }
}

fn endpoints(nodes: usize, region_bytes: usize) -> Vec<Arc<dyn Endpoint>> {
    let joining: Vec<_> = Shm::threads(nodes)
        .expect("a fabric")
        .into_iter()
        .map(|node| {
            std::thread::spawn(move || {
                // SAFETY: all nodes do the same with it, a thing at a time.
                unsafe { node.connect(region_bytes, &[], Duration::from_secs(20)) }
            })
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .expect("no panic")
                .expect("they meet")
                .endpoint
        })
        .collect()
}

fn table_push(criterion: &mut Criterion) {
    let nodes = endpoints(8, Table::<Row>::bytes(8));
    let table = Table::<Row>::new(Arc::clone(&nodes[0]), 0).expect("a table");
    let mut group = criterion.benchmark_group("sst");
    for peers in [1, 7] {
        let to: NodeSet = (0..=peers).collect();
        let columns = Row::first().through(Row::third());
        let mut value = table.own().first.get();
        group.bench_function(format!("push 3 counters to {peers}"), |bencher| {
            bencher.iter(|| {
                value += 1;
                table.own().first.advance(value);
                table.push(columns, to)
            });
        });
        group.bench_function(format!("push a list of 32 to {peers}"), |bencher| {
            bencher.iter(|| table.push_list::<32>(Row::list(), to));
        });
    }
    group.finish();
}

fn write(criterion: &mut Criterion) {
    let nodes = endpoints(2, 1 << 21);
    let mut group = criterion.benchmark_group("shm write");
    for len in [8, 64, 1024, 10_240, 102_400] {
        group.throughput(Throughput::Bytes(len as u64));
        let mut offset = 0;
        group.bench_function(len.to_string(), |bencher| {
            bencher.iter(|| {
                offset = (offset + len) % (1 << 20);
                let write = Write {
                    local: offset,
                    remote: offset,
                    len,
                };
                nodes[0].post(1, &[write])
            });
        });
    }
    group.finish();
}

fn slot(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("smc");
    for len in [1, 1024] {
        let shape = Shape::new(100, len).expect("a shape");
        let node = endpoints(1, shape.ring_bytes()).remove(0);
        let ring = Ring::new(node.region().clone(), 0, shape).expect("a ring");
        let slots = Slots::new(shape);
        let mut outbox = Outbox::new(ring.clone());
        let mut inbox = Inbox::new(ring);
        let mut sent = Sent::default();
        let limit = Limit {
            messages: u64::MAX,
            bytes: usize::MAX,
        };
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("slot of {len} taken to delivered"), |bencher| {
            bencher.iter(|| {
                let ticket = slots.take(len).expect("room");
                slots.commit(ticket, len);
                let round = sent.rounds;
                sent.rounds += outbox.stage(&slots, round, limit).messages;
                sent.messages = sent.rounds;
                inbox.learn(sent.to_word()).expect("within the window");
                // SAFETY: it is not used.
                let found = unsafe { inbox.take(round) }.expect("a sound ring");
                assert!(found.is_some());
                slots.free(inbox.taken());
            });
        });
    }
    group.finish();
}

fn predicates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("predicates");
    for count in [1, 10, 100] {
        let mut predicates = Predicates::default();
        for _ in 0..count {
            predicates.add(|| Outcome::Idle).expect("room");
        }
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("a round of {count}"), |bencher| {
            bencher.iter(|| predicates.evaluate());
        });
    }
    group.finish();
}

criterion_group!(benches, write, table_push, slot, predicates);
criterion_main!(benches);
