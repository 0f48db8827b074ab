// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Streams between an initiator and a target.

mod failures;
mod hostile;
mod loss;
mod messages;
mod pair;

use proptest::prelude::*;

use super::wire::{
    decode, Destination, Kind, Operands, Packet, Receiver, Request, Response, Status, NO_MESSAGE,
};
use super::*;
use crate::uapi::WcStatus;
use pair::*;

#[test]
fn a_write_then_a_read_take_one_packet_each_way_per_chunk() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.initiator.push(op(2, OpKind::Read, 0, 4096)).unwrap();
    pair.run();
    assert_eq!(pair.requests_sent, 1 + 4);
    let ends: Vec<_> = pair
        .completions
        .iter()
        .map(|c| (c.cookie, c.status))
        .collect();
    assert_eq!(ends, [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn a_request_says_whether_another_follows() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..2 {
        initiator.push(op(cookie, OpKind::Write, 0, 8)).unwrap();
    }
    let more = std::iter::from_fn(|| Some(initiator.poll_request(1)?.more));
    assert_eq!(more.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_request_says_whether_it_was_sent_before() {
    let mut initiator = initiator(HERE, 4096);
    initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    assert!(!initiator.poll_request(1).unwrap().is_repeat);
    initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    let later = 1_000_000_000;
    assert!(initiator.on_tick(later));
    let repeats = std::iter::from_fn(|| Some(initiator.poll_request(later)?.is_repeat));
    assert_eq!(repeats.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_stream_whose_first_request_was_repeated_says_no_farewell() {
    let mut initiator = initiator(HERE, 4096);
    assert!(initiator.close_request().is_none(), "no context is there");
    initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    let first = initiator.poll_request(1).unwrap().request;
    let farewell = initiator.close_request().map(|request| request.kind);
    assert_eq!(farewell, Some(Kind::Close));
    let later = 1_000_000_000;
    assert!(initiator.on_tick(later));
    assert_eq!(initiator.poll_request(later).unwrap().request, first);
    // Answered, it may still reach the target once more, after the farewell.
    initiator.on_response(&Response::to(&first, Status::Ok), 0, later);
    assert!(initiator.close_request().is_none());
    initiator.poll_completion().unwrap();
    assert!(initiator.restart(2).is_none());
    initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    initiator.poll_request(later).unwrap();
    assert!(initiator.close_request().is_some(), "that was another life");
}

/// Carries one WRITE out on a stream of its own, and ends that; answers the first request as
/// it was sent.
fn a_short_life(pair: &mut Pair, token: u64, flow: u32) -> (Vec<u8>, Vec<u8>) {
    pair.initiator = Initiator::EMPTY;
    pair.initiator.open(1, token, SENDER, HERE, 4096);
    let write = Op {
        flow,
        ..op(1, OpKind::Write, 0, 8)
    };
    pair.initiator.push(write).unwrap();
    pair.transmit();
    let first = pair.out.packets[0].clone();
    pair.run();
    let farewell = pair.initiator.close_request().unwrap();
    pair.out.send(&farewell.encode(), &[]);
    pair.step();
    assert!(pair.contexts.is_empty());
    first
}

#[test]
fn a_copy_of_the_first_request_that_comes_after_the_farewell_is_not_carried_out() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let first = a_short_life(&mut pair, 42, 1);
    assert_eq!(pair.executed.len(), 1);
    pair.out.packets.push_back(first);
    pair.step();
    assert_eq!(pair.executed.len(), 1);
    // Another stream may get the token again, by chance, but not the flow.
    a_short_life(&mut pair, 42, 2);
    assert_eq!(pair.executed.len(), 2);
}

#[test]
fn each_of_the_last_streams_that_have_ended_is_remembered() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let lives: Vec<_> = (1..=4)
        .map(|flow| a_short_life(&mut pair, 42 + u64::from(flow), flow))
        .collect();
    pair.out.packets.extend(lives);
    pair.step();
    assert_eq!(pair.executed.len(), 4);
}

#[test]
fn an_operation_of_no_bytes_completes() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 0)).unwrap();
    pair.run();
    assert_eq!(pair.completions[0].status, WcStatus::Success);
}

#[test]
fn a_short_operation_does_not_wait_for_a_long_one_of_another_flow() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let long = op(1, OpKind::Write, 0, MEMORY as u32);
    // Longer than the window, so that it is still being cut when the others come.
    pair.initiator.push(long).unwrap();
    pair.initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    for cookie in 3..6 {
        let short = Op {
            flow: 2,
            ..op(cookie, OpKind::Read, 8 * cookie, 8)
        };
        pair.initiator.push(short).unwrap();
    }
    pair.initiator.push(Op { flow: 3, ..long }).unwrap();
    pair.run();
    let order: Vec<_> = pair.completions.iter().map(|c| c.cookie).collect();
    assert_eq!(order[..3], [3, 4, 5]);
    assert!(order.iter().position(|c| *c == 1) < order.iter().position(|c| *c == 2));
    assert_eq!(order.len(), 6);
}

/// Bytes of the target's memory for each flow.
const SHARE: u64 = 12_000;

/// How an operation fails, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The target refuses its key.
    Remote,
    /// The second half of its local memory may not be used.
    Local,
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![18 => Just(Flaw::None), 1 => Just(Flaw::Remote), 1 => Just(Flaw::Local)]
}

/// A WRITE into its flow's share, of bytes that tell which one it is.
fn write_of(cookie: u64, flow: u32, len: u32, flaw: Flaw) -> Op {
    let (from, half) = (97 * cookie, len / 2);
    let mut local = scattered(&[(from, half), (from + u64::from(half), len - half)]);
    if let (Flaw::Local, Local::Sges(sges)) = (flaw, &mut local) {
        sges[1].lkey = BAD_KEY;
    }
    Op {
        flow,
        local,
        rkey: if flaw == Flaw::Remote { BAD_KEY } else { 1 },
        ..op(cookie, OpKind::Write, SHARE * u64::from(flow), len)
    }
}

/// How a WRITE ends behind none that has failed.
fn own_end(op: &Op, flaw: Flaw) -> WcStatus {
    match flaw {
        Flaw::Remote => WcStatus::RemAccessErr,
        Flaw::Local if op.len != 0 => WcStatus::LocProtErr,
        _ => WcStatus::Success,
    }
}

/// The chunks of a WRITE that are carried out behind none that has failed.
fn executed_of(pair: &Pair, op: &Op, flaw: Flaw) -> Vec<(u64, u8)> {
    let usable = match flaw {
        Flaw::None => op.len,
        Flaw::Remote => return Vec::new(),
        Flaw::Local => op.len / 2,
    };
    let chunks = (0..op.len.max(1)).step_by(1024);
    let whole = chunks.filter(|offset| (offset + 1024).min(op.len) <= usable);
    let first_byte = |offset: u32| match op.len {
        0 => 0,
        _ => pair.local[97 * op.cookie as usize + offset as usize],
    };
    whole
        .map(|offset| (op.remote_addr + u64::from(offset), first_byte(offset)))
        .collect()
}

proptest! {
    /// Whatever the network does, each flow's operations end in their order, each
    /// once, at the place that pushing them answered; and nothing is carried out behind
    /// the first chunk that fails, but all before it.
    #[test]
    fn flows_share_a_stream_and_keep_their_order(
        fates in prop::collection::vec(fate(), 1..60),
        wanted in prop::collection::vec((0u32..4, 0..SHARE as u32, flaw()), 1..80),
    ) {
        let mut pair = Pair::new(fates);
        let mut places = Vec::new();
        let writes: Vec<_> = (0..).zip(&wanted).map(|(cookie, &(flow, len, flaw))| {
            (write_of(cookie, flow + 1, len, flaw), flaw)
        }).collect();
        for (op, _) in &writes {
            places.push(pair.initiator.push(*op).unwrap());
        }
        pair.run();
        prop_assert_eq!(pair.completions.len(), writes.len());
        let kept = pair.completions.iter().all(|c| places[c.cookie as usize] == c.slot);
        prop_assert!(kept);
        for flow in 1..5 {
            let of_flow = |c: &&Completion| writes[c.cookie as usize].0.flow == flow;
            let mine: Vec<_> = pair.completions.iter().filter(of_flow).collect();
            prop_assert!(mine.is_sorted_by_key(|c| c.cookie));
            let (mut executed, mut has_failed) = (Vec::new(), false);
            for end in mine {
                let (op, flaw) = &writes[end.cookie as usize];
                let own = own_end(op, *flaw);
                if has_failed {
                    // It may have failed by itself before the failure of the other was heard.
                    let by_itself = own == WcStatus::LocProtErr && end.status == own;
                    prop_assert!(by_itself || end.status == WcStatus::WrFlushErr, "{:?}", end);
                } else {
                    prop_assert_eq!(end.status, own, "{:?}", end);
                    executed.extend(executed_of(&pair, op, *flaw));
                    has_failed = own != WcStatus::Success;
                }
            }
            let share = SHARE * u64::from(flow)..SHARE * u64::from(flow + 1);
            let mine = pair.executed.iter().filter(|(addr, _)| share.contains(addr));
            prop_assert_eq!(mine.copied().collect::<Vec<_>>(), executed);
        }
    }

    /// Lives of a stream follow one another, each with a farewell to the one before where
    /// there is one: nothing of a past one is carried out later.
    #[test]
    fn a_stream_that_starts_over_never_meets_its_past(
        fates in prop::collection::vec(fate(), 1..60),
        lives in prop::collection::vec(prop::collection::vec(0u32..3000, 1..10), 1..5),
    ) {
        let mut pair = Pair::new(fates);
        let (mut cookie, mut expected) = (0, Vec::new());
        for (life, lens) in lives.iter().enumerate() {
            if let Some(farewell) = pair.initiator.restart(1000 + life as u64) {
                pair.out.send(&farewell.encode(), &[]);
            }
            pair.out.losses.clear();
            pair.back.losses.clear();
            for len in lens {
                let op = write_of(cookie, 1, *len, Flaw::None);
                expected.extend(executed_of(&pair, &op, Flaw::None));
                pair.initiator.push(op).unwrap();
                cookie += 1;
            }
            pair.run_until_idle();
        }
        pair.run();
        prop_assert!(pair.completions.iter().all(|c| c.status == WcStatus::Success));
        prop_assert_eq!(pair.completions.len() as u64, cookie);
        prop_assert_eq!(pair.executed, expected);
    }
}

#[test]
fn a_word_is_swapped_only_if_it_is_what_it_should_be() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    for (cookie, compare_add) in [(1, 0), (2, 0)] {
        let operands = Operands {
            compare_add,
            swap: 100 + cookie,
        };
        let swap = Op {
            operands,
            local: memory(8 * cookie, 8),
            ..op(cookie, OpKind::CompareSwap, 0, 8)
        };
        pair.initiator.push(swap).unwrap();
    }
    pair.run();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    assert_eq!(word(&pair.remote[..8]), 101);
    assert_eq!(
        (word(&pair.local[8..16]), word(&pair.local[16..24])),
        (0, 101)
    );
}

#[test]
fn atomic_operations_that_were_reaped_count_as_long_as_one_before_them_may_be_repeated() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    // The ninth answer is that to the operation of the second flow.
    pair.back.fates = vec![Fate::Deliver; 10_000];
    pair.back.fates[BURST as usize] = Fate::Lose;
    let add = |cookie, flow| Op {
        flow,
        ..fetch_add(cookie, 0, MEMORY as u64 + 8 * cookie, 1)
    };
    let long = op(0, OpKind::Write, 1024, 10 * 1024);
    pair.initiator.push(long).unwrap();
    for cookie in 1..=15 {
        pair.initiator.push(add(cookie, 1)).unwrap();
    }
    pair.initiator.push(add(16, 2)).unwrap();
    pair.step();
    assert_eq!(pair.completions.len(), MAX_ATOMICS);
    // All others were reaped, and new ones take their places.
    pair.initiator.push(add(17, 3)).unwrap();
    for cookie in 18..144 {
        pair.initiator
            .push(op(cookie, OpKind::Write, 1024, 8))
            .unwrap();
    }
    assert_eq!(pair.initiator.room(), 0);
    pair.run();
    assert_eq!(pair.completions.len(), 144);
    assert!(pair
        .completions
        .iter()
        .all(|c| c.status == WcStatus::Success));
    assert_eq!(pair.remote[..8], 17u64.to_ne_bytes());
}

#[test]
fn a_restarted_peer_is_reported_as_stale() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator = initiator(
        Destination {
            incarnation: 8,
            ..HERE
        },
        4096,
    );
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.run();
    assert_eq!(pair.completions[0].status, WcStatus::RemAbortErr);
    assert!(pair.initiator.needs_restart(pair.now_ns));
    assert!(pair.executed.is_empty());
}

#[test]
fn a_stream_that_slept_says_farewell_and_starts_over_with_a_new_token() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    assert_eq!(pair.initiator.restart(43), None, "it is not idle");
    pair.run();
    pair.now_ns += STREAM_IDLE_NS + 1;
    assert!(pair.initiator.needs_restart(pair.now_ns));
    let farewell = pair.initiator.restart(43).unwrap();
    pair.out.send(&farewell.encode(), &[]);
    pair.step();
    assert!(pair.contexts.is_empty());
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    pair.run();
    assert_eq!(pair.completions[1].status, WcStatus::Success);
}

#[test]
fn a_stream_on_which_a_flow_failed_long_ago_starts_over_once_it_is_idle() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let bad = Op {
        rkey: BAD_KEY,
        ..op(1, OpKind::Write, 0, 8)
    };
    pair.initiator.push(bad).unwrap();
    pair.run();
    let failed_ns = pair.now_ns;
    assert!(
        !pair.initiator.needs_restart(failed_ns),
        "not at each failure"
    );
    // Other flows use it all the while, and a new VQP gets the number at last.
    while pair.now_ns <= failed_ns + FAILED_FLOW_NS {
        pair.now_ns += STREAM_IDLE_NS / 2;
        let other = Op {
            flow: 2,
            ..op(2, OpKind::Write, 0, 8)
        };
        pair.initiator.push(other).unwrap();
        assert!(!pair.initiator.needs_restart(u64::MAX), "it is in use");
        pair.run();
    }
    assert!(pair.initiator.needs_restart(pair.now_ns));
    pair.initiator.restart(43);
    pair.initiator.push(op(3, OpKind::Write, 8, 8)).unwrap();
    pair.run();
    let last = pair.completions.last().unwrap();
    assert_eq!((last.cookie, last.status), (3, WcStatus::Success));
    assert!(!pair.initiator.needs_restart(pair.now_ns));
}

#[test]
fn the_queue_says_when_it_is_full() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..MAX_OPS as u64 {
        initiator.push(op(cookie, OpKind::Read, 0, 8)).unwrap();
    }
    assert_eq!(initiator.push(op(0, OpKind::Read, 0, 8)), Err(Full));
    let sent = std::iter::from_fn(|| initiator.poll_request(0).map(drop)).count();
    assert_eq!(sent, WINDOW);
}

proptest! {
    /// Whatever the network does, every WRITE happens once and in order, READs
    /// see the WRITEs before them, and completions come in order.
    #[test]
    fn a_hostile_network_does_not_show(
        fates in prop::collection::vec(fate(), 1..64),
        ops in prop::collection::vec((any::<bool>(), 0u64..32, 0u32..5000), 1..60),
    ) {
        let mut pair = Pair::new(fates);
        let mut expected = vec![0u8; MEMORY];
        let mut writes = Vec::new();
        for (cookie, &(is_write, slot, len)) in ops.iter().enumerate() {
            // Writes come from the start of local memory, each read goes to its
            // own place behind, so that what a write carries does not change.
            let at = slot * 700;
            let kind = if is_write { OpKind::Write } else { OpKind::Read };
            let local = if is_write { at } else { MEMORY as u64 + 5000 * cookie as u64 };
            pair.initiator.push(Op { local: memory(local, len), ..op(cookie as u64, kind, at, len) }).unwrap();
            if is_write {
                let (from, to) = (at as usize, at as usize + len as usize);
                expected[from..to].copy_from_slice(&pair.local[from..to]);
                writes.extend((0..len.max(1)).step_by(1024).map(|offset| {
                    let byte = if len == 0 { 0 } else { pair.local[from + offset as usize] };
                    (at + u64::from(offset), byte)
                }));
            }
        }
        pair.run();
        prop_assert!(pair.completions.iter().all(|c| c.status == WcStatus::Success));
        let order: Vec<_> = pair.completions.iter().map(|c| c.cookie).collect();
        prop_assert_eq!(order, (0..ops.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(pair.executed, writes);
        prop_assert!(pair.remote == expected);
        if let Some((is_write, slot, len)) = ops.last().copied() {
            if !is_write {
                let (from, len) = (slot as usize * 700, len as usize);
                let local = MEMORY + 5000 * (ops.len() - 1);
                prop_assert!(pair.local[local..local + len] == expected[from..from + len]);
            }
        }
    }

    /// However often its packets are lost or repeated, each addition is made
    /// once, and each answers the sum of those before it.
    #[test]
    fn atomic_operations_happen_once(
        fates in prop::collection::vec(fate(), 1..64),
        adds in prop::collection::vec((0u64..4, 1u64..1000), 1..100),
    ) {
        let mut pair = Pair::new(fates);
        let mut sums = [0u64; 4];
        let mut former = Vec::new();
        for (cookie, &(word, add)) in adds.iter().enumerate() {
            let local = MEMORY as u64 + 8 * cookie as u64;
            pair.initiator.push(fetch_add(cookie as u64, 8 * word, local, add)).unwrap();
            former.push(sums[word as usize]);
            sums[word as usize] += add;
        }
        pair.run();
        prop_assert!(pair.completions.iter().all(|c| c.status == WcStatus::Success));
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        let remote: Vec<_> = pair.remote[..32].chunks(8).map(word).collect();
        prop_assert_eq!(remote, sums);
        let results: Vec<_> = pair.local[MEMORY..MEMORY + 8 * adds.len()].chunks(8).map(word).collect();
        prop_assert_eq!(results, former);
    }

    /// Any response to a stream leaves it able to end.
    #[test]
    fn forged_responses_do_no_harm(
        responses in prop::collection::vec((0u32..200, any::<u8>(), 0u32..6000), 0..50),
    ) {
        let mut initiator = initiator(HERE, 4096);
        for cookie in 0..20 {
            initiator.push(op(cookie, OpKind::Read, 0, 5000)).unwrap();
        }
        while initiator.poll_request(0).is_some() {}
        for (psn, status, len) in responses {
            let status = [Status::Ok, Status::Flushed, Status::Invalid, Status::Access, Status::Sequence,
                Status::NoContext, Status::Stale, Status::Busy][status as usize % 8];
            let response = Response { stream: 1, token: 42, psn, status, len };
            if let Incoming::Data { psn, .. } = initiator.on_response(&response, len as usize, 1) {
                initiator.landed(psn, Err(WcStatus::LocProtErr), 1);
            }
            while initiator.poll_request(2).is_some() {}
        }
        let mut now_ns = 0;
        while initiator.on_tick(now_ns) {
            while initiator.poll_completion().is_some() {}
            while initiator.poll_request(now_ns).is_some() {}
            now_ns += RTO_MAX_NS;
            prop_assert!(now_ns < 100 * RTO_MAX_NS);
        }
        while initiator.poll_completion().is_some() {}
        prop_assert!(initiator.is_idle());
    }

    #[test]
    fn headers_survive_the_wire(
        words in any::<(u32, u64, u32, u32, u64, u32, u32, u64, u32, u32)>(), read in any::<bool>(),
    ) {
        let (stream, token, psn, dct_number, dct_key, incarnation, flow, remote_addr, rkey, len) = words;
        let kind = if read { Kind::Read } else { Kind::Write };
        let destination = Destination { dct_number, dct_key, incarnation };
        let request = Request { kind, stream, token, psn, destination, flow, remote_addr, rkey, len };
        prop_assert_eq!(decode(&request.encode()), Some(Packet::Request(request)));
        let response = Response { stream, token, psn, status: Status::Access, len };
        prop_assert_eq!(decode(&response.encode()), Some(Packet::Response(response)));
    }
}
