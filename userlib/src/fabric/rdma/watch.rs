// SPDX-License-Identifier: MIT OR Apache-2.0

//! The thread that listens to the lines: it answers announcements, passes rings
//! on, and notices deaths. It sleeps until a peer says something, so an idle
//! node runs nothing.

use super::inner::{Inner, Peer};
use super::line::{Note, Notes};
use super::Transport;
use crate::fabric::polling::{has_fired, wait_or_stop};
use crate::fabric::thread::Thread;
use crate::fabric::FabricError;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Rounds in which a ring whose count has not arrived is looked for at once;
/// later ones wait a moment in between. It is on its way, so most need none.
const EAGER_ROUNDS: u32 = 200;
const LAZY_WAIT_MS: u16 = 1;

/// Starts the thread.
pub(super) fn start<T: Transport>(inner: Arc<Inner<T>>) -> Result<Thread, FabricError> {
    Thread::start("weft-watch", move |stop| {
        let mut listener = Listener {
            inner: &inner,
            peers: Vec::new(),
            rounds: 0,
        };
        listener.run(stop);
    })
}

/// A peer that is listened to.
struct Heard {
    rank: usize,
    peer: Arc<Peer>,
    notes: Notes,
    /// The count of a ring that was announced and has not arrived.
    expected: Option<u64>,
    /// Its line has ended.
    is_over: bool,
}

struct Listener<'a, T: Transport> {
    inner: &'a Inner<T>,
    peers: Vec<Heard>,
    /// Rounds since a ring has been expected.
    rounds: u32,
}

/// For what the thread has woken.
enum Woken {
    End,
    /// There are others to listen to.
    OtherLines,
    Lines,
}

impl<T: Transport> Listener<'_, T> {
    fn run(&mut self, stop: &EventFd) {
        self.look_for_lines();
        loop {
            match self.wait(stop) {
                Woken::End => return,
                Woken::OtherLines => {
                    // Before the lines are looked at: what is written later wakes again.
                    let _ = self.inner.relisten.read();
                    self.look_for_lines();
                }
                Woken::Lines => {}
            }
            for heard in self.peers.iter_mut().filter(|heard| !heard.is_over) {
                if !heard.listen(self.inner) {
                    heard.is_over = true;
                    self.inner.note_end(heard.rank, &heard.peer);
                }
            }
        }
    }

    /// Some have come or gone.
    fn look_for_lines(&mut self) {
        let known = std::mem::take(&mut self.peers);
        let mut known: Vec<Option<Heard>> = known.into_iter().map(Some).collect();
        for (rank, peer) in self.inner.all_lines() {
            let is_it = |heard: &Option<Heard>| {
                let heard = heard.as_ref();
                heard.is_some_and(|heard| Arc::ptr_eq(&heard.peer, &peer))
            };
            let old = known.iter().position(is_it).and_then(|at| known[at].take());
            self.peers.push(old.unwrap_or(Heard {
                rank,
                peer,
                notes: Notes::default(),
                expected: None,
                is_over: false,
            }));
        }
    }

    /// Waits until there is something to hear or to look for.
    fn wait(&mut self, stop: &EventFd) -> Woken {
        let listened = || self.peers.iter().filter(|heard| !heard.is_over);
        let expects = listened().any(|heard| heard.expected.is_some());
        let rounds = if expects { self.rounds + 1 } else { 0 };
        let timeout = match rounds {
            0 => PollTimeout::NONE,
            1..EAGER_ROUNDS => PollTimeout::ZERO,
            _ => PollTimeout::from(LAZY_WAIT_MS),
        };
        if rounds > 1 {
            std::thread::yield_now();
        }
        let events = [stop.as_fd(), self.inner.relisten.as_fd()].into_iter();
        let all = events.chain(listened().map(|heard| heard.peer.line.as_fd()));
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let woken = match wait_or_stop(&mut fds, timeout, stop) {
            true => Woken::End,
            false if has_fired(&fds, 1) => Woken::OtherLines,
            false => Woken::Lines,
        };
        self.rounds = rounds;
        woken
    }
}

impl Heard {
    /// Takes what the peer has said. Answers whether it lives.
    fn listen<T: Transport>(&mut self, inner: &Inner<T>) -> bool {
        loop {
            match self.notes.next(&self.peer.line) {
                Ok(None) => break,
                Ok(Some(Note::Sleeps)) => inner.fell_asleep(self.rank, &self.peer),
                Ok(Some(Note::Rings(count))) => self.expected = Some(count),
                Err(_) => return false,
            }
        }
        if self
            .expected
            .is_some_and(|count| inner.has_rung(self.rank, count))
        {
            self.expected = None;
            inner.rang(&self.peer);
        }
        true
    }
}
