// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attendant: a thread that answers newcomers, and notices whose line has ended. It never
//! waits for one of them, so that a newcomer that hangs delays nobody. At a newcomer it also
//! calls those who are there, until that one is in: each once, until it has answered or the line
//! has ended, because a process that is stopped keeps each line, and the memory in it.

use super::super::frame::{brought, Frame, Kind};
use super::super::rendezvous::{has_met, is_own_user, Failure, RETRY};
use super::calling::{self, Called};
use super::inner::{Call, Inner, Peer};
use crate::fabric::polling::{has_fired, wait_or_stop};
use crate::fabric::thread::Thread;
use crate::fabric::{FabricError, MAX_NODES};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

/// Connections that have not led to anything yet, at most.
const MAX_STRANGERS: usize = 2 * MAX_NODES;
/// Connections that are taken in at once, so that however many call, the thread sees when it is
/// to stop and who has gone.
const MAX_ACCEPTS: usize = 16;

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Nothing has been said.
    Opened,
    /// This newcomer has called the node of that seat, which has not answered.
    Calling { seat: usize },
    /// A newcomer has called, and was answered. It cannot post to this node before it has heard
    /// that, and says so then.
    Called { seat: usize, peer: Peer },
    /// The two know each other: silent from now on, and it ends when that one has gone.
    Met { seat: usize, incarnation: u64 },
}

impl Line {
    pub(super) fn met(seat: usize, incarnation: u64, stream: UnixStream) -> Self {
        Self {
            stream,
            stage: Stage::Met { seat, incarnation },
        }
    }

    pub(super) fn calling(seat: usize, stream: UnixStream) -> Self {
        Self {
            stream,
            stage: Stage::Calling { seat },
        }
    }

    /// The seat that this newcomer has called, if the node there has not answered.
    fn called(&self) -> Option<usize> {
        match self.stage {
            Stage::Calling { seat } => Some(seat),
            _ => None,
        }
    }

    /// Whether it may come to nothing.
    fn is_strangers(&self) -> bool {
        matches!(self.stage, Stage::Opened | Stage::Called { .. })
    }

    /// Something was said, or it has ended; answers with the line if it goes on.
    fn hear(mut self, inner: &Inner) -> Option<Self> {
        self.stage = match self.stage {
            Stage::Opened => first_word(&self.stream, inner).ok().flatten()?,
            Stage::Calling { seat } => answer(&self.stream, inner, seat)?,
            Stage::Called { seat, peer } => last_word(&self.stream, inner, seat, peer)?,
            Stage::Met { seat, incarnation } => {
                // Nobody speaks any more: anything is its end.
                tracing::debug!(seat, incarnation, "node is down");
                inner.note_end(seat, incarnation);
                return None;
            }
        };
        Some(self)
    }
}

/// Answers who has opened a line, if that is possible at once.
fn first_word(mut line: &UnixStream, inner: &Inner) -> Result<Option<Stage>, Failure> {
    let (frame, memory) = Frame::receive(line)?;
    if !inner.is_settled() {
        // The newcomer will try again.
        return Ok(None);
    }
    match frame.kind {
        Kind::Question => {
            let mut answer = Frame::new(Kind::Vacant);
            answer.nodes = inner.vacant().bits();
            answer.send(line, None)?;
            Ok(None)
        }
        Kind::Call if frame.rank < inner.seats() && frame.rank != inner.rank => {
            Frame::of(inner, Kind::Answer).send(line, Some(&inner.fd))?;
            // A line that is new takes that many bytes at once (`MAX_HELLO_BYTES`).
            line.write_all(&inner.hello).map_err(|_| Failure::Gone)?;
            if frame.nodes != inner.settings {
                // It sees in the answer what is different.
                return Ok(None);
            }
            let seat = frame.rank;
            let memory = brought(memory)?;
            let checked = inner.check(seat, &memory, frame.region_bytes);
            checked.map_err(Failure::Other)?;
            let peer = Peer {
                incarnation: frame.incarnation,
                memory,
            };
            Ok(Some(Stage::Called { seat, peer }))
        }
        _ => Ok(None),
    }
}

/// The node that this newcomer has called has answered, or has gone: it is called again then.
fn answer(line: &UnixStream, inner: &Inner, seat: usize) -> Option<Stage> {
    match calling::hear_answer(inner, seat, line).ok()? {
        Called::Peer { incarnation } => Some(Stage::Met { seat, incarnation }),
        Called::Stranger(_) => {
            tracing::warn!(seat, "has other settings");
            None
        }
    }
}

/// The newcomer has heard the answer, so that it may be admitted; or it has gone.
fn last_word(line: &UnixStream, inner: &Inner, seat: usize, peer: Peer) -> Option<Stage> {
    if !has_met(line) {
        return None;
    }
    let incarnation = peer.incarnation;
    let line = line.try_clone().ok()?;
    let is_new = inner.note_call(seat, Call { peer, line });
    tracing::debug!(seat, incarnation, is_new, "has called");
    is_new.then_some(Stage::Met { seat, incarnation })
}

/// Starts the thread, which goes on with these lines.
pub(super) fn start(
    inner: Arc<Inner>,
    listener: UnixListener,
    lines: Vec<Line>,
) -> Result<Thread, FabricError> {
    Thread::start("weft-attendant", move |stop| {
        attend(&inner, &listener, lines, stop);
    })
}

fn attend(inner: &Inner, listener: &UnixListener, mut lines: Vec<Line>, stop: &EventFd) {
    loop {
        let mut timeout = PollTimeout::NONE;
        if inner.is_settled() {
            lines.retain(|line| line.called().is_none());
        } else {
            let called = lines.iter().filter_map(Line::called).collect();
            lines.extend(calling::call_others(inner, called));
            timeout = PollTimeout::try_from(RETRY).unwrap_or(PollTimeout::ZERO);
        }
        let Some(fired) = wait(listener, &lines, stop, timeout) else {
            return;
        };
        let heard = fired.lines.iter().any(|&fired| fired);
        let mut left = Vec::with_capacity(lines.len() + 1);
        for (at, line) in lines.into_iter().enumerate() {
            match fired.lines.get(at) == Some(&true) {
                true => left.extend(line.hear(inner)),
                false => left.push(line),
            }
        }
        lines = left;
        if fired.listener {
            accept(listener, &mut lines);
        }
        if heard {
            inner.memory.bell().ring();
        }
    }
}

/// Who has something to say.
struct Fired {
    listener: bool,
    lines: Vec<bool>,
}

/// Waits until somebody has. None at the end.
fn wait(
    listener: &UnixListener,
    lines: &[Line],
    stop: &EventFd,
    timeout: PollTimeout,
) -> Option<Fired> {
    let others = [stop.as_fd(), listener.as_fd()].into_iter();
    let all = others.chain(lines.iter().map(|line| line.stream.as_fd()));
    let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    if wait_or_stop(&mut fds, timeout, stop) {
        return None;
    }
    Some(Fired {
        listener: has_fired(&fds, 1),
        lines: (2..fds.len()).map(|at| has_fired(&fds, at)).collect(),
    })
}

/// Takes in some who have connected; others are there in the next round. Strangers beyond the
/// limit make room for later ones.
fn accept(listener: &UnixListener, lines: &mut Vec<Line>) {
    for _ in 0..MAX_ACCEPTS {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => {
                tracing::warn!(%error, "a newcomer cannot be heard");
                // It stays there: without descriptors, as an example, for some time.
                std::thread::sleep(RETRY);
                return;
            }
        };
        if !is_own_user(&stream) || stream.set_nonblocking(true).is_err() {
            continue;
        }
        if lines.iter().filter(|line| line.is_strangers()).count() >= MAX_STRANGERS {
            if let Some(oldest) = lines.iter().position(Line::is_strangers) {
                drop(lines.remove(oldest));
            }
        }
        lines.push(Line {
            stream,
            stage: Stage::Opened,
        });
    }
}
