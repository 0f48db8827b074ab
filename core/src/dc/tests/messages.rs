// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Messages: what receivers get, and what senders are told when they get nothing.

use super::super::wire::{Destination, Message, MESSAGE_BYTES};
use super::*;

fn with_imm(op: Op, imm: u32) -> Op {
    Op {
        imm: Some(imm),
        ..op
    }
}

fn ends(pair: &Pair) -> Vec<(u64, WcStatus)> {
    let ends = pair.completions.iter();
    ends.map(|c| (c.cookie, c.status)).collect()
}

#[test]
fn a_message_of_several_chunks_and_pieces_arrives_whole() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let pieces = [(100, 1000), (5000, 0), (9000, 2000), (0, 7)];
    let expected: Vec<u8> = [100..1100, 9000..11000, 0..7]
        .into_iter()
        .flat_map(|range| pair.local[range].to_vec())
        .collect();
    let message = Op {
        local: scattered(&pieces),
        ..send(1, 0, 3007)
    };
    pair.initiator.push(with_imm(message, 77)).unwrap();
    pair.run();
    assert_eq!(ends(&pair), [(1, WcStatus::Success)]);
    assert_eq!(pair.messages.len(), 1);
    assert_eq!(pair.messages[0].0.imm, Some(77));
    assert_eq!(pair.messages[0].0.sender, SENDER);
    assert!(pair.messages[0].1 == expected);
}

#[test]
fn inline_bytes_travel_as_others_do() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let local = Local::Inline([u64::from_ne_bytes(*b"abcdefgh"); 10]);
    let message = Op {
        local,
        ..send(1, 0, 11)
    };
    let write = Op {
        local,
        ..op(2, OpKind::Write, 64, 8)
    };
    pair.initiator.push(message).unwrap();
    pair.initiator.push(write).unwrap();
    pair.run();
    assert_eq!(pair.messages[0].1, b"abcdefghabc");
    assert_eq!(&pair.remote[64..72], b"abcdefgh");
}

#[test]
fn a_write_with_an_immediate_takes_one_buffer_at_its_end() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.buffers = 2;
    for (cookie, len) in [(1, 5000), (2, 0)] {
        let write = with_imm(op(cookie, OpKind::Write, 0, len), cookie as u32);
        pair.initiator.push(write).unwrap();
    }
    pair.run();
    assert_eq!(pair.remote[..5000], pair.local[..5000]);
    let imms: Vec<_> = pair
        .messages
        .iter()
        .map(|(m, _)| (m.imm, m.total))
        .collect();
    assert_eq!(imms, [(Some(1), 5000), (Some(2), 0)]);
    assert!(pair.completions.iter().all(|c| c.with_imm));
}

#[test]
fn a_sender_waits_for_a_receiver_without_buffers_and_does_not_shout() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.buffers = 0;
    for cookie in 0..3 {
        pair.initiator.push(send(cookie, 0, 3000)).unwrap();
    }
    let patient = RNR_PATIENCE_NS * 3 / 4;
    while pair.now_ns < patient {
        pair.step();
    }
    assert!(pair.completions.is_empty());
    // Each round may send the whole window of nine chunks.
    let rounds = patient / (RTO_MIN_NS / 2);
    assert!(pair.requests_sent as u64 <= 9 * rounds);
    pair.buffers = 3;
    pair.run();
    assert!(ends(&pair)
        .iter()
        .all(|(_, status)| *status == WcStatus::Success));
    assert_eq!(pair.messages.len(), 3);
}

#[test]
fn a_receiver_that_stays_without_buffers_fails_the_flow_and_no_other() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.buffers = 0;
    pair.initiator.push(op(0, OpKind::Write, 0, 8)).unwrap();
    pair.initiator.push(send(1, 0, 3000)).unwrap();
    pair.initiator.push(op(2, OpKind::Write, 512, 8)).unwrap();
    let other = Op {
        flow: 2,
        ..op(3, OpKind::Write, 1024, 8)
    };
    pair.initiator.push(other).unwrap();
    pair.run();
    let expected = [
        (0, WcStatus::Success),
        (1, WcStatus::RnrRetryExcErr),
        (2, WcStatus::WrFlushErr),
        (3, WcStatus::Success),
    ];
    assert_eq!(ends(&pair), expected);
    assert!(pair.messages.is_empty());
    assert_eq!(pair.remote[512..520], [0; 8]);
    assert_eq!(pair.remote[1024..1032], pair.local[1024..1032]);
}

#[test]
fn a_late_copy_of_a_message_behind_one_that_failed_is_not_delivered() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.buffers = 0;
    for cookie in 1..=2 {
        pair.initiator.push(send(cookie, 0, 8)).unwrap();
    }
    pair.transmit();
    let late = pair.out.packets[1].clone();
    // Until the sender gives up.
    let is_message = |packet: &(Vec<u8>, Vec<u8>)| Message::decode(&packet.1).is_some();
    while pair.out.packets.front().is_none_or(is_message) {
        pair.step();
        pair.transmit();
    }
    pair.buffers = 2;
    pair.out.packets.insert(1, late);
    pair.run();
    let expected = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(ends(&pair), expected);
    assert!(pair.messages.is_empty());
}

#[test]
fn nobody_there_and_too_small_a_buffer_are_told_apart() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let nobody = Op {
        to: NOBODY,
        ..send(1, 0, 8)
    };
    let long = Op {
        flow: 2,
        ..send(2, 0, BUFFER + 1)
    };
    pair.initiator.push(nobody).unwrap();
    pair.initiator.push(long).unwrap();
    pair.run();
    let expected = [(1, WcStatus::RetryExcErr), (2, WcStatus::RemInvReqErr)];
    assert_eq!(ends(&pair), expected);
    assert!(pair.messages.is_empty());
}

#[test]
fn a_message_tells_why_it_failed_though_that_answer_was_lost() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.back.fates = vec![Fate::Deliver; 1000];
    pair.back.fates[0] = Fate::Lose;
    pair.initiator.push(send(1, 0, BUFFER + 1)).unwrap();
    pair.initiator.push(send(2, 0, 8)).unwrap();
    pair.run();
    let expected = [(1, WcStatus::RemInvReqErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(ends(&pair), expected);
}

proptest! {
    /// Whatever the network does, and however slowly buffers come.
    #[test]
    fn messages_arrive_once_and_in_order(
        fates in prop::collection::vec(fate(), 1..60),
        lens in prop::collection::vec(0u32..4000, 1..30),
        buffers in prop::collection::vec(0usize..3, 1..10),
    ) {
        let mut pair = Pair::new(fates);
        pair.buffers = 0;
        for (i, len) in lens.iter().enumerate() {
            let message = with_imm(send(i as u64, 13 * i as u64, *len), i as u32);
            pair.initiator.push(message).unwrap();
        }
        let mut rounds = 0;
        while !pair.initiator.is_idle() {
            // At least one buffer in a while: nobody waits for ever.
            pair.buffers += buffers[rounds % buffers.len()].max(usize::from(rounds % 16 == 0));
            pair.step();
            rounds += 1;
            prop_assert!(rounds < 10_000);
        }
        pair.buffers = usize::MAX;
        pair.run();
        let all: Vec<_> = lens.iter().enumerate().map(|(i, len)| {
            let from = 13 * i;
            (Some(i as u32), pair.local[from..from + *len as usize].to_vec())
        }).collect();
        let got: Vec<_> = pair.messages.iter().map(|(m, bytes)| (m.imm, bytes.clone())).collect();
        prop_assert!(got == all);
        prop_assert!(ends(&pair).iter().all(|(_, status)| *status == WcStatus::Success));
    }

    #[test]
    fn a_messages_header_survives_its_bytes(
        total in any::<u32>(), imm in any::<Option<u32>>(), number in prop_oneof![Just(0), any::<u32>()],
        port in any::<bool>(), key in any::<u64>(), rest in any::<[u8; 40]>(),
    ) {
        let to = match (number, port) {
            (0, _) => Receiver::Node,
            (_, true) => Receiver::Port(number),
            (_, false) => Receiver::Flow(number),
        };
        let sender = Destination { dct_number: total, dct_key: key, incarnation: number };
        let message = Message { total, imm, to, sender };
        prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        prop_assert_eq!(Message::decode(&message.encode()[..MESSAGE_BYTES - 1]), None);
        prop_assert_eq!(Message::decode(&NO_MESSAGE), None);
        let _ = Message::decode(&rest);
    }
}
