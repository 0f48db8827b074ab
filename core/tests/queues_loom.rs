// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A completion ring that VQPs share and a receive ring that they share, in every order that
//! the memory model allows (loom). The kernel's side is as `kmod/queues.rs` has it: the
//! books under a lock, entries written before the tail; the user's as `shim/src/ring.rs`
//! has it. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-core --release --test queues_loom`.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use weft_core::vqp::{Completions, Receives};

/// Places of the rings: as few as wrap around in a short run.
const ENTRIES: u32 = 2;

/// The memory that both sides map. Loom fails if two threads use an entry at once.
struct Ring {
    entries: [UnsafeCell<u32>; ENTRIES as usize],
    tail: AtomicU32,
    head: AtomicU32,
}

// SAFETY: the protocol says whose an entry is: that is what the models check.
unsafe impl Sync for Ring {}
// SAFETY: numbers.
unsafe impl Send for Ring {}

impl Ring {
    fn new() -> Self {
        Self {
            entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
            tail: AtomicU32::new(0),
            head: AtomicU32::new(0),
        }
    }

    fn put(&self, index: u32, value: u32) {
        let entry = &self.entries[(index % ENTRIES) as usize];
        // SAFETY: see `Ring`.
        entry.with_mut(|entry| unsafe { *entry = value });
    }

    fn get(&self, index: u32) -> u32 {
        let entry = &self.entries[(index % ENTRIES) as usize];
        // SAFETY: see `Ring`.
        entry.with(|entry| unsafe { *entry })
    }
}

/// The completion ring, as the kernel has it.
struct Kernel {
    ring: Ring,
    completions: Mutex<Completions>,
}

impl Kernel {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ring: Ring::new(),
            completions: Mutex::new(Completions::new(ENTRIES)),
        })
    }

    fn books(&self) -> MutexGuard<'_, Completions> {
        self.completions.lock().unwrap()
    }

    /// Takes a place, if there is one.
    fn reserve(&self) -> bool {
        let mut books = self.books();
        books.reaped_to(self.ring.head.load(Ordering::Acquire));
        books.reserve(1) == 1
    }

    /// A request that had a place has ended. Its VQP's `is_deaf` is read with the lock held.
    fn complete(&self, value: u32, is_deaf: &AtomicU32) {
        let mut books = self.books();
        if is_deaf.load(Ordering::Relaxed) != 0 {
            return books.release(1);
        }
        let index = books.complete().expect("it had a place");
        self.ring.put(index, value);
        self.ring
            .tail
            .store(index.wrapping_add(1), Ordering::Release);
    }

    /// The user takes what is there.
    fn reap(&self) -> Vec<u32> {
        let mut head = self.ring.head.load(Ordering::Relaxed);
        let tail = self.ring.tail.load(Ordering::Acquire);
        let mut values = Vec::new();
        while head != tail {
            values.push(self.ring.get(head));
            head = head.wrapping_add(1);
        }
        self.ring.head.store(head, Ordering::Release);
        values
    }

    /// Places that are free once all has ended and was taken.
    fn free(&self) -> u32 {
        let mut books = self.books();
        books.reaped_to(self.ring.head.load(Ordering::Acquire));
        books.reserve(u32::MAX)
    }
}

/// Two VQPs end requests, and post again when there is room, while the user takes
/// completions: each completion is there once, and whole, and no place is lost.
#[test]
fn two_writers_and_a_reader() {
    loom::model(|| {
        let kernel = Kernel::new();
        let live = Arc::new(AtomicU32::new(0));
        assert!(kernel.reserve() && kernel.reserve());
        let writers = [1, 2].map(|vqp| {
            let (kernel, live) = (Arc::clone(&kernel), Arc::clone(&live));
            thread::spawn(move || {
                kernel.complete(vqp, &live);
                let again = kernel.reserve();
                if again {
                    kernel.complete(vqp + 10, &live);
                }
                again
            })
        });
        let mut seen = kernel.reap();
        let mut wanted = vec![1, 2];
        for (vqp, writer) in [1, 2].into_iter().zip(writers) {
            if writer.join().unwrap() {
                wanted.push(vqp + 10);
            }
        }
        seen.extend(kernel.reap());
        seen.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(seen, wanted);
        assert_eq!(kernel.free(), ENTRIES);
    });
}

/// A VQP is destroyed while a request of it ends: its completion is there before the
/// destruction returns, or never, and its place is free again in either case.
#[test]
fn a_vqp_that_is_destroyed_says_nothing_more() {
    loom::model(|| {
        let kernel = Kernel::new();
        let (deaf, live) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        assert!(kernel.reserve() && kernel.reserve());
        let ends = {
            let (kernel, deaf, live) = (Arc::clone(&kernel), Arc::clone(&deaf), Arc::clone(&live));
            thread::spawn(move || {
                kernel.complete(1, &deaf);
                kernel.complete(2, &live);
            })
        };
        // As `Queues::silently`.
        let books = kernel.books();
        deaf.store(1, Ordering::SeqCst);
        drop(books);
        let before = kernel.reap();
        ends.join().unwrap();
        let after = kernel.reap();
        assert!(
            !after.contains(&1),
            "it was heard of after it was destroyed"
        );
        let others = before.iter().chain(&after).filter(|value| **value == 2);
        assert_eq!(others.count(), 1, "another's completion was lost");
        assert_eq!(kernel.free(), ENTRIES);
    });
}

/// Two messages take buffers from a ring that the user fills meanwhile: each buffer is
/// taken once, and its place is not written again before it was copied.
#[test]
fn two_claims_of_a_shared_receive_ring() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let receives = Arc::new(Mutex::new(Receives::new(ENTRIES)));
        ring.put(0, 100);
        ring.put(1, 101);
        ring.tail.store(2, Ordering::Release);
        let claims = [(), ()].map(|()| {
            let (ring, receives) = (Arc::clone(&ring), Arc::clone(&receives));
            thread::spawn(move || {
                // As `Queues::claim`.
                let mut receives = receives.lock().unwrap();
                let index = receives.next(ring.tail.load(Ordering::Acquire))?;
                let buffer = ring.get(index);
                ring.head.store(receives.take(), Ordering::Release);
                Some(buffer)
            })
        });
        // The user posts a third one as soon as a place is free.
        if ring.head.load(Ordering::Acquire) > 0 {
            ring.put(2, 102);
            ring.tail.store(3, Ordering::Release);
        }
        let mut taken = claims.map(|claim| claim.join().unwrap().expect("there were two"));
        taken.sort_unstable();
        assert_eq!(taken, [100, 101]);
    });
}
