// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sender's and receiver's ends over one region, against a plain queue.

use super::outbox::Limit;
use super::{Inbox, Outbox, Ring, Sent, Shape, SlotError, Slots, Ticket};
use crate::fabric::{shm::Shm, Fabric, Region};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const MESSAGE_BYTES: usize = 40;
const ALL: Limit = Limit {
    messages: u64::MAX,
    bytes: usize::MAX,
};

/// One ring that is sent and received through the same memory.
struct Pair {
    region: Region,
    slots: Slots,
    outbox: Outbox,
    inbox: Inbox,
    sent: Sent,
    expected: VecDeque<(u64, Vec<u8>)>,
    delivered: u64,
}

fn pair(window: usize) -> Pair {
    let shape = Shape::new(window, MESSAGE_BYTES).expect("a shape");
    let node = Shm::threads(1).expect("a fabric").remove(0);
    // SAFETY: the node is alone, and its region is the ring.
    let met = unsafe { node.connect(shape.ring_bytes(), &[], Duration::from_secs(20)) };
    let region = met.expect("alone").endpoint.region().clone();
    let ring = Ring::new(region.clone(), 0, shape).expect("a ring");
    Pair {
        region,
        slots: Slots::new(shape),
        outbox: Outbox::new(ring.clone()),
        inbox: Inbox::new(ring),
        sent: Sent::default(),
        expected: VecDeque::new(),
        delivered: 0,
    }
}

impl Pair {
    fn write(&self, ticket: &Ticket, bytes: &[u8]) {
        let place = self.region.range(ticket.offset(), bytes.len());
        let place = place.expect("a slot is within the ring");
        // SAFETY: the ticket owns these bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    }

    /// Stages what is committed, with `nulls` rounds before it.
    fn post(&mut self, nulls: u64, limit: Limit, committed: &mut VecDeque<Option<Vec<u8>>>) {
        self.sent.rounds += nulls;
        let stage = self.outbox.stage(&self.slots, self.sent.rounds, limit);
        for _ in 0..stage.messages {
            let bytes = committed.pop_front().expect("it was committed");
            self.expected
                .extend(bytes.map(|bytes| (self.sent.rounds, bytes)));
            self.sent.rounds += 1;
        }
        self.sent.messages += stage.messages;
        self.inbox
            .learn(self.sent.to_word())
            .expect("within the window");
    }

    fn deliver(&mut self) {
        for round in self.delivered..self.sent.rounds {
            // SAFETY: nothing is freed before the end of this function.
            let message = unsafe { self.inbox.take(round) }.expect("a sound ring");
            match message {
                Some(bytes) => {
                    let expected = self.expected.pop_front().expect("a message was sent");
                    assert_eq!((round, bytes), (expected.0, &expected.1[..]));
                }
                None => assert!(self.expected.front().is_none_or(|next| next.0 > round)),
            }
        }
        self.delivered = self.sent.rounds;
        assert!(self.expected.is_empty(), "a message was lost");
        self.slots.free(self.inbox.taken());
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Take a slot of this room.
    Take(usize),
    /// Commit the oldest, or the newest, of the slots taken, with up to this
    /// length; or give it up.
    Finish(bool, usize, bool),
    /// Post up to so many messages after so many nulls.
    Post(u64, u64),
    /// Deliver all.
    Deliver,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..=MESSAGE_BYTES).prop_map(Step::Take),
        4 => (any::<bool>(), 0..=MESSAGE_BYTES, prop::bool::weighted(0.1))
            .prop_map(|(oldest, len, void)| Step::Finish(oldest, len, void)),
        2 => (0_u64..3, 1_u64..9).prop_map(|(nulls, most)| Step::Post(nulls, most)),
        1 => Just(Step::Deliver),
    ]
}

proptest! {
    #[test]
    fn what_is_committed_arrives_once_and_in_order(
        window in 1_usize..9,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut pair = pair(window);
        // Slots in the order they were taken: still out, or their message.
        let mut taken: VecDeque<(Option<Ticket>, Option<Vec<u8>>)> = VecDeque::new();
        let mut committed: VecDeque<Option<Vec<u8>>> = VecDeque::new();
        let mut live = 0;
        let mut salt = 0_u8;
        for step in steps {
            match step {
                Step::Take(room) => match pair.slots.take(room) {
                    Ok(ticket) => {
                        taken.push_back((Some(ticket), None));
                        live += 1;
                        prop_assert!(live <= window);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, SlotError::Full);
                        prop_assert_eq!(live, window);
                    }
                },
                Step::Finish(oldest, len, void) => {
                    let mut out = taken.iter_mut().filter(|slot| slot.0.is_some());
                    let slot = if oldest { out.next() } else { out.next_back() };
                    if let Some(slot) = slot {
                        let ticket = slot.0.take().expect("it is out");
                        if void {
                            pair.slots.give_up(ticket);
                        } else {
                            salt = salt.wrapping_add(1);
                            let bytes = vec![salt; len.min(ticket.room())];
                            pair.write(&ticket, &bytes);
                            pair.slots.commit(ticket, bytes.len());
                            slot.1 = Some(bytes);
                        }
                    }
                }
                Step::Post(nulls, most) => {
                    while taken.front().is_some_and(|slot| slot.0.is_none()) {
                        committed.extend(taken.pop_front().map(|slot| slot.1));
                    }
                    pair.post(nulls, Limit { messages: most, bytes: usize::MAX }, &mut committed);
                }
                Step::Deliver => {
                    pair.deliver();
                    let all = u64::from(pair.slots.taken());
                    live = usize::try_from(all - pair.inbox.taken()).expect("a count");
                }
            }
        }
    }
}

#[test]
fn messages_travel_without_their_slots() {
    let mut pair = pair(8);
    for _ in 0..8 {
        let ticket = pair.slots.take(MESSAGE_BYTES).expect("room");
        pair.write(&ticket, &[1]);
        pair.slots.commit(ticket, 1);
    }
    let stage = pair.outbox.stage(&pair.slots, 0, ALL);
    assert_eq!(stage.messages, 8);
    assert_eq!(stage.ranges, [(0, 8 * 16), (0, 0)]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let pair = pair(2);
    let refusal = pair.slots.take(MESSAGE_BYTES + 1).expect_err("too long");
    assert!(matches!(refusal, SlotError::TooLong { .. }));
    let (one, two) = (pair.slots.take(1), pair.slots.take(1));
    assert_eq!(pair.slots.take(1), Err(SlotError::Full));
    pair.slots.commit(one.expect("room"), 1);
    pair.slots.give_up(two.expect("room"));
    assert!(Shape::new(0, 1).is_err());
    assert!(Shape::new(super::MAX_WINDOW + 1, 1).is_err());
    assert!(Shape::new(1, super::MAX_MESSAGE_BYTES + 1).is_err());
    assert!(Shape::new(super::MAX_WINDOW, super::MAX_MESSAGE_BYTES).is_err());
}

#[test]
fn a_corrupt_ring_is_an_error() {
    let mut pair = pair(2);
    let word = pair.region.word(0).expect("a word");
    word.store(u64::MAX >> 33, std::sync::atomic::Ordering::Relaxed);
    let one = Sent {
        rounds: 1,
        messages: 1,
    };
    pair.inbox.learn(one.to_word()).expect("one of two");
    // SAFETY: nothing is freed.
    let taken = unsafe { pair.inbox.take(0) };
    assert!(taken.is_err());
    let many = Sent {
        rounds: 9,
        messages: 9,
    };
    assert!(pair.inbox.learn(many.to_word()).is_err());
}
