// SPDX-License-Identifier: MIT OR Apache-2.0

//! The thread that listens to the lines: it answers announcements, passes rings
//! on, and notices deaths. It sleeps until a peer says something, so an idle
//! node runs nothing.

use super::endpoint::Inner;
use super::line::{Line, Note, Notes};
use super::Transport;
use crate::fabric::FabricError;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Rounds in which a ring whose count has not arrived is looked for at once;
/// later ones wait a moment in between. It is on its way, so most need none.
const EAGER_ROUNDS: u32 = 200;
const LAZY_WAIT_MS: u16 = 1;

/// The listening thread. Ends on drop.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start<T: Transport>(inner: Arc<Inner<T>>) -> Result<Self, FabricError> {
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)
            .map_err(|errno| FabricError::system("eventfd", errno))?;
        let stop = Arc::new(stop);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weft-watch".to_owned())
            .spawn(move || Listener::new(&inner).run(&stopped))
            .map_err(|error| FabricError::io("clone", &error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The counter cannot overflow by one; and if it could not be written,
        // joining would hang.
        if self.stop.write(1).is_ok() {
            if let Some(thread) = self.thread.take() {
                // A panic there has been printed; there is nothing to undo.
                let _ = thread.join();
            }
        }
    }
}

/// A peer that is listened to.
struct Heard<'a> {
    rank: usize,
    line: &'a Line,
    notes: Notes,
    /// The count of a ring that was announced and has not arrived.
    expected: Option<u64>,
}

struct Listener<'a, T> {
    inner: &'a Inner<T>,
    peers: Vec<Heard<'a>>,
    /// Rounds since a ring has been expected.
    rounds: u32,
}

impl<'a, T: Transport> Listener<'a, T> {
    fn new(inner: &'a Inner<T>) -> Self {
        let heard = |(rank, line)| Heard {
            rank,
            line,
            notes: Notes::default(),
            expected: None,
        };
        Self {
            inner,
            peers: inner.lines().map(heard).collect(),
            rounds: 0,
        }
    }

    fn run(&mut self, stop: &EventFd) {
        loop {
            match self.wait(stop) {
                Ok(true) => return,
                Ok(false) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    tracing::error!(%errno, "deaths of peers are no longer noticed");
                    return;
                }
            }
            let inner = self.inner;
            self.peers.retain_mut(|peer| {
                let lives = peer.listen(inner) && !inner.health().is_down(peer.rank);
                if !lives {
                    inner.health().mark_down(peer.rank, "its line has ended");
                }
                lives
            });
        }
    }

    /// Waits until there is something to hear or to look for. Answers whether
    /// it is the end.
    fn wait(&mut self, stop: &EventFd) -> Result<bool, Errno> {
        let expects = self.peers.iter().any(|peer| peer.expected.is_some());
        self.rounds = if expects { self.rounds + 1 } else { 0 };
        let timeout = match self.rounds {
            0 => PollTimeout::NONE,
            1..EAGER_ROUNDS => PollTimeout::ZERO,
            _ => PollTimeout::from(LAZY_WAIT_MS),
        };
        if self.rounds > 1 {
            std::thread::yield_now();
        }
        let mut fds: Vec<PollFd<'_>> = self
            .peers
            .iter()
            .map(|peer| PollFd::new(peer.line.as_fd(), PollFlags::POLLIN))
            .collect();
        fds.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
        poll(&mut fds, timeout)?;
        Ok(fds.last().and_then(PollFd::any).unwrap_or(true))
    }
}

impl Heard<'_> {
    /// Takes what the peer has said. Answers whether it lives.
    fn listen<T: Transport>(&mut self, inner: &Inner<T>) -> bool {
        loop {
            match self.notes.next(self.line) {
                Ok(None) => break,
                Ok(Some(Note::Sleeps)) => inner.fell_asleep(self.rank),
                Ok(Some(Note::Rings(count))) => self.expected = Some(count),
                Err(_) => return false,
            }
        }
        if self
            .expected
            .is_some_and(|count| inner.has_rung(self.rank, count))
        {
            self.expected = None;
            inner.rang(self.rank);
        }
        true
    }
}
