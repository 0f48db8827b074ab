// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A queue pair that is closed while users post, and one whose time is taken, in every
//! order that the memory model allows (loom). As `kmod/rc/closing.rs`, `kmod/rc/post.rs` and
//! `kmod/vqp/moves.rs` have it: a poster looks with its lock whether it may post, and goes
//! another way once its earlier requests have ended. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-core --release --test pool_loom`.

#![cfg(loom)]

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use weft_core::pool::Stopwatch;
use weft_core::rc::{Poster, Window};
use weft_core::vqp::InFlight;

const REQUESTS: u32 = 2;

/// A queue pair, and what took the requests of one VQP: `true` is the other way.
struct Queue {
    window: Window,
    poster: Mutex<Poster>,
    closing: AtomicBool,
    is_gone: AtomicBool,
    in_flight: InFlight,
    ended: Mutex<Vec<(u32, bool)>>,
}

impl Queue {
    fn new() -> Arc<Self> {
        let (window, poster) = Window::new(2, 2, u64::MAX).unwrap();
        Arc::new(Self {
            window,
            poster: Mutex::new(poster),
            closing: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            in_flight: InFlight::new(REQUESTS),
            ended: Mutex::new(Vec::new()),
        })
    }

    /// Posts request `number`; `false`: it has to go another way.
    fn post(&self) -> bool {
        let mut poster = self.poster.lock().unwrap();
        if self.closing.load(Ordering::Acquire) {
            return false;
        }
        self.window.claim(&mut poster, 0).unwrap();
        assert!(
            !self.is_gone.load(Ordering::Relaxed),
            "posted on a queue pair that is gone"
        );
        self.window.publish(&poster);
        true
    }

    /// The device carries the oldest request out, if there is one.
    fn reap(&self) {
        let mut ended = self.ended.lock().unwrap();
        if self.window.oldest().is_some() {
            self.window.retire(0);
            let number = ended.len() as u32;
            ended.push((number, false));
            self.in_flight.end(1);
        }
    }

    /// A VQP that posts one request after the other: the old way while it can.
    fn use_it(&self) {
        let mut by_other = false;
        for number in 0..REQUESTS {
            assert_eq!(self.in_flight.admit(1), 1);
            by_other |= !self.post();
            if by_other {
                // Held until the earlier ones have ended.
                while self.in_flight.count() > 1 {
                    self.reap();
                    thread::yield_now();
                }
                let mut ended = self.ended.lock().unwrap();
                assert_eq!(ended.len() as u32, number, "it overtakes another");
                ended.push((number, true));
                self.in_flight.end(1);
            }
        }
    }

    /// Whether nothing is under way, nor will be.
    fn has_drained(&self) -> bool {
        let _poster = self.poster.lock().unwrap();
        self.window.outstanding() == 0
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        drop(self.poster.lock().unwrap());
        while !self.has_drained() {
            self.reap();
            thread::yield_now();
        }
        self.is_gone.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_posted_once_it_has_drained_and_requests_end_in_order() {
    loom::model(|| {
        let queue = Queue::new();
        let user = {
            let queue = queue.clone();
            thread::spawn(move || queue.use_it())
        };
        queue.close();
        user.join().unwrap();
        while queue.window.oldest().is_some() {
            queue.reap();
        }
        let ended = queue.ended.lock().unwrap();
        let numbers: Vec<u32> = ended.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..REQUESTS).collect::<Vec<_>>());
        // Once it goes the other way it stays there.
        assert!(ended.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    });
}

#[test]
fn a_stopwatch_answers_when_that_very_request_began() {
    loom::model(|| {
        let watch = Arc::new(Stopwatch::new());
        let published = Arc::new(AtomicU32::new(0));
        let reaper = {
            let (watch, published) = (watch.clone(), published.clone());
            thread::spawn(move || {
                for request in 1..=REQUESTS {
                    while published.load(Ordering::Acquire) < request {
                        thread::yield_now();
                    }
                    if let Some(begun_ns) = watch.stop(request) {
                        assert_eq!(begun_ns, u64::from(request) * 100);
                    }
                }
            })
        };
        for request in 1..=REQUESTS {
            let tick = u64::from(request);
            if watch.is_due(tick) {
                watch.start(request, tick, tick * 100);
            }
            published.store(request, Ordering::Release);
        }
        reaper.join().unwrap();
        assert!(watch.is_due(99), "it runs though its request has ended");
    });
}
