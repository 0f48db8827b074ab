// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Posters and a reaper of one RC queue pair, in every order that the memory
//! model allows (loom): no place is used by two at once, neither queue
//! overflows, and no completion is left that nobody will look for. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-core --release --test rc_loom`.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use std::collections::VecDeque;
use weft_core::rc::{Attendance, Poster, Window, WrId};

const DEPTH: u32 = 2;

/// The queue pair and its completion queue. It carries a request out when it is
/// posted, which is the earliest that a completion can come.
#[derive(Default)]
struct Hardware {
    /// In the send queue: its completion was not taken yet.
    outstanding: u32,
    cq: VecDeque<(u64, u32)>,
    unsignaled: u32,
    armed: bool,
    /// The queue has called.
    events: u32,
}

impl Hardware {
    fn post(&mut self, seq: u32, signaled: bool) {
        self.outstanding += 1;
        assert!(self.outstanding <= DEPTH, "the send queue overflows");
        self.unsignaled += 1;
        if signaled {
            let clears = std::mem::take(&mut self.unsignaled);
            self.cq.push_back((WrId::Request(seq).encode(), clears));
            assert!(
                self.cq.len() <= DEPTH as usize,
                "the completion queue overflows"
            );
            if std::mem::take(&mut self.armed) {
                self.events += 1;
            }
        }
    }

    fn poll(&mut self) -> Option<u64> {
        let (wr_id, clears) = self.cq.pop_front()?;
        self.outstanding -= clears;
        Some(wr_id)
    }

    /// Answers whether completions wait already.
    fn arm(&mut self) -> bool {
        self.armed = true;
        !self.cq.is_empty()
    }
}

struct Queue {
    window: Window,
    attendance: Attendance,
    poster: Mutex<Poster>,
    /// What the places hold: which request is in them, if any.
    places: Vec<UnsafeCell<Option<u32>>>,
    /// The reaper's lock: requests that have ended.
    reaper: Mutex<u32>,
    hardware: Mutex<Hardware>,
}

impl Queue {
    fn new() -> Arc<Self> {
        let (window, poster) = Window::new(DEPTH, DEPTH, u64::MAX).unwrap();
        Arc::new(Self {
            window,
            attendance: Attendance::new(),
            poster: Mutex::new(poster),
            places: (0..DEPTH).map(|_| UnsafeCell::new(None)).collect(),
            reaper: Mutex::new(0),
            hardware: Mutex::new(Hardware::default()),
        })
    }

    /// Posts as many of `count` requests as there is room for, the last of them
    /// signalled; answers how many.
    fn post(&self, count: u32) -> u32 {
        let mut poster = self.poster.lock().unwrap();
        let mut chain = Vec::new();
        for _ in 0..count {
            let Some(claim) = self.window.claim(&mut poster, 8) else {
                break;
            };
            self.places[claim.place].with_mut(|place| {
                // SAFETY: claimed; loom checks that nobody else is here.
                let place = unsafe { &mut *place };
                assert_eq!(place.replace(claim.seq), None);
            });
            chain.push((claim.seq, poster.signals(false)));
        }
        if poster.signals_last() {
            chain.last_mut().unwrap().1 = true;
        }
        self.window.publish(&poster);
        let posted = chain.len() as u32;
        for (seq, signaled) in chain {
            self.hardware.lock().unwrap().post(seq, signaled);
        }
        drop(poster);
        if self.attendance.is_empty() {
            self.arm();
        }
        posted
    }

    fn arm(&self) {
        while self.window.outstanding() != 0 && self.hardware.lock().unwrap().arm() {
            self.poll();
        }
    }

    fn poll(&self) {
        let mut ended = self.reaper.lock().unwrap();
        loop {
            let Some(wr_id) = self.hardware.lock().unwrap().poll() else {
                return;
            };
            let Some(WrId::Request(seq)) = WrId::decode(wr_id) else {
                panic!("not a request");
            };
            assert!(self.window.covers(seq));
            while let Some(oldest) = self.window.oldest() {
                if seq.wrapping_sub(oldest) > u32::MAX / 2 {
                    break;
                }
                self.places[self.window.place(oldest)].with_mut(|place| {
                    // SAFETY: published and not retired; loom checks it.
                    assert_eq!(unsafe { &mut *place }.take(), Some(oldest));
                });
                self.window.retire(8);
                *ended += 1;
            }
        }
    }

    /// A waiter: polls, and leaves whether or not it saw what it waited for.
    fn attend(&self) {
        self.attendance.enter();
        self.poll();
        if self.attendance.leave() {
            self.arm();
        }
    }

    /// Everything that was posted has ended, or an event says that it has.
    fn check(&self, posted: u32) {
        let events = self.hardware.lock().unwrap().events;
        if events != 0 {
            self.poll();
        }
        assert_eq!(*self.reaper.lock().unwrap(), posted, "{events} events");
        assert_eq!(self.window.outstanding(), 0);
    }
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

#[test]
fn a_waiter_that_leaves_and_a_poster_leave_no_completion_behind() {
    model(|| {
        let queue = Queue::new();
        let waiter = {
            let queue = Arc::clone(&queue);
            loom::thread::spawn(move || queue.attend())
        };
        let posted = queue.post(2);
        waiter.join().unwrap();
        queue.check(posted);
    });
}

#[test]
fn two_posters_share_the_places() {
    model(|| {
        let queue = Queue::new();
        let other = {
            let queue = Arc::clone(&queue);
            loom::thread::spawn(move || queue.post(1))
        };
        let mut posted = queue.post(2);
        posted += other.join().unwrap();
        queue.check(posted);
    });
}

#[test]
fn places_are_used_again_only_when_their_request_has_ended() {
    model(|| {
        let queue = Queue::new();
        let mut posted = queue.post(2);
        let waiter = {
            let queue = Arc::clone(&queue);
            loom::thread::spawn(move || queue.attend())
        };
        posted += queue.post(2);
        posted += queue.post(1);
        waiter.join().unwrap();
        queue.check(posted);
    });
}
