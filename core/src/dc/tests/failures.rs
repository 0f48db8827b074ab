// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Operations that fail, and what becomes of those behind them.

use super::pair::*;
use super::*;
use crate::dc::wire::NO_MESSAGE;

#[test]
fn a_failed_operation_closes_its_flow_and_no_other() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator
        .push(Op {
            rkey: BAD_KEY,
            ..op(1, OpKind::Write, 0, 8)
        })
        .unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    pair.initiator
        .push(Op {
            flow: 2,
            ..op(3, OpKind::Write, 16, 8)
        })
        .unwrap();
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    assert_eq!(
        ends,
        [
            WcStatus::RemAccessErr,
            WcStatus::WrFlushErr,
            WcStatus::Success
        ]
    );
    assert_eq!(pair.executed.len(), 1);
}

#[test]
fn what_fails_locally_is_not_carried_out_and_stops_its_flow() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    pair.initiator
        .push(Op {
            flow: 2,
            ..op(3, OpKind::Write, 16, 8)
        })
        .unwrap();
    pair.initiator
        .push_failed(op(4, OpKind::Write, 24, 8), WcStatus::LocLenErr)
        .unwrap();
    pair.initiator.poll_request(1).unwrap();
    let instead = pair.initiator.unusable(0, WcStatus::LocProtErr);
    pair.out
        .send(&instead.request.encode(), &instead.message.unwrap());
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    let (local, flushed) = (WcStatus::LocProtErr, WcStatus::WrFlushErr);
    assert_eq!(
        ends,
        [local, flushed, WcStatus::Success, WcStatus::LocLenErr]
    );
    assert_eq!(pair.executed.len(), 1);
}

#[test]
fn what_follows_in_a_flow_has_no_effect_if_a_repeat_finds_its_memory_gone() {
    let mut initiator = initiator(HERE, 4096);
    initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    let other = Op {
        flow: 2,
        ..op(3, OpKind::Write, 16, 8)
    };
    initiator.push(other).unwrap();
    while initiator.poll_request(1).is_some() {}
    // Nothing has arrived, and all is sent again.
    initiator.on_tick(1_000_000_000);
    initiator.poll_request(1_000_000_000).unwrap();
    initiator.unusable(0, WcStatus::LocProtErr);
    let mut rest = || {
        let outgoing = initiator.poll_request(1_000_000_000).unwrap();
        let request = outgoing.request;
        (request.kind, request.len, outgoing.message)
    };
    let refused = (Kind::Send, 0, Some(NO_MESSAGE));
    assert_eq!([rest(), rest()], [refused, (Kind::Write, 8, None)]);
}

#[test]
fn what_comes_after_a_read_that_failed_late_is_not_carried_out() {
    let mut initiator = initiator(HERE, 4096);
    initiator.push(op(1, OpKind::Read, 0, 8)).unwrap();
    let read = initiator.poll_request(1).unwrap().request;
    let mut context = Context::open(&read, 1).unwrap();
    let verdict = context.admit(&read, 1);
    assert_eq!(verdict, Verdict::Execute);
    context.record(&read, Status::Ok);
    // Its region goes before its bytes are read.
    let other = Request { flow: 7, ..read };
    assert_eq!(context.read_failed(&other, verdict), Status::Access);
    for _ in 0..100 {
        context.read_failed(&read, verdict);
    }
    assert!(context.is_closed(7), "each flow takes one place");
    let next = |psn, flow| Request { psn, flow, ..read };
    assert_eq!(
        context.admit(&next(1, read.flow), 3),
        Verdict::Refuse(Status::Flushed)
    );
    assert_eq!(context.admit(&next(2, read.flow + 1), 3), Verdict::Execute);
}

#[test]
fn a_late_copy_of_a_read_whose_region_has_gone_leaves_its_flow_open() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Read, 0, 8)).unwrap();
    pair.transmit();
    let copy = pair.out.packets[0].clone();
    pair.step();
    pair.is_readable = false;
    pair.out.packets.push_back(copy);
    pair.step();
    pair.initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    assert_eq!(ends, [WcStatus::Success, WcStatus::Success]);
}

#[test]
fn what_comes_after_a_read_whose_repeat_is_refused_has_no_effect() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Read, 0, 8)).unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    let other = Op {
        flow: 2,
        ..op(3, OpKind::Write, 16, 8)
    };
    pair.initiator.push(other).unwrap();
    pair.transmit();
    // The READ is carried out, its answer is lost, and so are the others' requests.
    pair.out.packets.truncate(1);
    pair.back.fates = vec![Fate::Deliver; 1000];
    pair.back.fates[0] = Fate::Lose;
    pair.step();
    pair.is_readable = false;
    pair.now_ns += RTO_MIN_NS;
    pair.initiator.on_tick(pair.now_ns);
    let repeat = pair.initiator.poll_request(pair.now_ns).unwrap().request;
    pair.serve(&repeat, &[]);
    pair.hear();
    pair.run();
    let ends: Vec<_> = pair
        .completions
        .iter()
        .map(|c| (c.cookie, c.status))
        .collect();
    let expected = [
        (1, WcStatus::RemAccessErr),
        (2, WcStatus::WrFlushErr),
        (3, WcStatus::Success),
    ];
    assert_eq!(ends, expected);
    assert_eq!(pair.executed, [(16, pair.local[16])]);
}

#[test]
fn a_stream_that_broke_takes_nothing_until_all_is_reaped() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..3 {
        initiator.push(op(cookie, OpKind::Read, 0, 8)).unwrap();
    }
    initiator.fail_all(WcStatus::RetryExcErr);
    let other = Op {
        flow: 2,
        ..op(3, OpKind::Read, 0, 8)
    };
    for _ in 0..3 {
        assert_eq!(initiator.push(other), Err(Full));
        initiator.poll_completion().unwrap();
    }
    assert!(initiator.needs_restart(0));
    initiator.restart(43);
    assert!(initiator.push(other).is_ok());
}

#[test]
fn what_is_queued_behind_a_failed_operation_is_flushed() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator
        .push_failed(op(1, OpKind::Write, 0, 8), WcStatus::LocQpOpErr)
        .unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    let other = Op {
        flow: 2,
        ..op(3, OpKind::Write, 16, 8)
    };
    pair.initiator.push(other).unwrap();
    pair.run();
    pair.initiator.push(other).unwrap();
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    let (bad, flushed, ok) = (
        WcStatus::LocQpOpErr,
        WcStatus::WrFlushErr,
        WcStatus::Success,
    );
    assert_eq!(ends, [bad, flushed, ok, ok]);
}

#[test]
fn a_peer_that_never_answers_ends_every_operation_in_bounded_time() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..3 {
        initiator.push(op(cookie, OpKind::Read, 0, 8)).unwrap();
    }
    let (mut now_ns, mut sent, mut ends) = (0, 0, Vec::new());
    while initiator.on_tick(now_ns) && now_ns < 10_000_000_000 {
        while initiator.poll_request(now_ns).is_some() {
            sent += 1;
        }
        ends.extend(statuses(&mut initiator));
        now_ns += 1_000_000;
    }
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(ends, [WcStatus::RetryExcErr, flushed, flushed]);
    assert!(now_ns < 1_000_000_000, "gave up after {now_ns} ns");
    assert_eq!(sent, 3 * MAX_TRIES);
}

/// An initiator with one WRITE of two chunks, of which the target has refused the
/// second because the first failed; why, was lost.
fn half_told() -> Initiator {
    let mut initiator = initiator(HERE, 4096);
    initiator.push(op(1, OpKind::Write, 0, 5000)).unwrap();
    initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    let first = initiator.poll_request(1).unwrap().request;
    let second = initiator.poll_request(1).unwrap().request;
    assert_eq!((first.psn, second.psn), (0, 1));
    let answer = Response::to(&second, Status::Flushed);
    assert_eq!(initiator.on_response(&answer, 0, 2), Incoming::Handled);
    assert!(initiator.poll_completion().is_none());
    initiator
}

fn statuses(initiator: &mut Initiator) -> Vec<WcStatus> {
    std::iter::from_fn(|| initiator.poll_completion())
        .map(|completion| completion.status)
        .collect()
}

#[test]
fn what_was_flushed_for_an_unknown_reason_ends_with_that_of_the_stream() {
    let mut initiator = half_told();
    initiator.fail_all(WcStatus::RetryExcErr);
    assert_eq!(
        statuses(&mut initiator),
        [WcStatus::RetryExcErr, WcStatus::WrFlushErr]
    );
}

#[test]
fn the_first_of_each_flow_says_why_the_stream_ended() {
    let mut initiator = initiator(HERE, 4096);
    for (cookie, flow) in [(1, 1), (2, 2), (3, 1), (4, 2), (5, 1)] {
        let op = op(cookie, OpKind::Write, 0, 8);
        initiator.push(Op { flow, ..op }).unwrap();
    }
    initiator.fail_all(WcStatus::RetryExcErr);
    let ended: Vec<_> = std::iter::from_fn(|| initiator.poll_completion())
        .map(|completion| (completion.cookie, completion.status))
        .collect();
    let (why, flushed) = (WcStatus::RetryExcErr, WcStatus::WrFlushErr);
    let expected = [(1, why), (2, why), (3, flushed), (4, flushed), (5, flushed)];
    assert_eq!(ended, expected);
}

#[test]
fn what_was_flushed_ends_with_its_reason_once_that_is_heard() {
    let mut initiator = half_told();
    let mut request = initiator.poll_request(20_000_000);
    if request.is_none() {
        initiator.on_tick(1_000_000_000);
        request = initiator.poll_request(1_000_000_000);
    }
    let answer = Response::to(&request.unwrap().request, Status::Access);
    assert_eq!(initiator.on_response(&answer, 0, 3), Incoming::Handled);
    initiator.fail_all(WcStatus::RetryExcErr);
    assert_eq!(
        statuses(&mut initiator),
        [WcStatus::RemAccessErr, WcStatus::WrFlushErr]
    );
}

#[test]
fn a_clock_that_comes_late_repeats_nothing_that_the_target_may_have_forgotten() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::FetchAdd, 0, 8)).unwrap();
    let now_ns = pair.now_ns;
    assert!(pair.initiator.poll_request(now_ns).is_some());
    let late_ns = now_ns + CONTEXT_IDLE_NS + 1;
    pair.initiator.on_tick(late_ns);
    assert!(pair.initiator.poll_request(late_ns).is_none());
    assert_eq!(statuses(&mut pair.initiator), [WcStatus::RetryExcErr]);
    assert!(pair.initiator.needs_restart(late_ns));
}
