// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who leaves while it reads: the bytes stay what they were, and the others go
//! on as soon as it reads no more.

use crate::PATIENCE;
use std::sync::mpsc::{channel, Receiver, Sender as Tell};
use std::thread;
use std::time::{Duration, Instant};
use weft::fabric::shm::Shm;
use weft::multicast::Deliveries;
use weft::{Group, SendError, Sender, Subgroup};

const WINDOW: usize = 4;

/// With or without a total order.
fn subgroup(ordered: bool) -> Subgroup {
    let subgroup = Subgroup::new("test")
        .senders([0])
        .window(WINDOW)
        .max_message(8);
    if ordered {
        subgroup
    } else {
        subgroup.unordered()
    }
}

/// Node 0, which fills its window and tells when node 1 has left. Then it
/// tries to send for a while, and after a word from node 1 until it can.
fn sends(node: Shm, ordered: bool, left: &Tell<bool>, done: &Receiver<()>) {
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(subgroup(ordered));
    let group = builder
        .deliver(handle, |batch| batch.for_each(drop))
        .join()
        .expect("a group");
    let sender = group.sender(handle).expect("it sends");
    for _ in 0..WINDOW {
        sender.send_bytes(b"in place").expect("room");
    }
    wait_until(|| group.left().contains(1));
    let sent = sends_within(&sender, Duration::from_millis(50));
    left.send(sent).expect("node 1 waits");
    done.recv().expect("node 1 tells");
    assert!(sends_within(&sender, PATIENCE), "nobody reads any more");
}

fn sends_within(sender: &Sender, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        match sender.try_send(|slot| slot.put(&[0xFF; 8])) {
            Ok(()) => return true,
            Err(SendError::Full) => thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
    false
}

fn wait_until(done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "nothing happens");
        thread::yield_now();
    }
}

/// Both nodes; node 1 does what it is told with its group, and keeps what is
/// answered until node 0 has sent once more.
fn two<K>(ordered: bool, leave: impl FnOnce(Group, Deliveries, &Receiver<bool>, &Tell<()>) -> K) {
    let mut nodes = Shm::threads(2).expect("a fabric");
    let (reader, writer) = (nodes.remove(1), nodes.remove(0));
    let (left, has_left) = channel();
    let (done, is_done) = channel();
    let sending = thread::spawn(move || sends(writer, ordered, &left, &is_done));
    let mut builder = Group::builder(reader);
    let handle = builder.subgroup(subgroup(ordered));
    let group = builder.join().expect("a group");
    let deliveries = group.deliveries(handle).expect("nobody has them");
    let kept = leave(group, deliveries, &has_left, &done);
    sending.join().expect("no panic");
    drop(kept);
}

#[test]
fn a_batch_keeps_its_bytes_when_its_reader_has_left() {
    for ordered in [true, false] {
        two(ordered, |group, mut deliveries, has_left, done| {
            let mut group = Some(group);
            let mut read = 0;
            while read < WINDOW {
                let batch = deliveries.batch(Some(PATIENCE), |batch| {
                    let messages: Vec<_> = batch.collect();
                    if let Some(group) = group.take() {
                        drop(group);
                        let sent = has_left.recv().expect("node 0 tells");
                        assert!(!sent, "a slot was used again while it was read");
                    }
                    for message in &messages {
                        assert_eq!(message.bytes, b"in place");
                    }
                    messages.len()
                });
                match batch {
                    Some(messages) => read += messages,
                    // The rest was not stable yet when it left.
                    None => break,
                }
            }
            assert!(read > 0, "something was delivered");
            done.send(()).expect("node 0 waits");
            deliveries
        });
    }
}

#[test]
fn what_was_stable_stays_until_it_is_read() {
    for ordered in [true, false] {
        two(ordered, |group, mut deliveries, has_left, done| {
            let first = deliveries.next().expect("a message");
            assert_eq!(first.bytes, b"in place");
            drop(group);
            // The first slot may be free by now; the others are not.
            has_left.recv().expect("node 0 tells");
            for message in deliveries.by_ref() {
                assert_eq!(message.bytes, b"in place");
            }
            done.send(()).expect("node 0 waits");
            deliveries
        });
    }
}

#[test]
fn what_was_stable_stays_until_it_is_dropped() {
    two(true, |group, deliveries, has_left, done| {
        drop(group);
        has_left.recv().expect("node 0 tells");
        drop(deliveries);
        done.send(()).expect("node 0 waits");
    });
}
