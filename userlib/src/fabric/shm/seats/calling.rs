// SPDX-License-Identifier: MIT OR Apache-2.0

//! The newcomer's part of a meeting: it takes a seat and calls those who are there.

use super::super::frame::{brought, Frame, Kind};
use super::super::rendezvous::{dial, hear, listen, read_by, tell_met, Failure, RETRY};
use super::attendant::Line;
use super::inner::{Inner, Peer};
use crate::fabric::polling::{has_fired, poll_all};
use crate::fabric::{FabricError, NodeSet};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long the rest of an answer may take whose beginning is there.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// Takes the lowest seat of which a node says that it is empty.
pub(super) fn take_seat(
    name: &str,
    seats: usize,
    end: Instant,
) -> Result<(usize, UnixListener), FabricError> {
    let mut somebody = false;
    let mut asked = Vec::new();
    loop {
        ask(name, seats, &mut asked);
        let vacant = hear_vacant(&mut asked);
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

/// A line to the node of a seat, which has not answered yet.
type Asked = (usize, UnixStream);

/// Asks the nodes which seats are empty. One that has not answered is not asked again: it may be
/// stopped, and keeps all lines that are opened to it.
fn ask(name: &str, seats: usize, asked: &mut Vec<Asked>) {
    for seat in 0..seats {
        if asked.iter().all(|other| other.0 != seat) {
            asked.extend(question(name, seat).map(|line| (seat, line)));
        }
    }
}

fn question(name: &str, seat: usize) -> Option<UnixStream> {
    let line = dial(name, seat)?;
    Frame::new(Kind::Question).send(&line, None).ok()?;
    Some(line)
}

/// The seats that are empty, as a node says, if one answers in a moment.
fn hear_vacant(asked: &mut Vec<Asked>) -> Option<NodeSet> {
    let mut vacant = None;
    for at in answered(asked.iter().map(|asked| &asked.1))
        .into_iter()
        .rev()
    {
        let (_, line) = asked.swap_remove(at);
        match hear(&line, Instant::now() + ANSWER_TIME) {
            Ok((answer, _)) if answer.kind == Kind::Vacant => {
                vacant = Some(NodeSet::from_bits(answer.nodes));
            }
            // A newcomer itself, or one that goes.
            _ => {}
        }
    }
    vacant
}

/// Waits a moment until some have answered, or have ended: which, in order.
fn answered<'a>(lines: impl Iterator<Item = &'a UnixStream>) -> Vec<usize> {
    let fds = lines.map(|line| PollFd::new(line.as_fd(), PollFlags::POLLIN));
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    let timeout = PollTimeout::try_from(RETRY).unwrap_or(PollTimeout::ZERO);
    match poll_all(&mut fds, timeout) {
        Ok(()) => (0..fds.len()).filter(|&at| has_fired(&fds, at)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Calls all who are there, until one at least has answered. The attendant hears the others.
pub(super) fn call_first(
    inner: &Inner,
    end: Instant,
    hellos: &mut [Vec<u8>],
) -> Result<(Vec<Line>, NodeSet), FabricError> {
    let mut called: Vec<Asked> = Vec::new();
    loop {
        let missing = |seat: usize| called.iter().all(|called| called.0 != seat);
        let new = call(inner, missing);
        called.extend(new);
        let mut lines = Vec::new();
        let mut met = NodeSet::EMPTY;
        for at in answered(called.iter().map(|called| &called.1))
            .into_iter()
            .rev()
        {
            let (seat, line) = called.swap_remove(at);
            match hear_answer(inner, seat, &line) {
                Ok(Called::Peer { incarnation }) => {
                    lines.push(Line::met(seat, incarnation, line));
                    hellos[seat].clone_from(&inner.hello);
                }
                Ok(Called::Stranger(hello)) => hellos[seat] = hello,
                Err(Failure::Late | Failure::Gone) => continue,
                Err(Failure::Other(error)) => return Err(error),
            }
            met = met.with(seat);
        }
        if !met.is_empty() {
            let unanswered = called.into_iter();
            lines.extend(unanswered.map(|(seat, line)| Line::calling(seat, line)));
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

/// Calls those who are there by now, but for those who have been and have not answered. For a
/// newcomer that waits to be taken in.
pub(super) fn call_others(inner: &Inner, called: NodeSet) -> impl Iterator<Item = Line> {
    let known = inner.held().minus(inner.down()).union(called);
    let called = call(inner, |seat| !known.contains(seat));
    called
        .into_iter()
        .map(|(seat, line)| Line::calling(seat, line))
}

/// How a node has answered.
pub(super) enum Called {
    Peer {
        incarnation: u64,
    },
    /// It has other settings, which are these.
    Stranger(Vec<u8>),
}

/// Calls those that are there.
fn call(inner: &Inner, whom: impl Fn(usize) -> bool) -> Vec<Asked> {
    let seats = (0..inner.seats()).filter(|&seat| seat != inner.rank && whom(seat));
    let called = seats.filter_map(|seat| {
        let line = dial(&inner.name, seat)?;
        let call = Frame::of(inner, Kind::Call);
        call.send(&line, Some(&inner.fd)).ok()?;
        Some((seat, line))
    });
    called.collect()
}

/// Takes the answer of a node, of which something is there, and knows it from then on. That one is
/// told only then: when it admits this node, others may name it in a view, and this node posts
/// to it.
pub(super) fn hear_answer(
    inner: &Inner,
    seat: usize,
    line: &UnixStream,
) -> Result<Called, Failure> {
    let end = Instant::now() + ANSWER_TIME;
    let (answer, memory) = hear(line, end)?;
    if answer.kind != Kind::Answer || answer.rank != seat {
        return Err(Failure::Gone);
    }
    let mut hello = vec![0; answer.hello_bytes];
    read_by(line, &mut hello, end)?;
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
    if tell_met(line).is_err() {
        // It is called again.
        inner.note_end(seat, incarnation);
        return Err(Failure::Gone);
    }
    Ok(Called::Peer { incarnation })
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
