// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slots under every interleaving that loom can think of:
//! `RUSTFLAGS="--cfg loom" cargo test -p weft --release --lib loom`.
//!
//! The bytes of a message are a loom cell here, so that a use of them that the
//! protocol does not order is an error.

use super::slots::Slots;
use super::{Shape, SlotError};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Bytes(UnsafeCell<u64>);

// SAFETY: what the model checks: the slots order all access.
unsafe impl Send for Bytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bytes {}

fn slots(window: usize) -> (Arc<Slots>, Arc<Vec<Bytes>>) {
    let shape = Shape::new(window, 16).expect("a shape");
    let bytes = (0..window).map(|_| Bytes(UnsafeCell::new(0))).collect();
    (Arc::new(Slots::new(shape)), Arc::new(bytes))
}

#[test]
fn two_senders_get_slots_that_do_not_overlap() {
    loom::model(|| {
        let (slots, _) = slots(2);
        let other = Arc::clone(&slots);
        // One cuts its slot, which the other one may be behind already.
        let sending = thread::spawn(move || {
            let ticket = other.take(16).expect("room");
            other.commit(ticket, 1);
        });
        let ticket = slots.take(16).expect("room");
        slots.commit(ticket, 16);
        if let (Some(first), Some(second)) = (slots.ready(0), slots.ready(1)) {
            assert!(first.end <= second.start);
        }
        sending.join().expect("no panic");
        let first = slots.ready(0).expect("it was committed");
        let second = slots.ready(1).expect("it was committed");
        assert!(first.start < first.end && first.end == second.start);
        let mut lengths = [first.len, second.len];
        lengths.sort_unstable();
        assert_eq!(lengths, [Some(1), Some(16)]);
    });
}

#[test]
fn a_slot_is_used_again_only_after_it_was_freed() {
    loom::model(|| {
        let (slots, bytes) = slots(1);
        let (polled, read) = (Arc::clone(&slots), Arc::clone(&bytes));
        let polling = thread::spawn(move || {
            for number in 0..2 {
                while polled.ready(number).is_none() {
                    thread::yield_now();
                }
                // SAFETY: checked by loom.
                let value = read[0].0.with(|bytes| unsafe { *bytes });
                assert_eq!(value, number + 1);
                polled.free(number + 1);
            }
        });
        for number in 0..2 {
            let ticket = loop {
                match slots.take(8) {
                    Ok(ticket) => break ticket,
                    Err(error) => assert_eq!(error, SlotError::Full),
                }
                thread::yield_now();
            };
            // SAFETY: checked by loom.
            bytes[0].0.with_mut(|bytes| unsafe { *bytes = number + 1 });
            slots.commit(ticket, 8);
        }
        polling.join().expect("no panic");
    });
}

#[test]
fn slots_are_on_one_side_or_the_other() {
    loom::model(|| {
        let (slots, _) = slots(2);
        let other = Arc::clone(&slots);
        // One cuts its slot, which may be the last one on the first side, or not.
        let sending = thread::spawn(move || {
            for _ in 0..2 {
                let ticket = other.take(16).expect("room");
                other.commit(ticket, 1);
            }
        });
        let over = slots.go_over(0);
        sending.join().expect("no panic");
        let second_side = slots.shape().other_side(0);
        let ready = [0, 1].map(|number| slots.ready(number).expect("it was committed"));
        for (number, ready) in (0..).zip(ready) {
            let start = usize::try_from(ready.start).expect("an offset");
            assert_eq!(number >= over, start >= second_side, "slot {number}");
        }
        if over != 1 {
            assert!(ready[0].end <= ready[1].start);
        }
    });
}
