// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines that a newcomer opens to many nodes at once. Nobody is waited for: a process that is
//! stopped keeps each line and answers nothing, so a line to it stays open and the node is not
//! called again; a host that is gone opens none.

use super::super::line::{is_to_itself, keep_alive};
use super::super::speech::RETRY;
use crate::fabric::polling::{has_fired, poll_all};
use crate::fabric::NodeSet;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{connect, socket, AddressFamily, SockFlag, SockType, SockaddrStorage};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// How long a host may take to open a line, before it is tried again.
const CONNECT_TIME: Duration = Duration::from_millis(100);

/// Lines to the nodes of seats, at most one each.
#[derive(Debug)]
pub(super) struct Lines<T> {
    lines: Vec<Dialed<T>>,
    /// When the last ones were begun.
    last: Option<Instant>,
}

#[derive(Debug)]
struct Dialed<T> {
    seat: usize,
    line: TcpStream,
    stage: Stage<T>,
}

#[derive(Debug)]
enum Stage<T> {
    /// It is being opened, since then.
    Opening(Instant),
    /// Something was said, and the node has not answered. Kept with it is what belongs to that.
    Spoken(T),
}

/// Lines that are not waited for any more.
#[derive(Debug)]
pub(super) struct Ready<T> {
    /// These have opened.
    pub(super) opened: Vec<(usize, TcpStream)>,
    /// On these there is an answer, or they have ended.
    pub(super) answered: Vec<(usize, TcpStream, T)>,
}

impl<T> Lines<T> {
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::new(),
            last: None,
        }
    }

    /// Begins to open lines to the nodes of these seats to which there is none. Those that end at
    /// once are not tried again before [`RETRY`] is over.
    pub(super) fn dial(&mut self, seats: NodeSet, addrs: &[SocketAddr]) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < RETRY) {
            return;
        }
        self.last = Some(now);
        self.lines.retain(|dialed| match dialed.stage {
            Stage::Opening(since) => now - since < CONNECT_TIME,
            Stage::Spoken(_) => true,
        });
        let known: NodeSet = self.lines.iter().map(|dialed| dialed.seat).collect();
        for seat in seats.minus(known).iter() {
            if let Some(line) = addrs.get(seat).and_then(open) {
                let stage = Stage::Opening(now);
                self.lines.push(Dialed { seat, line, stage });
            }
        }
    }

    /// Something was said on a line that has opened.
    pub(super) fn put(&mut self, seat: usize, line: TcpStream, said: T) {
        let stage = Stage::Spoken(said);
        self.lines.push(Dialed { seat, line, stage });
    }

    /// Nobody is called any more.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// The events that wake a thread that waits for one of them.
    pub(super) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.lines.iter().map(|dialed| {
            let event = match dialed.stage {
                Stage::Opening(_) => PollFlags::POLLOUT,
                Stage::Spoken(_) => PollFlags::POLLIN,
            };
            PollFd::new(dialed.line.as_fd(), event)
        })
    }

    /// Waits a moment until one has opened, or has an answer.
    pub(super) fn wait(&self) {
        let mut fds: Vec<_> = self.fds().collect();
        let timeout = PollTimeout::try_from(RETRY).unwrap_or(PollTimeout::ZERO);
        // If that fails they are looked at all the same.
        let _ = poll_all(&mut fds, timeout);
    }

    /// Takes out those that have opened, or on which there is an answer. Those that could not be
    /// opened are dropped.
    pub(super) fn take_ready(&mut self) -> Ready<T> {
        let mut fds: Vec<_> = self.fds().collect();
        let is_known = poll_all(&mut fds, PollTimeout::ZERO).is_ok();
        let fired = (0..fds.len()).map(|at| is_known && has_fired(&fds, at));
        let fired: Vec<bool> = fired.collect();
        let mut ready = Ready {
            opened: Vec::new(),
            answered: Vec::new(),
        };
        for (dialed, fired) in std::mem::take(&mut self.lines).into_iter().zip(fired) {
            let Dialed { seat, line, stage } = dialed;
            match stage {
                _ if !fired => self.lines.push(Dialed { seat, line, stage }),
                Stage::Spoken(said) => ready.answered.push((seat, line, said)),
                Stage::Opening(_) if is_open(&line) => ready.opened.push((seat, line)),
                Stage::Opening(_) => {}
            }
        }
        ready
    }
}

/// Begins to open a line.
fn open(addr: &SocketAddr) -> Option<TcpStream> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let line = socket(family, SockType::Stream, flags, None).ok()?;
    match connect(line.as_raw_fd(), &SockaddrStorage::from(*addr)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Some(TcpStream::from(line)),
        Err(_) => None,
    }
}

/// Whether a line has opened, and can be spoken on. If the host goes later, the line ends.
fn is_open(line: &TcpStream) -> bool {
    matches!(line.take_error(), Ok(None))
        && !is_to_itself(line)
        && line.set_nonblocking(false).is_ok()
        && keep_alive(line).is_ok()
}
