// SPDX-License-Identifier: MIT OR Apache-2.0

//! Batches of requests, with a closure in the place of the module.

use super::*;
use crate::mr::Remote;
use crate::ring::tests::rings;
use crate::wr::Payload;
use std::thread::sleep;

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a nap.
const LONG: Duration = Duration::from_millis(10);

fn requests() -> [SendWr<'static>; 5] {
    let remote = Remote { addr: 0, rkey: 0 };
    [SendWr::write(Payload::inline(b"text").unwrap(), remote); 5]
}

/// Submits five requests by a ring for two and waits for three completions. The module answers
/// as told, in turn, and is asked no more often. It waits for as long as it is told, but no
/// longer than `wait`. Answers with what it was asked: requests, completions to wait for.
fn submitted(
    wait: Duration,
    answers: &[Result<usize, Error>],
) -> (Vec<(usize, usize)>, Result<Submitted, Error>) {
    let mut asked = Vec::new();
    let result = submit_pieces(&requests(), 2, 3, PATIENCE, |piece, min, time| {
        asked.push((piece.len(), min));
        assert!(time <= PATIENCE && (min != 0 || time.is_zero()));
        sleep(time.min(wait));
        answers[asked.len() - 1].clone()
    });
    assert_eq!(asked.len(), answers.len());
    (asked, result)
}

fn said(count: usize, is_full: bool) -> Result<Submitted, Error> {
    Ok(Submitted { count, is_full })
}

#[test]
fn the_last_piece_of_a_long_batch_waits() {
    let (asked, result) = submitted(Duration::ZERO, &[Ok(2), Ok(2), Ok(1)]);
    assert_eq!(asked, [(2, 0), (2, 0), (1, 3)]);
    assert_eq!(result, said(5, false));
}

#[test]
fn a_piece_that_finds_no_room_naps_until_it_is_taken() {
    let full = Err(Error::QueueFull);
    let answers = [full.clone(), full.clone(), Ok(1), full, Ok(2), Ok(2)];
    let (asked, result) = submitted(LONG, &answers);
    assert_eq!(asked, [(2, 0), (2, 3), (2, 3), (2, 3), (2, 3), (2, 3)]);
    assert_eq!(result, said(5, false));
}

#[test]
fn naps_end_with_the_time() {
    let (start, mut asked) = (Instant::now(), Vec::new());
    let timeout = Duration::from_micros(1500);
    let result = submit_pieces(&requests(), 2, 3, timeout, |_, min, time| {
        asked.push(min);
        sleep(time);
        Err(Error::QueueFull)
    });
    assert_eq!(result, said(0, true));
    assert!(start.elapsed() >= timeout);
    assert!(asked.len() > 1);
    assert!(asked.iter().skip(1).all(|min| *min == 3));
}

#[test]
fn a_nap_that_completions_end_is_the_last_one() {
    let full = Err(Error::QueueFull);
    let (asked, result) = submitted(Duration::ZERO, &[Ok(1), full.clone(), full.clone()]);
    assert_eq!(asked, [(2, 0), (2, 0), (2, 3)]);
    assert_eq!(result, said(1, true));
    let (asked, result) = submitted(Duration::ZERO, &[Ok(2), Ok(1), full]);
    assert_eq!(asked, [(2, 0), (2, 0), (2, 3)]);
    assert_eq!(result, said(3, true), "the module has waited");
}

#[test]
fn a_full_queue_is_not_waited_for_if_no_completions_are() {
    let mut calls = 0;
    let result = submit_pieces(&requests(), 2, 0, PATIENCE, |_, min, _| {
        assert_eq!(min, 0);
        calls += 1;
        Err(Error::QueueFull)
    });
    assert_eq!((result, calls), (said(0, true), 1));
}

#[test]
fn a_request_that_cannot_be_taken_ends_the_call_without_a_wait() {
    let (asked, result) = submitted(Duration::ZERO, &[Ok(1), Err(Error::NoSuchVqp)]);
    assert_eq!(asked, [(2, 0), (2, 0)]);
    assert_eq!(result, said(1, false));
    let (_, result) = submitted(Duration::ZERO, &[Err(Error::NoSuchVqp)]);
    assert_eq!(result, Err(Error::NoSuchVqp));
}

#[test]
fn queues_without_room_for_requests_take_none() {
    let mut queues = Queues::of_rings(rings(0, 4, &[]));
    let none = Error::BadCapacity { send: 0, recv: 4 };
    assert_eq!(queues.post_send(&requests()), Err(none.clone()));
    let entered = queues.enter(&requests(), &mut [Wc::default()], 1, PATIENCE);
    assert_eq!(entered, Err(none));
    assert_eq!(queues.post_send(&[]), Ok(0));
}

/// Completions of these queue pairs, each with an opcode.
fn completions(of: &[(u32, u16)]) -> Vec<uapi::Wc> {
    let wc = |&(vqp, opcode)| uapi::Wc {
        vqp,
        opcode,
        ..Pod::zeroed()
    };
    of.iter().map(wc).collect()
}

#[test]
fn completions_of_a_queue_pair_that_was_dropped_are_thrown_away_but_for_its_buffers() {
    let (write, recv) = (uapi::OP_WRITE.into(), uapi::WC_RECV);
    let all = completions(&[(3, write), (4, write), (3, recv), (5, write)]);
    let mut queues = Queues::of_rings(rings(8, 0, &all));
    queues.end.note_dropped(3);
    queues.end.note_dropped(5);
    queues.end.note_made(5);
    let mut wcs = [Wc::default(); 8];
    let count = queues.poll_cq(&mut wcs);
    let left: Vec<_> = wcs[..count]
        .iter()
        .map(|wc| (wc.vqp(), wc.is_recv()))
        .collect();
    assert_eq!(left, [(4, false), (3, true), (5, false)]);
}

#[test]
fn what_is_known_of_dropped_queue_pairs_stays_little_though_nobody_polls() {
    let there = completions(&[(u32::MAX, uapi::OP_WRITE.into())]);
    let mut queues = Queues::of_rings(rings(8, 0, &there));
    for vqp in 0..10_000 {
        queues.end.note_dropped(vqp);
        // There is no kernel that would take it.
        queues.post_send(&requests()[..1]).unwrap_err();
        assert!(queues.end.dropped().len() <= 1);
    }
    assert_eq!(queues.poll_cq(&mut [Wc::default(); 8]), 1);
}
