// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What packets that no initiator would send do to the decoder and to a target.

use proptest::prelude::*;

use super::*;

fn request(kind: Kind, psn: u32, len: u32) -> Request {
    Request {
        kind,
        stream: 1,
        token: 42,
        psn,
        destination: HERE,
        flow: 1,
        remote_addr: 0,
        rkey: 0,
        len,
    }
}

/// A context whose first request has succeeded.
fn context_after(first: &Request) -> Context {
    let mut context = Context::open(first, 1).unwrap();
    assert_eq!(context.admit(first, 1), Verdict::Execute);
    context.record(first, Status::Ok);
    context
}

#[test]
fn a_repeat_that_asks_for_more_than_a_chunk_gets_nothing() {
    let mut context = context_after(&request(Kind::Read, 0, 8));
    let same = request(Kind::Read, 0, 8);
    assert_eq!(context.admit(&same, 2), Verdict::Repeat(Status::Ok));
    let huge = request(Kind::Read, 0, 1 << 20);
    assert_eq!(context.admit(&huge, 2), Verdict::Drop);
}

#[test]
fn a_malformed_request_is_refused_and_its_repeat_too() {
    let mut context = context_after(&request(Kind::Read, 0, 8));
    let huge = request(Kind::Read, 1, MAX_CHUNK_BYTES + 1);
    assert_eq!(context.admit(&huge, 2), Verdict::Refuse(Status::Invalid));
    assert_eq!(context.admit(&huge, 3), Verdict::Repeat(Status::Invalid));
    let behind = request(Kind::Write, 2, 8);
    assert_eq!(context.admit(&behind, 4), Verdict::Refuse(Status::Flushed));
}

#[test]
fn what_was_before_the_first_request_is_no_repeat() {
    let mut context = context_after(&request(Kind::Write, 0, 8));
    let before_it = request(Kind::Write, u32::MAX, 8);
    assert_eq!(context.admit(&before_it, 2), Verdict::Drop);
}

#[test]
fn an_atomic_operation_in_place_of_a_write_finds_no_result() {
    let context = context_after(&request(Kind::Write, 0, 8));
    assert_eq!(context.result(0), None);
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Read),
        Just(Kind::Write),
        Just(Kind::Close),
        Just(Kind::CompareSwap),
        Just(Kind::FetchAdd),
        Just(Kind::Send),
        Just(Kind::WriteImm),
    ]
}

/// Lengths around the bounds that matter, and any.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(8),
        Just(MAX_CHUNK_BYTES),
        Just(MAX_CHUNK_BYTES + 1),
        any::<u32>(),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let psn = prop_oneof![8 => 0u32..80, 1 => (u32::MAX - 70)..u32::MAX, 1 => any::<u32>()];
    (kind(), psn, 0u32..4, 0u64..20, len()).prop_map(|(kind, psn, flow, remote_addr, len)| {
        Request {
            flow,
            remote_addr,
            ..request(kind, psn, len)
        }
    })
}

proptest! {
    /// Bytes from anywhere are read or refused, never a panic.
    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = decode(&bytes);
        let mut framed = request(Kind::Read, 0, 0).encode()[..3].to_vec();
        framed.extend(&bytes);
        let _ = decode(&framed);
        let _ = Message::decode(&bytes);
        let _ = Operands::decode(&bytes);
    }

    /// Whatever comes, with the right token: each PSN is carried out once and in its
    /// turn, and nothing is carried out or read again that is not well-formed.
    #[test]
    fn a_target_carries_out_the_next_request_or_nothing(
        requests in prop::collection::vec((any_request(), any::<bool>(), any::<bool>()), 0..300),
    ) {
        let mut context = Context::open(&request(Kind::Read, 0, 0), 0).unwrap();
        let mut expected = 0u32;
        let mut outcomes = Vec::new();
        for (mut request, in_turn, succeeds) in requests {
            if in_turn {
                request.psn = expected;
            }
            match context.admit(&request, 1) {
                Verdict::Execute => {
                    prop_assert_eq!(request.psn, expected);
                    prop_assert!(request.is_well_formed());
                    let status = if succeeds { Status::Ok } else { Status::Access };
                    context.record(&request, status);
                    outcomes.push(status);
                    expected += 1;
                }
                Verdict::Refuse(status) => {
                    prop_assert_eq!(request.psn, expected);
                    prop_assert!(status != Status::Ok);
                    outcomes.push(status);
                    expected += 1;
                }
                Verdict::Repeat(status) => {
                    prop_assert_eq!(outcomes.get(request.psn as usize), Some(&status));
                    prop_assert!(request.is_well_formed() || status != Status::Ok);
                    prop_assert!(!Context::fetches(&request, status) || request.len <= MAX_CHUNK_BYTES);
                }
                Verdict::Premature(psn) => prop_assert_eq!(psn, expected),
                Verdict::Drop => {}
            }
        }
    }
}
