// SPDX-License-Identifier: MIT OR Apache-2.0

//! What becomes of chains, with a closure in the place of the module.

use super::super::verbs;
use super::*;
use crate::ring::tests::send_ring;
use std::mem::MaybeUninit;
use std::thread::sleep;

const WAIT: Reap = Reap {
    room: 9,
    min: 2,
    timeout_ns: 1000,
};

fn request(wr_id: u64) -> SendWr {
    SendWr {
        wr_id,
        next: ptr::null_mut(),
        sg_list: ptr::null_mut(),
        num_sge: 0,
        opcode: verbs::WR_RDMA_READ,
        send_flags: 0,
        imm_data: MaybeUninit::uninit(),
        wr: verbs::Wr {
            rdma: verbs::Rdma {
                remote_addr: 0x9000,
                rkey: 4,
            },
        },
    }
}

/// So many requests, one behind the other.
fn requests(count: usize) -> Vec<SendWr> {
    let mut wrs: Vec<_> = (0..count as u64).map(request).collect();
    let first = wrs.as_mut_ptr();
    for index in 1..count {
        wrs[index - 1].next = first.wrapping_add(index);
    }
    wrs
}

fn chain(vqp: u32, wrs: &mut [SendWr]) -> Chain {
    Chain {
        vqp,
        peer: vqp + 100,
        signal_all: false,
        left: wrs.as_mut_ptr(),
        error: None,
    }
}

/// Waits for longer than a nap.
const PATIENT: Reap = Reap {
    timeout_ns: 60_000_000_000,
    ..WAIT
};

/// Longer than a nap.
const LONG_NS: u64 = 10_000_000;

/// [`submitted_by`], and waits for completions.
fn submitted(
    chains: &mut [Chain],
    answers: &[Result<u32, Errno>],
) -> (Vec<(u32, u32)>, Result<bool, Errno>) {
    submitted_by(chains, &WAIT, answers)
}

/// Submits with a module that answers as told, in turn, and is asked no more often. It waits for
/// as long as it is told, but no longer than [`LONG_NS`]. Answers with what it was asked:
/// requests, completions to wait for.
fn submitted_by(
    chains: &mut [Chain],
    reap: &Reap,
    answers: &[Result<u32, Errno>],
) -> (Vec<(u32, u32)>, Result<bool, Errno>) {
    let mut asked = Vec::new();
    let enter = |count, min, timeout_ns: u64| {
        asked.push((count, min));
        assert!(timeout_ns <= reap.timeout_ns);
        sleep(Duration::from_nanos(timeout_ns.min(LONG_NS)));
        answers[asked.len() - 1]
    };
    // SAFETY: they are chains.
    let waited = unsafe { submit(&mut send_ring(8), chains, reap, enter) };
    assert_eq!(asked.len(), answers.len());
    (asked, waited)
}

fn left(chain: &Chain) -> Option<u64> {
    // SAFETY: a request of the test's, or null.
    unsafe { chain.left.as_ref() }.map(|wr| wr.wr_id)
}

#[test]
fn a_chain_that_fits_is_one_call_which_waits() {
    let mut wrs = requests(8);
    let mut one = [chain(7, &mut wrs)];
    let (asked, waited) = submitted(&mut one, &[Ok(8)]);
    assert_eq!((asked, waited), (vec![(8, 2)], Ok(true)));
    assert_eq!((left(&one[0]), one[0].error), (None, None));
}

#[test]
fn a_longer_chain_takes_more_calls_and_the_last_one_waits() {
    let mut wrs = requests(18);
    let mut one = [chain(7, &mut wrs)];
    let (asked, waited) = submitted(&mut one, &[Ok(8), Ok(8), Ok(2)]);
    assert_eq!((asked, waited), (vec![(8, 0), (8, 0), (2, 2)], Ok(true)));
}

#[test]
fn a_call_before_the_last_that_finds_no_room_naps_until_all_is_taken() {
    let mut wrs = requests(10);
    let mut one = [chain(7, &mut wrs)];
    let full = Err(Errno::ENOSPC);
    let answers = [full, full, Ok(1), full, Ok(8), Ok(1)];
    let (asked, waited) = submitted_by(&mut one, &PATIENT, &answers);
    assert_eq!(asked, [(8, 0), (8, 2), (8, 2), (8, 2), (8, 2), (1, 2)]);
    assert_eq!(waited, Ok(true));
    assert_eq!((left(&one[0]), one[0].error), (None, None));
}

#[test]
fn naps_are_not_longer_than_the_time_and_the_next_chain_waits_for_nothing_more() {
    let (mut first, mut second) = (requests(14), requests(1));
    let mut both = [chain(7, &mut first), chain(8, &mut second)];
    let answers = [Ok(3), Err(Errno::ENOSPC), Err(Errno::ENOSPC), Ok(1)];
    let (asked, waited) = submitted_by(&mut both, &WAIT, &answers);
    assert_eq!(asked, [(8, 0), (8, 0), (8, 2), (1, 0)]);
    assert_eq!(waited, Ok(true));
    assert_eq!((left(&both[0]), both[0].error), (Some(3), Some(Why::Full)));
    assert_eq!((left(&both[1]), both[1].error), (None, None));
}

#[test]
fn several_chains_are_one_call_and_each_request_names_its_vqp_and_peer() {
    let (mut first, mut second) = (requests(3), requests(2));
    let mut both = [chain(7, &mut first), chain(8, &mut second)];
    let (asked, waited) = submitted(&mut both, &[Ok(5)]);
    assert_eq!((asked, waited), (vec![(5, 2)], Ok(true)));
    assert!(both.iter().all(|chain| left(chain).is_none()));
}

#[test]
fn a_full_queue_stops_a_chain_and_no_other() {
    let (mut first, mut second) = (requests(3), requests(2));
    let mut both = [chain(7, &mut first), chain(8, &mut second)];
    let (asked, waited) = submitted(&mut both, &[Ok(2), Ok(2)]);
    // The first call was to wait, and did, since a queue was full.
    assert_eq!((asked, waited), (vec![(5, 2), (2, 0)], Ok(true)));
    assert_eq!((left(&both[0]), both[0].error), (Some(2), Some(Why::Full)));
    assert_eq!((left(&both[1]), both[1].error), (None, None));
}

#[test]
fn what_stops_a_later_chain_comes_with_the_next_call() {
    let (mut first, mut second, mut third) = (requests(1), requests(2), requests(1));
    let mut all = [
        chain(7, &mut first),
        chain(8, &mut second),
        chain(9, &mut third),
    ];
    let (asked, waited) = submitted(&mut all, &[Ok(1), Err(Errno::ENOTCONN), Ok(1)]);
    // Behind one that has failed nothing is waited for.
    assert_eq!(asked, [(4, 2), (3, 2), (1, 0)]);
    assert_eq!(waited, Ok(false));
    let errors = all.each_ref().map(|chain| chain.error);
    assert_eq!(errors, [None, Some(Why::Errno(Errno::ENOTCONN)), None]);
    assert_eq!(left(&all[1]), Some(0));
}

#[test]
fn a_request_that_cannot_be_posted_stops_its_chain_alone() {
    let (mut first, mut second) = (requests(3), requests(2));
    first[1].num_sge = -1;
    let mut both = [chain(7, &mut first), chain(8, &mut second)];
    let (asked, waited) = submitted(&mut both, &[Ok(1), Ok(2)]);
    assert_eq!((asked, waited), (vec![(1, 0), (2, 0)], Ok(false)));
    assert_eq!(
        (left(&both[0]), both[0].error),
        (Some(1), Some(Why::Errno(Errno::EINVAL)))
    );
}

#[test]
fn nothing_is_waited_for_if_a_later_chain_was_refused() {
    let mut wrs = requests(2);
    let mut both = [
        chain(7, &mut wrs),
        Chain::refused(ptr::null_mut(), Errno::ENOTCONN),
    ];
    let (asked, waited) = submitted(&mut both, &[Ok(2)]);
    assert_eq!((asked, waited), (vec![(2, 0)], Ok(false)));
}

#[test]
fn nothing_to_post_is_no_call_and_no_wait() {
    let mut none = [
        chain(7, &mut []),
        Chain::refused(ptr::null_mut(), Errno::EINVAL),
    ];
    none[0].left = ptr::null_mut();
    assert_eq!(submitted(&mut none, &[]), (vec![], Ok(false)));
}

#[test]
fn a_signal_ends_a_wait_but_not_a_post() {
    let mut wrs = requests(9);
    let mut one = [chain(7, &mut wrs)];
    let (asked, waited) = submitted(&mut one, &[Err(Errno::EINTR), Ok(8), Err(Errno::EINTR)]);
    assert_eq!(asked, [(8, 0), (8, 0), (1, 2)]);
    assert_eq!(waited, Err(Errno::EINTR));
    let interrupted = Some(Why::Errno(Errno::EINTR));
    assert_eq!((left(&one[0]), one[0].error), (Some(8), interrupted));
}

#[test]
fn what_a_signal_leaves_of_a_post_is_taken_by_the_next_call() {
    let mut wrs = requests(3);
    let mut one = [chain(7, &mut wrs)];
    let (asked, _) = submitted_by(&mut one, &NO_WAIT, &[Ok(2), Ok(1)]);
    assert_eq!(asked, [(3, 0), (1, 0)]);
    assert_eq!((left(&one[0]), one[0].error), (None, None));
    // If there is no room, the next call says so.
    let mut one = [chain(7, &mut wrs)];
    let (asked, _) = submitted_by(&mut one, &NO_WAIT, &[Ok(2), Err(Errno::ENOSPC)]);
    assert_eq!(asked, [(3, 0), (1, 0)]);
    assert_eq!((left(&one[0]), one[0].error), (Some(2), Some(Why::Full)));
}

#[test]
fn a_full_queue_was_waited_for_and_is_no_memory_in_c() {
    let mut wrs = requests(2);
    let mut one = [chain(7, &mut wrs)];
    let (_, waited) = submitted(&mut one, &[Err(Errno::ENOSPC)]);
    assert_eq!((waited, one[0].error), (Ok(true), Some(Why::Full)));
    assert_eq!(Why::Full.errno(), Errno::ENOMEM);
}

#[test]
fn a_kernel_without_memory_is_no_full_queue_and_nothing_is_waited_for() {
    let (mut first, mut second) = (requests(1), requests(1));
    let mut both = [chain(7, &mut first), chain(8, &mut second)];
    let (asked, waited) = submitted(&mut both, &[Err(Errno::ENOMEM), Ok(1)]);
    assert_eq!((asked, waited), (vec![(2, 2), (1, 0)], Ok(false)));
    assert_eq!(both[0].error, Some(Why::Errno(Errno::ENOMEM)));
    assert!(!may_wait(&both));
}

#[test]
fn a_batch_has_the_requests_of_all_chains_in_order() {
    let mut ring = send_ring(4);
    let (mut first, mut second) = (requests(3), requests(2));
    let both = [chain(7, &mut first), chain(8, &mut second)];
    // SAFETY: they are chains.
    assert_eq!(unsafe { fill(&mut ring, &both) }, (4, Stop::Full));
    second[0].num_sge = -1;
    // SAFETY: as above.
    let filled = unsafe { fill(&mut ring, &both) };
    assert_eq!(filled, (3, Stop::Bad(Errno::EINVAL)));
}
