// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sender's and receiver's ends over one region, against a plain queue.

use super::outbox::Limit;
use super::{Era, Inbox, Outbox, Ring, Sent, Shape, SlotError, Slots, Ticket};
use crate::fabric::{shm::Shm, Fabric, Region};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const MESSAGE_BYTES: usize = 40;
const ALL: Limit = Limit {
    messages: u64::MAX,
    bytes: usize::MAX,
};

/// One ring that is sent and received through the same memory.
struct Pair {
    region: Region,
    ring: Ring,
    slots: Slots,
    outbox: Outbox,
    inbox: Inbox,
    sent: Sent,
    expected: VecDeque<(u64, Vec<u8>)>,
    delivered: u64,
    /// Slots that were delivered in earlier views.
    before: u64,
    /// The first slot on the side that is in use, if the ring begins on the other one.
    over: Option<u64>,
    views: u64,
}

fn pair(window: usize) -> Pair {
    let shape = Shape::new(window, MESSAGE_BYTES).expect("a shape");
    let node = Shm::threads(1).expect("a fabric").remove(0);
    // SAFETY: the node is alone, and its region is the ring.
    let met = unsafe { node.connect(shape.two_sides_bytes(), &[], Duration::from_secs(20)) };
    let region = met.expect("alone").endpoint.region().clone();
    let ring = Ring::new(region.clone(), 0, shape).expect("a ring");
    Pair {
        region,
        slots: Slots::new(shape),
        outbox: Outbox::new(ring.clone()),
        inbox: Inbox::new(ring.clone()),
        ring,
        sent: Sent::default(),
        expected: VecDeque::new(),
        delivered: 0,
        before: 0,
        over: None,
        views: 0,
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
        self.slots.free(self.slot());
    }

    /// The first slot whose message was not delivered.
    fn slot(&self) -> u64 {
        self.before + self.inbox.taken()
    }

    /// Goes on on the side in use, if nothing is under way on the other one.
    fn settle(&mut self, start: &mut usize) {
        let slot = self.slot();
        if self.over == Some(slot) {
            *start = self.ring.shape().other_side(*start);
        }
        self.over = self.over.filter(|&over| over > slot);
    }

    /// Begins anew behind what was delivered, and perhaps goes over to the ring's other side,
    /// where nothing may be under way.
    fn next_view(&mut self, goes_over: bool) {
        self.deliver();
        let (slot, mut start) = (self.slot(), self.inbox.at());
        self.settle(&mut start);
        if goes_over && self.over.is_none() {
            self.over = Some(self.slots.go_over(slot));
            self.settle(&mut start);
        }
        let over = self.over.map(|over| over - slot);
        self.views += 1;
        let era = Era::of_view(self.views);
        self.outbox = Outbox::starting_at(self.ring.clone(), slot, start).in_era(era);
        let inbox = Inbox::starting_at(self.ring.clone(), start);
        self.inbox = inbox.in_era(era).going_over(over);
        self.before = slot;
        self.sent = Sent::default();
        self.delivered = 0;
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
    /// Deliver all and begin anew, perhaps on the other side.
    NextView(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..=MESSAGE_BYTES).prop_map(Step::Take),
        4 => (any::<bool>(), 0..=MESSAGE_BYTES, prop::bool::weighted(0.1))
            .prop_map(|(oldest, len, void)| Step::Finish(oldest, len, void)),
        2 => (0_u64..3, 1_u64..9).prop_map(|(nulls, most)| Step::Post(nulls, most)),
        1 => Just(Step::Deliver),
        1 => any::<bool>().prop_map(Step::NextView),
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
            let freed = matches!(step, Step::Deliver | Step::NextView(_));
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
                Step::Deliver => pair.deliver(),
                Step::NextView(goes_over) => pair.next_view(goes_over),
            }
            if freed {
                let all = u64::from(pair.slots.taken());
                live = usize::try_from(all - pair.slot()).expect("a count");
            }
        }
    }
}

/// One who reads late, on the side that the sender has left, finds no message in a round in
/// which there was none when it was sent.
#[test]
fn what_lies_on_the_side_that_was_left_stays_as_it_was() {
    let mut late = pair(4);
    let send = |pair: &mut Pair, byte: u8| {
        let ticket = pair.slots.take(1).expect("room");
        pair.write(&ticket, &[byte]);
        pair.slots.commit(ticket, 1);
    };
    let stage = |pair: &mut Pair, round: u64| {
        let messages = pair.outbox.stage(&pair.slots, round, ALL).messages;
        pair.sent.rounds = round + messages;
        pair.sent.messages += messages;
    };
    // The first message is delivered by all but one, the second, behind a null, by nobody.
    send(&mut late, 1);
    stage(&mut late, 0);
    send(&mut late, 2);
    stage(&mut late, 2);
    late.inbox
        .learn(late.sent.to_word())
        .expect("within the window");
    let over = late.slots.go_over(1);
    let mut outbox = Outbox::starting_at(late.ring.clone(), 1, 16).in_era(Era::of_view(1));
    late.slots.free(1);
    for byte in 3..6 {
        send(&mut late, byte);
    }
    // In the next view the second message has the round of the null.
    assert_eq!((over, outbox.stage(&late.slots, 1, ALL).messages), (2, 4));
    // SAFETY: the slots of this side are not used again.
    let mut take = |round| unsafe { late.inbox.take(round) };
    assert_eq!(take(0), Ok(Some(&[1][..])));
    assert_eq!(take(1), Ok(None));
}

/// Messages are copies until the sender says that its own ring is to be looked into.
#[test]
fn a_ring_is_looked_into_from_the_message_on_that_its_sender_names() {
    let (mut own, copy) = (pair(4), pair(4));
    let source = Some(own.ring.clone());
    let mut inbox = Inbox::new(copy.ring.clone()).with_source(source);
    for byte in 1..4 {
        let ticket = own.slots.take(1).expect("room");
        own.write(&ticket, &[byte]);
        own.slots.commit(ticket, 1);
    }
    let stage = own.outbox.stage(&own.slots, 0, ALL);
    // Two are copied, with a trace by which they are known.
    for at in (0..32).step_by(8) {
        let [from, to] = [&own, &copy].map(|pair| pair.region.word(at).expect("a word"));
        let trace = if at % 16 == 8 { 0x80 } else { 0 };
        to.store(from.load(Relaxed) ^ trace, Relaxed);
    }
    inbox.look_from(2);
    let sent = Sent {
        rounds: stage.messages,
        messages: stage.messages,
    };
    inbox.learn(sent.to_word()).expect("within the window");
    for (round, byte) in [(0, 0x81), (1, 0x82), (2, 3)] {
        // SAFETY: nothing is freed.
        let message = unsafe { inbox.take(round) };
        assert_eq!(message, Ok(Some(&[byte][..])));
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
    word.store(u64::MAX >> 33, Relaxed);
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
