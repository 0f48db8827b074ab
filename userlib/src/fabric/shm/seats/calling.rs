// SPDX-License-Identifier: MIT OR Apache-2.0

//! The newcomer's part of a meeting: it takes a seat and calls those who are there.

use super::super::frame::{brought, Frame, Kind};
use super::super::memory::Memory;
use super::super::rendezvous::{address, hear, listen, read_by, Failure, MET, RETRY};
use super::attendant::Line;
use super::endpoint::{Inner, Peer};
use crate::fabric::{FabricError, NodeSet};
use std::io::Write;
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
        let vacant = (0..seats).find_map(|seat| ask(name, seat));
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

/// Which seats are empty, if there is a node in this one that says so.
fn ask(name: &str, seat: usize) -> Option<NodeSet> {
    let line = UnixStream::connect_addr(&address(name, seat).ok()?).ok()?;
    let question = Frame::new(Kind::Question);
    question.send(&line, None).ok()?;
    let (answer, _) = hear(&line, Instant::now() + ANSWER_TIME).ok()?;
    (answer.kind == Kind::Vacant).then(|| NodeSet::from_bits(answer.nodes))
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
        for seat in (0..inner.seats()).filter(|&seat| seat != inner.rank) {
            match call(inner, seat) {
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
    let is_missing = |&seat: &usize| {
        let is_known = inner.with_peer(seat, |peer| peer.is_some()) && !down.contains(seat);
        seat != inner.rank && !is_known
    };
    let mut lines = Vec::new();
    for seat in (0..inner.seats()).filter(is_missing) {
        match call(inner, seat) {
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

/// Calls a node, and knows it from then on.
fn call(inner: &Inner, seat: usize) -> Result<Called, Failure> {
    let address = address(&inner.name, seat).map_err(Failure::Other)?;
    let mut line = UnixStream::connect_addr(&address).map_err(|_| Failure::Gone)?;
    let end = Instant::now() + ANSWER_TIME;
    Frame::of(inner, Kind::Call).send(&line, Some(&inner.fd))?;
    let (answer, memory) = hear(&line, end)?;
    if answer.kind != Kind::Answer || answer.rank != seat {
        return Err(Failure::Gone);
    }
    let mut hello = vec![0; answer.hello_bytes];
    read_by(&mut line, &mut hello, end)?;
    if hello != inner.hello {
        return Ok(Called::Stranger(hello));
    }
    let memory = Memory::of_peer(seat, &brought(memory)?, answer.region_bytes);
    let incarnation = answer.incarnation;
    let peer = Peer {
        incarnation,
        memory: memory.map_err(Failure::Other)?,
    };
    // Before the node can admit this one.
    inner.seat(seat, peer);
    line.write_all(&[MET]).map_err(|_| Failure::Gone)?;
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
            nodes: inner.seats() as u64,
            region_bytes: inner.memory.region().len(),
            hello_bytes: inner.hello.len(),
            incarnation: inner.incarnation,
        }
    }
}
