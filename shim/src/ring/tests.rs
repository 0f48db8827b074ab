// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rings against something that plays the kernel.

use super::kernel::{memory, pair, said};
use super::*;
use crate::memory::Pages;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;
use weft_core::uapi::{Pod, RecvWr, SendWr, Wc};

/// A ring that nobody takes from.
pub(crate) fn send_ring(entries: u32) -> SendRing {
    pair(entries, 0, 0).0.send
}

/// Rings for so many requests and buffers, with completions there.
pub(crate) fn rings(max_send_wr: u32, max_recv_wr: u32, wcs: &[Wc]) -> Rings {
    let (user, mut kernel) = pair(max_send_wr, max_recv_wr, 0);
    assert!(wcs.iter().all(|wc| kernel.complete(wc)));
    user
}

/// A ring with completions of these VQPs, with these opcodes.
pub(crate) fn completions_of(wcs: &[(u32, u16)]) -> CompletionRing {
    let wc = |&(vqp, opcode)| Wc {
        vqp,
        opcode,
        ..Pod::zeroed()
    };
    let wcs: Vec<_> = wcs.iter().map(wc).collect();
    rings(8, 0, &wcs).done
}

fn request(wr_id: u64) -> SendWr {
    let mut wr = SendWr {
        wr_id,
        reserved: !wr_id,
        ..Pod::zeroed()
    };
    wr.data[9] = wr_id.rotate_left(7);
    wr
}

fn completion(wr_id: u64) -> Wc {
    Wc {
        wr_id,
        byte_len: wr_id as u32,
        src: !wr_id as u32,
        ..Pod::zeroed()
    }
}

fn buffer(wr_id: u64) -> RecvWr {
    let mut wr = RecvWr {
        wr_id,
        ..Pod::zeroed()
    };
    wr.sges[2].addr = !wr_id;
    wr
}

/// Everything that is there.
fn drain(ring: &mut CompletionRing) -> Vec<u64> {
    let mut ids = Vec::new();
    let taken = ring.take(usize::MAX, |at, wc| {
        assert_eq!((at, wc), (ids.len(), completion(wc.wr_id)));
        ids.push(wc.wr_id);
    });
    assert_eq!(taken, ids.len());
    ids
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let good = said(8, 8);
    let pages = memory(&good);
    assert!(Rings::new(&pages, &good).is_some());
    let bad: [fn(&mut uapi::RingsCreate); 10] = [
        |said| said.sq_entries = 0,
        |said| said.sq_entries = 12,
        |said| said.sq_entries = 1 << 31,
        |said| said.sq_offset = 0,
        |said| said.sq_offset += 4,
        |said| said.sq_offset = u32::MAX - 7,
        |said| said.cq_entries *= 1024,
        |said| said.cq_offset = 312,
        |said| said.rq_offset += 8,
        |said| said.rq_entries = 3,
    ];
    for (which, change) in bad.into_iter().enumerate() {
        let mut said = good;
        change(&mut said);
        assert!(Rings::new(&pages, &said).is_none(), "number {which}");
    }
    let short = Pages::map(std::num::NonZeroUsize::new(300).unwrap()).unwrap();
    let short = Arc::new(Mapping::of(short));
    assert!(Rings::new(&short, &good).is_none());
}

#[test]
fn what_the_kernel_did_not_take_is_put_there_again() {
    let (mut user, mut kernel) = pair(4, 0, u32::MAX - 1);
    for at in 0..4 {
        user.send.put(at, &request(u64::from(at)));
    }
    assert_eq!(kernel.copy(3), [0, 1, 2].map(request));
    user.send.took(3);
    user.send.put(0, &request(9));
    user.send.put(1, &request(10));
    assert_eq!(kernel.copy(2), [9, 10].map(request));
}

#[test]
fn a_vqp_that_does_not_receive_has_no_room_for_buffers() {
    let (mut user, _) = pair(4, 0, 0);
    assert!(!user.recv.is_there());
    assert_eq!(user.recv.room(1), 0);
}

#[test]
fn no_more_buffers_are_posted_than_were_asked_for() {
    let (mut user, mut kernel) = pair(1, 3, 0);
    assert_eq!(user.recv.room(10), 3);
    (0..3).for_each(|at| user.recv.put(at, &buffer(u64::from(at))));
    user.recv.publish(3);
    assert_eq!(user.recv.room(1), 0);
    assert_eq!(kernel.receive(), Some(buffer(0)));
    assert_eq!(user.recv.room(1), 1);
}

#[test]
fn nonsense_from_the_kernel_stays_within_the_ring() {
    for lie in [5, 17, 1 << 31, u32::MAX] {
        let (mut user, kernel) = pair(4, 4, 0);
        kernel.lie(lie, lie);
        user.done.purge(|wc| wc.wr_id == 0 && lie == 17);
        let count = user.done.take(usize::MAX, |_, _| {});
        assert!(count <= user.done.entries());
        assert!(user.recv.room(100) <= 4);
    }
}

#[test]
fn a_purge_takes_out_what_it_is_told_to_and_keeps_the_order_of_the_rest() {
    for (dead, left) in [
        (&[][..], &[0, 1, 2, 3, 4, 5][..]),
        (&[0, 1], &[2, 3, 4, 5]),
        (&[5], &[0, 1, 2, 3, 4]),
        (&[1, 2, 4], &[0, 3, 5]),
        (&[0, 1, 2, 3, 4, 5], &[]),
    ] {
        let (mut user, mut kernel) = pair(8, 0, u32::MAX - 2);
        (0..6).for_each(|id| assert!(kernel.complete(&completion(id))));
        user.done.purge(|wc| dead.contains(&wc.wr_id));
        assert_eq!(user.done.ready(1), left.len());
        // The kernel has as many places more.
        (6..8 + dead.len() as u64).for_each(|id| assert!(kernel.complete(&completion(id))));
        assert!(!kernel.complete(&completion(99)));
        let wanted: Vec<u64> = left
            .iter()
            .copied()
            .chain(6..8 + dead.len() as u64)
            .collect();
        assert_eq!(drain(&mut user.done), wanted);
    }
}

#[test]
fn a_thread_that_plays_the_kernel_and_the_user_lose_nothing() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 20_000 };
    let (mut user, mut kernel) = pair(4, 4, u32::MAX - 1000);
    thread::scope(|scope| {
        scope.spawn(move || {
            // Each buffer that is posted makes a completion.
            for id in 0..COUNT {
                let wr = loop {
                    match kernel.receive() {
                        Some(wr) => break wr,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(wr, buffer(id));
                while !kernel.complete(&completion(id)) {
                    thread::yield_now();
                }
            }
        });
        let (mut posted, mut done) = (0, 0);
        while done < COUNT {
            let room = user.recv.room(4).min((COUNT - posted) as usize) as u32;
            for at in 0..room {
                user.recv.put(at, &buffer(posted + u64::from(at)));
            }
            user.recv.publish(room);
            posted += u64::from(room);
            for id in drain(&mut user.done) {
                assert_eq!(id, done);
                done += 1;
            }
        }
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit { put: u32, taken: u32 },
    Complete(u32),
    Take(usize),
    Post(u32),
    Receive(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..10u32, 0..10u32).prop_map(|(put, taken)| Step::Submit { put, taken }),
        (0..40u32).prop_map(Step::Complete),
        (0..40usize).prop_map(Step::Take),
        (0..10u32).prop_map(Step::Post),
        (0..10u32).prop_map(Step::Receive),
    ]
}

proptest! {
    /// Against queues that cannot wrap around.
    #[test]
    fn what_goes_in_comes_out_wherever_the_indices_are(
        sizes in (1..9u32, 1..9u32),
        start in prop_oneof![Just(0), any::<u32>(), (0..40u32).prop_map(|n| u32::MAX - n)],
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let (mut user, mut kernel) = pair(sizes.0, sizes.1, start);
        let (mut done, mut buffers) = (VecDeque::new(), VecDeque::new());
        let mut id = 0;
        for step in steps {
            match step {
                Step::Submit { put, taken } => {
                    let put = put.min(user.send.room() as u32);
                    let wrs: Vec<_> = (0..put).map(|at| request(id + u64::from(at))).collect();
                    (0..).zip(&wrs).for_each(|(at, wr)| user.send.put(at, wr));
                    let taken = taken.min(put);
                    prop_assert_eq!(&kernel.copy(taken), &wrs[..taken as usize]);
                    user.send.took(taken);
                }
                Step::Complete(count) => for _ in 0..count {
                    id += 1;
                    let fits = done.len() < user.done.entries();
                    prop_assert_eq!(kernel.complete(&completion(id)), fits);
                    if fits {
                        done.push_back(id);
                    }
                },
                Step::Take(max) => {
                    prop_assert_eq!(user.done.ready(usize::MAX), done.len());
                    let mut ids = Vec::new();
                    user.done.take(max, |_, wc| ids.push(wc.wr_id));
                    let wanted: Vec<_> = done.drain(..max.min(done.len())).collect();
                    prop_assert_eq!(ids, wanted);
                }
                Step::Post(count) => {
                    let room = sizes.1 as usize - buffers.len();
                    prop_assert_eq!(user.recv.room(usize::MAX), room);
                    let count = count.min(room as u32);
                    for at in 0..count {
                        id += 1;
                        user.recv.put(at, &buffer(id));
                        buffers.push_back(id);
                    }
                    user.recv.publish(count);
                }
                Step::Receive(count) => for _ in 0..count {
                    let wanted = buffers.pop_front().map(buffer);
                    prop_assert_eq!(kernel.receive(), wanted);
                },
            }
        }
    }
}
