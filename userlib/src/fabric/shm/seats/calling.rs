// SPDX-License-Identifier: MIT OR Apache-2.0

//! The newcomer's part of a meeting: it takes a seat and calls those who are there.

use super::super::frame::{brought, Frame, Kind};
use super::super::rendezvous::{address, hear, listen, read_by, tell_met, Failure, RETRY};
use super::attendant::Line;
use super::inner::{Inner, Peer};
use crate::fabric::{FabricError, NodeSet};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long one node is waited for: another one may answer.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// Takes the lowest seat of which a node says that it is empty.
pub(super) fn take_seat(
    name: &str,
    seats: usize,
    end: Instant,
) -> Result<(usize, UnixListener), FabricError> {
    let mut somebody = false;
    loop {
        let vacant = ask(name, seats);
        somebody |= vacant.is_some();
        for seat in vacant
            .unwrap_or_default()
            .iter()
            .filter(|&seat| seat < seats)
        {
            match listen(name, seat) {
                Ok(listener) => return Ok((seat, listener)),
                // Another newcomer was faster, or who had the seat is put out, but still runs.
                Err(FabricError::RankTaken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= end {
            return Err(match somebody {
                true => FabricError::NoSeat {
                    name: name.to_owned(),
                    seats,
                },
                false => FabricError::Timeout {
                    missing: (0..seats).collect(),
                },
            });
        }
        std::thread::sleep(RETRY);
    }
}

/// Takes a seat as soon as nobody else has it.
pub(super) fn take_that_seat(
    name: &str,
    seat: usize,
    end: Instant,
) -> Result<UnixListener, FabricError> {
    loop {
        match listen(name, seat) {
            Err(FabricError::RankTaken { .. }) if Instant::now() < end => std::thread::sleep(RETRY),
            answer => return answer,
        }
    }
}

/// Which seats are empty, as the node says that answers first, if one does.
fn ask(name: &str, seats: usize) -> Option<NodeSet> {
    let end = Instant::now() + ANSWER_TIME;
    let mut asked: Vec<UnixStream> = (0..seats).filter_map(|seat| question(name, seat)).collect();
    while !asked.is_empty() && Instant::now() < end {
        for at in answered(&asked).into_iter().rev() {
            let line = asked.swap_remove(at);
            match hear(&line, end) {
                Ok((answer, _)) if answer.kind == Kind::Vacant => {
                    return Some(NodeSet::from_bits(answer.nodes));
                }
                // A newcomer itself, or one that goes.
                _ => {}
            }
        }
    }
    None
}

fn question(name: &str, seat: usize) -> Option<UnixStream> {
    let line = UnixStream::connect_addr(&address(name, seat).ok()?).ok()?;
    Frame::new(Kind::Question).send(&line, None).ok()?;
    Some(line)
}

/// Waits a moment until some have answered, or have ended: which, in order.
fn answered(lines: &[UnixStream]) -> Vec<usize> {
    let fds = lines
        .iter()
        .map(|line| PollFd::new(line.as_fd(), PollFlags::POLLIN));
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    let timeout = PollTimeout::try_from(RETRY).unwrap_or(PollTimeout::ZERO);
    match poll(&mut fds, timeout) {
        Ok(_) => {
            let fired = |at: &usize| fds[*at].any().unwrap_or(true);
            (0..fds.len()).filter(fired).collect()
        }
        Err(_) => Vec::new(),
    }
}

/// Calls all who are there, until one at least has answered.
pub(super) fn call_first(
    inner: &Inner,
    end: Instant,
    hellos: &mut [Vec<u8>],
) -> Result<(Vec<Line>, NodeSet), FabricError> {
    loop {
        let mut lines = Vec::new();
        let mut met = NodeSet::EMPTY;
        for (seat, line) in call(inner, |_| true) {
            match hear_answer(inner, seat, line) {
                Ok(Called::Peer(line)) => lines.push(line),
                Ok(Called::Stranger(hello)) => hellos[seat] = hello,
                Err(Failure::Late | Failure::Gone) => continue,
                Err(Failure::Other(error)) => return Err(error),
            }
            met = met.with(seat);
            if hellos[seat].is_empty() {
                hellos[seat].clone_from(&inner.hello);
            }
        }
        if !met.is_empty() {
            return Ok((lines, met));
        }
        if Instant::now() >= end {
            let missing = (0..inner.seats()).filter(|&seat| seat != inner.rank);
            return Err(FabricError::Timeout {
                missing: missing.collect(),
            });
        }
        std::thread::sleep(RETRY);
    }
}

/// Calls those who are there by now. For a newcomer that waits to be taken in.
pub(super) fn call_others(inner: &Inner) -> Vec<Line> {
    let down = inner.down();
    let is_missing = |seat: usize| !inner.held().contains(seat) || down.contains(seat);
    let mut lines = Vec::new();
    for (seat, line) in call(inner, is_missing) {
        match hear_answer(inner, seat, line) {
            Ok(Called::Peer(line)) => lines.push(line),
            Ok(Called::Stranger(_)) => tracing::warn!(seat, "has other settings"),
            // It will be tried again.
            Err(_) => {}
        }
    }
    lines
}

enum Called {
    Peer(Line),
    /// It has other settings, which are these.
    Stranger(Vec<u8>),
}

/// Calls those that are there, all before one of them has answered: each has to wake for it.
fn call(inner: &Inner, whom: impl Fn(usize) -> bool) -> Vec<(usize, UnixStream)> {
    let seats = (0..inner.seats()).filter(|&seat| seat != inner.rank && whom(seat));
    let called = seats.filter_map(|seat| {
        let address = address(&inner.name, seat).ok()?;
        let line = UnixStream::connect_addr(&address).ok()?;
        let call = Frame::of(inner, Kind::Call);
        call.send(&line, Some(&inner.fd)).ok()?;
        Some((seat, line))
    });
    called.collect()
}

/// Waits for the answer of a node, and knows it from then on. That one is told only then: when
/// it admits this node, others may name it in a view, and this node posts to it.
fn hear_answer(inner: &Inner, seat: usize, mut line: UnixStream) -> Result<Called, Failure> {
    let end = Instant::now() + ANSWER_TIME;
    let (answer, memory) = hear(&line, end)?;
    if answer.kind != Kind::Answer || answer.rank != seat {
        return Err(Failure::Gone);
    }
    let mut hello = vec![0; answer.hello_bytes];
    read_by(&mut line, &mut hello, end)?;
    if hello != inner.hello {
        return Ok(Called::Stranger(hello));
    }
    let memory = brought(memory)?;
    let checked = inner.check(seat, &memory, answer.region_bytes);
    checked.map_err(Failure::Other)?;
    let incarnation = answer.incarnation;
    let peer = Peer {
        incarnation,
        memory,
    };
    inner.seat(seat, &peer).map_err(Failure::Other)?;
    if tell_met(&line).is_err() {
        // It is called again.
        inner.note_end(seat, incarnation);
        return Err(Failure::Gone);
    }
    Ok(Called::Peer(Line::met(seat, incarnation, line)))
}

impl Frame {
    /// One that says nothing of its sender.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            rank: 0,
            nodes: 0,
            region_bytes: 0,
            hello_bytes: 0,
            incarnation: 0,
        }
    }

    /// Who a node is.
    pub(super) fn of(inner: &Inner, kind: Kind) -> Self {
        Self {
            kind,
            rank: inner.rank,
            nodes: inner.settings,
            region_bytes: inner.memory.region().len(),
            hello_bytes: inner.hello.len(),
            incarnation: inner.incarnation,
        }
    }
}
