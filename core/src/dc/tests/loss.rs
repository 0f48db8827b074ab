// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests that are sent again, and when.

use super::*;

/// The requests that an initiator sends now.
fn burst(initiator: &mut Initiator, now_ns: u64) -> Vec<Request> {
    std::iter::from_fn(|| Some(initiator.poll_request(now_ns)?.request)).collect()
}

/// An initiator that has just sent so many short WRITEs, and their requests.
fn writes_sent(count: u64, now_ns: u64) -> (Initiator, Vec<Request>) {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..count {
        initiator.push(op(cookie, OpKind::Write, 0, 8)).unwrap();
    }
    let all = burst(&mut initiator, now_ns);
    assert_eq!(all.len() as u64, count);
    (initiator, all)
}

#[test]
fn a_silent_peer_is_not_sent_the_whole_window_again() {
    let mut now_ns = 1;
    let (mut initiator, all) = writes_sent(WINDOW as u64, now_ns);
    let probes = PROBE_CHUNKS as usize;
    for _ in 0..3 {
        now_ns += RTO_MAX_NS;
        initiator.on_tick(now_ns);
        assert_eq!(burst(&mut initiator, now_ns), all[..probes]);
    }
    // The target is there, and the others may have been lost.
    initiator.on_response(&Response::to(&all[0], Status::Ok), 0, now_ns);
    assert_eq!(burst(&mut initiator, now_ns), all[probes..]);
    // One that was lost again is missed as soon as the next one comes.
    initiator.on_tick(now_ns + RTO_MAX_NS);
    assert_eq!(burst(&mut initiator, now_ns), all[1..=probes]);
    initiator.on_response(&Response::to(&all[1], Status::Sequence), 0, now_ns);
    assert_eq!(burst(&mut initiator, now_ns), all[1..]);
}

/// Carries so many READs out, one after the other, over a peer that answers so late. Answers how
/// often each was sent.
fn sends_to_a_slow_peer(initiator: &mut Initiator, late_ns: u64, ops: u64) -> Vec<usize> {
    const TICK_NS: u64 = 1_000_000;
    let mut now_ns = 1;
    let mut sends_of = |cookie| {
        initiator.push(op(cookie, OpKind::Read, 0, 0)).unwrap();
        let (pushed_ns, mut sent, mut request) = (now_ns, 0, None);
        while now_ns < pushed_ns + late_ns {
            initiator.on_tick(now_ns);
            while let Some(outgoing) = initiator.poll_request(now_ns) {
                request = Some(outgoing.request);
                sent += 1;
            }
            now_ns += TICK_NS;
        }
        initiator.on_response(&Response::to(&request.unwrap(), Status::Ok), 0, now_ns);
        let end = initiator.poll_completion().map(|end| end.status);
        assert_eq!(end, Some(WcStatus::Success));
        sent
    };
    (0..ops).map(&mut sends_of).collect()
}

#[test]
fn a_slow_peer_is_soon_sent_each_request_once() {
    for late_ns in [9_000_000, 30_000_000, 100_000_000] {
        let mut initiator = initiator(HERE, 4096);
        let sends = sends_to_a_slow_peer(&mut initiator, late_ns, 10);
        assert!(sends[0] > 1, "it was not known: {sends:?}");
        assert_eq!(sends[2..], [1; 8]);
    }
}

#[test]
fn a_gap_makes_an_initiator_go_back_once_and_again_after_a_timeout() {
    let (mut initiator, all) = writes_sent(3, 1);
    let gap = Response {
        psn: 0,
        ..Response::to(&all[1], Status::Sequence)
    };
    initiator.on_response(&gap, 0, 1);
    assert_eq!(burst(&mut initiator, 1), all);
    // The request behind tells of the same gap.
    initiator.on_response(&gap, 0, 1);
    assert_eq!(burst(&mut initiator, 1), []);
    // The first is lost again, and once more when the clock has it repeated.
    let later_ns = 1 + RTO_MIN_NS;
    initiator.on_tick(later_ns);
    assert_eq!(burst(&mut initiator, later_ns), all);
    initiator.on_response(&gap, 0, later_ns);
    assert_eq!(burst(&mut initiator, later_ns), all);
}

#[test]
fn one_late_answer_has_all_sent_again_that_is_behind_it() {
    let (mut initiator, all) = writes_sent(WINDOW as u64, 1);
    let later_ns = 1 + RTO_MIN_NS;
    initiator.on_tick(later_ns);
    // It comes before anything was repeated.
    initiator.on_response(&Response::to(&all[0], Status::Ok), 0, later_ns);
    assert_eq!(burst(&mut initiator, later_ns), all[1..]);
    // Once another is answered nothing is sent for a second time.
    initiator.on_response(&Response::to(&all[1], Status::Ok), 0, later_ns);
    assert_eq!(burst(&mut initiator, later_ns), []);
}

#[test]
fn once_a_receiver_had_no_buffer_for_too_long_other_flows_go_on_at_once() {
    let mut initiator = initiator(HERE, 4096);
    initiator.push(send(1, 0, 8)).unwrap();
    let other = Op {
        flow: 2,
        ..op(2, OpKind::Write, 16, 8)
    };
    initiator.push(other).unwrap();
    let all = burst(&mut initiator, 1);
    let answer = Response::to(&all[0], Status::NotReady);
    initiator.on_response(&answer, 0, 1);
    assert_eq!(burst(&mut initiator, 1), []);
    let late_ns = 1 + RNR_PATIENCE_NS;
    initiator.on_response(&answer, 0, late_ns);
    assert_eq!(
        burst(&mut initiator, late_ns),
        [all[0].to_be_refused(), all[1]]
    );
}

#[test]
fn five_seconds_after_the_target_was_heard_nothing_is_repeated_any_more() {
    let sent_ns = 7;
    for (late_ns, is_repeated) in [
        (STREAM_IDLE_NS - 1, true),
        (STREAM_IDLE_NS, true),
        (STREAM_IDLE_NS + 1, false),
    ] {
        let (mut initiator, all) = writes_sent(1, sent_ns);
        let now_ns = sent_ns + late_ns;
        assert!(initiator.on_tick(now_ns));
        let expected = if is_repeated { &all[..] } else { &[] };
        assert_eq!(burst(&mut initiator, now_ns), expected);
        let end = initiator.poll_completion().map(|end| end.status);
        assert_eq!(end, (!is_repeated).then_some(WcStatus::RetryExcErr));
    }
}

#[test]
fn a_stream_that_was_idle_for_more_than_five_seconds_has_to_start_over() {
    let (mut initiator, all) = writes_sent(1, 1);
    let heard_ns = 1_000_000;
    initiator.on_response(&Response::to(&all[0], Status::Ok), 0, heard_ns);
    initiator.poll_completion().unwrap();
    assert!(!initiator.needs_restart(heard_ns + STREAM_IDLE_NS));
    assert!(initiator.needs_restart(heard_ns + STREAM_IDLE_NS + 1));
}
