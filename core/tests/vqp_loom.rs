// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A waiter and whoever ends its request, in every order that the memory model
//! allows (loom): the waiter sees what the request has done, and the place is free
//! afterwards, also if the waiter leaves. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-core --release --test vqp_loom`.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use weft_core::uapi::WcStatus;
use weft_core::vqp::{Direct, InFlight, Moderation, Telling};

struct Memory {
    direct: Direct,
    bytes: UnsafeCell<u32>,
}

// SAFETY: the bytes are the request's until it has ended, then its waiter's: that
// is what the model checks.
unsafe impl Sync for Memory {}
// SAFETY: numbers.
unsafe impl Send for Memory {}

fn begun() -> Arc<Memory> {
    let memory = Arc::new(Memory {
        direct: Direct::new(),
        bytes: UnsafeCell::new(0),
    });
    assert!(memory.direct.begin());
    memory
}

fn ender(memory: &Arc<Memory>) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || {
        // SAFETY: see `Memory`.
        memory.bytes.with_mut(|bytes| unsafe { *bytes = 7 });
        memory.direct.end(WcStatus::Success);
    })
}

#[test]
fn a_waiter_sees_what_its_request_did() {
    loom::model(|| {
        let memory = begun();
        let other = ender(&memory);
        while memory.direct.outcome().is_none() {
            thread::yield_now();
        }
        // SAFETY: see `Memory`.
        assert_eq!(memory.bytes.with(|bytes| unsafe { *bytes }), 7);
        memory.direct.finish();
        assert!(memory.direct.begin());
        other.join().unwrap();
        assert!(
            memory.direct.is_under_way(),
            "the second one's place is its own"
        );
    });
}

#[test]
fn the_place_of_one_that_was_left_is_free_in_the_end() {
    loom::model(|| {
        let memory = begun();
        let other = ender(&memory);
        memory.direct.leave();
        // Another may begin as soon as nothing is under way.
        let again = !memory.direct.is_under_way() && memory.direct.begin();
        other.join().unwrap();
        assert_eq!(memory.direct.is_under_way(), again);
        assert!(again || memory.direct.begin());
    });
}

#[test]
fn a_waiter_that_comes_back_sees_what_its_request_did() {
    loom::model(|| {
        let memory = begun();
        let other = ender(&memory);
        memory.direct.leave();
        assert!(memory.direct.resume(), "nobody else began one");
        while memory.direct.outcome().is_none() {
            thread::yield_now();
        }
        // SAFETY: see `Memory`.
        assert_eq!(memory.bytes.with(|bytes| unsafe { *bytes }), 7);
        memory.direct.finish();
        other.join().unwrap();
        assert!(!memory.direct.is_under_way());
        assert!(memory.direct.begin());
    });
}

/// Two threads that post and an end between them: no place is lost or given twice.
#[test]
fn posts_and_ends_at_once() {
    loom::model(|| {
        let requests = Arc::new(InFlight::new(2));
        assert_eq!(requests.admit(1), 1);
        let other = {
            let requests = Arc::clone(&requests);
            thread::spawn(move || requests.admit(2))
        };
        requests.end(1);
        let mine = requests.admit(1);
        let others = other.join().unwrap();
        assert!(requests.count() <= 2);
        assert_eq!(requests.count(), mine + others);
    });
}

/// Completions that come while the timer is at its end: each is told of, by number or by
/// time.
#[test]
fn no_completion_is_left_untold() {
    loom::model(|| {
        let moderation = Arc::new(Moderation::new(2, 0));
        assert_eq!(moderation.arrived(1), Telling::StartTimer);
        let timer = {
            let moderation = Arc::clone(&moderation);
            thread::spawn(move || moderation.time_is_over())
        };
        let steps = [2, 3].map(|tail| moderation.arrived(tail));
        let _ = timer.join().unwrap();
        if !steps.contains(&Telling::StartTimer) {
            assert!(!moderation.time_is_over(), "one is left, and no timer runs");
        }
    });
}
