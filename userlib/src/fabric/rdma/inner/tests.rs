// SPDX-License-Identifier: MIT OR Apache-2.0

//! Holders of a seat, one after the other, over a transport that carries nothing.

use super::*;
use crate::fabric::rdma::control::CONTROL_BYTES;
use crate::fabric::rdma::Gone;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ptr::NonNull;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

pub(in crate::fabric::rdma) const REGION_BYTES: usize = 64;

/// Carries nothing, and notes to whom something was posted.
#[derive(Debug, Default)]
pub(in crate::fabric::rdma) struct Silence {
    health: Arc<Health>,
    posted: Mutex<Vec<usize>>,
    /// The first cut takes until something is sent by this.
    hold: Mutex<Option<Receiver<()>>>,
}

impl Transport for Silence {
    type Link = ();

    fn seat(&self, _peer: usize, _link: ()) {}

    fn post(&self, peer: usize, _writes: &[Write]) -> Result<(), Gone> {
        self.posted.lock().expect("no panic").push(peer);
        Ok(())
    }

    fn read(&self, _peer: usize, _what: Write) -> Result<(), Gone> {
        Ok(())
    }

    fn poll(&self) {}

    fn sever(&self, _peer: usize) -> bool {
        let hold = self.hold.lock().expect("no panic").take();
        hold.is_none_or(|hold| hold.recv().is_ok())
    }

    fn health(&self) -> &Arc<Health> {
        &self.health
    }
}

#[repr(align(4096))]
struct Page {
    _words: [AtomicU64; CONTROL_BYTES / size_of::<u64>()],
}

pub(in crate::fabric::rdma) fn memory() -> Memory {
    let page = || Page {
        _words: [const { AtomicU64::new(0) }; CONTROL_BYTES / size_of::<u64>()],
    };
    let pages: Arc<[Page]> = Arc::new([page(), page()]);
    let base = NonNull::from(&*pages).cast();
    // SAFETY: the pages live as long as what is handed over with them, are more than enough and
    // aligned; they are atomics.
    unsafe { Memory::new(base, REGION_BYTES, Arc::new(pages)) }
}

/// A peer, and its end of the line.
fn peer(incarnation: u64) -> (Arc<Peer>, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    let theirs = TcpStream::connect(address).expect("a line");
    let (ours, _) = listener.accept().expect("its other end");
    let line = Line::new(ours).expect("a line");
    (Arc::new(Peer::new(incarnation, REGION_BYTES, line)), theirs)
}

#[test]
fn what_a_former_holder_has_said_is_nothing_to_the_next_one() {
    let inner = Inner::new(0, 2, memory(), Silence::default()).expect("a node");
    // Given a peer that was rung while it was awake,
    let (former, _its_end) = peer(1);
    inner.seat(1, Arc::clone(&former), ());
    assert!(!former.door.ring());
    // and whose seat another one has got,
    inner.evict(1);
    assert!(inner.severed().contains(1));
    let (next, _its_end) = peer(2);
    inner.note_call(
        1,
        Call {
            peer: next,
            link: (),
        },
    );
    assert_eq!(inner.admit(1), Ok(2));
    // when the node is late to hear that the first one sleeps,
    inner.fell_asleep(1, &former);
    // then it rings nobody, and the next one is not taken for down.
    assert!(inner.transport.posted.lock().expect("no panic").is_empty());
    assert!(!inner.health().is_down(1));
}

const MOMENT: Duration = Duration::from_millis(50);

/// Whether somebody cuts off a peer by now.
fn is_cutting(inner: &Inner<Silence>) -> bool {
    inner.transport.hold.lock().expect("no panic").is_none()
}

/// A node with a peer that is down. The first cut takes until something is sent by the answer.
fn node_with_a_slow_cut() -> (Inner<Silence>, TcpStream, mpsc::Sender<()>) {
    let (go_on, hold) = mpsc::channel();
    let transport = Silence {
        hold: Mutex::new(Some(hold)),
        ..Silence::default()
    };
    let inner = Inner::new(0, 2, memory(), transport).expect("a node");
    let (former, its_end) = peer(1);
    inner.seat(1, former, ());
    inner.evict(1);
    (inner, its_end, go_on)
}

#[test]
fn a_cut_by_one_thread_ends_the_sleep_of_another() {
    const LONG: Duration = Duration::from_secs(20);
    let (inner, _its_end, go_on) = node_with_a_slow_cut();
    thread::scope(|scope| {
        // Given a thread that cuts a peer off,
        scope.spawn(|| inner.severed());
        while !is_cutting(&inner) {
            thread::yield_now();
        }
        scope.spawn(|| {
            thread::sleep(MOMENT);
            go_on.send(()).expect("it waits");
        });
        // when another one sleeps until that is done,
        let begin = Instant::now();
        let mut is_cut = || inner.known_severed().contains(1);
        inner.health().bell.sleep(Some(LONG), &mut is_cut);
        // then it wakes.
        assert!(is_cut());
        assert!(begin.elapsed() < LONG);
    });
}

#[test]
fn a_thread_that_is_late_with_a_cut_does_not_cut_off_the_next_holder() {
    let (inner, _its_end, go_on) = node_with_a_slow_cut();
    let (next, _next_end) = peer(2);
    thread::scope(|scope| {
        // Given a thread that is late with a cut,
        scope.spawn(|| inner.severed());
        while !is_cutting(&inner) {
            thread::yield_now();
        }
        // when another one has made it, and gives the seat away,
        assert!(inner.severed().contains(1));
        scope.spawn(|| inner.seat(1, next, ()));
        thread::sleep(MOMENT);
        go_on.send(()).expect("it waits");
    });
    // then who has the seat then is not cut off.
    assert!(!inner.severed().contains(1));
    let holder = inner.holder(1).expect("the next one");
    assert!(holder.line.tell(Note::Sleeps).is_ok());
}
