// SPDX-License-Identifier: MIT OR Apache-2.0

//! The newcomer's part: it takes a seat and calls those who are there.

use super::super::frame::{Frame, Purpose};
use super::super::inner::Peer;
use super::super::line::Line;
use super::super::place::Place;
use super::super::speech::{hear_frame, hear_rest, Failure, Node, RETRY};
use super::super::Linker;
use super::lines::{Lines, Ready};
use super::reception::Reception;
use crate::fabric::{FabricError, NodeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the rest of an answer may take whose beginning is there. Another node may have answered
/// meanwhile, which waits a second.
const ANSWER_TIME: Duration = Duration::from_millis(500);

/// Takes the lowest seat of which a node says that it is empty, and whose address is of this
/// host.
pub(super) fn take_seat(
    addrs: &[SocketAddr],
    kind: u8,
    end: Instant,
) -> Result<(Place, TcpListener), FabricError> {
    // Looks whether the addresses can be those of seats.
    let first = Place::new(0, addrs)?;
    let mut was_answered = false;
    let mut asked = Lines::new();
    loop {
        let vacant = ask(&first, kind, &mut asked);
        was_answered |= vacant.is_some();
        for seat in vacant.unwrap_or_default().iter() {
            let Ok(place) = Place::new(seat, addrs) else {
                continue;
            };
            match place.listen() {
                Ok(listener) => return Ok((place, listener)),
                // Another newcomer was faster, or who had the seat is put out, but still runs;
                // or it is for another host.
                Err(FabricError::RankTaken { .. } | FabricError::NotHere(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= end {
            return Err(match was_answered {
                true => FabricError::NoSeat {
                    name: first.own().to_string(),
                    seats: addrs.len(),
                },
                false => FabricError::Timeout {
                    missing: (0..addrs.len()).collect(),
                },
            });
        }
        asked.wait();
    }
}

/// Takes a seat as soon as nobody else listens at its address.
pub(super) fn take_that_seat(place: &Place, end: Instant) -> Result<TcpListener, FabricError> {
    loop {
        match place.listen() {
            Err(FabricError::RankTaken { .. }) if Instant::now() < end => std::thread::sleep(RETRY),
            answer => return answer,
        }
    }
}

/// Asks the nodes which seats are empty, but for those that have not answered yet. Answers as one
/// of them says, if one has by now.
fn ask(place: &Place, kind: u8, asked: &mut Lines<()>) -> Option<NodeSet> {
    asked.dial((0..place.seats()).collect(), &place.addrs);
    let Ready { opened, answered } = asked.take_ready();
    for (seat, mut line) in opened {
        let question = Frame {
            purpose: Purpose::Question,
            kind,
            rank: 0,
            nodes: place.seats() as u64,
            region_bytes: 0,
            card_bytes: 0,
            hello_bytes: 0,
            incarnation: 0,
        };
        if Node::say(&mut line, question).is_ok() {
            asked.put(seat, line, ());
        }
    }
    answered.into_iter().find_map(|(_, mut line, ())| {
        let answer = hear_frame(&mut line, Instant::now() + ANSWER_TIME).ok()?;
        let is_answer = answer.purpose == Purpose::Vacant && answer.kind == kind;
        is_answer.then(|| NodeSet::from_bits(answer.nodes))
    })
}

/// Who was called.
enum Called {
    /// The two are linked.
    Peer,
    /// It has other settings, which are these.
    Stranger(Vec<u8>),
}

impl<L: Linker> Reception<L> {
    /// Calls all who are there, until one at least has answered. Answers with who has. The
    /// reception hears the others.
    pub(super) fn call_first(
        &mut self,
        hellos: &mut [Vec<u8>],
        end: Instant,
    ) -> Result<NodeSet, FabricError> {
        let others: NodeSet = self.node.place.others().collect();
        loop {
            let mut met = NodeSet::EMPTY;
            for (seat, line, offer) in self.call(others)? {
                match self.hear_answer(seat, line, offer) {
                    Ok(Called::Peer) => hellos[seat].clone_from(&self.node.hello),
                    Ok(Called::Stranger(hello)) => hellos[seat] = hello,
                    Err(Failure::Late | Failure::Gone) => continue,
                    Err(Failure::Other(error)) => return Err(error),
                }
                met = met.with(seat);
            }
            if !met.is_empty() {
                return Ok(met);
            }
            if Instant::now() >= end {
                return Err(FabricError::Timeout { missing: others });
            }
            self.called.wait();
        }
    }

    /// Calls those who are there by now, and hears those who have answered. For a newcomer that
    /// waits to be taken in.
    pub(super) fn call_others(&mut self) {
        let missing = self.inner.vacant();
        let answered = match self.call(missing) {
            Ok(answered) => answered,
            Err(error) => return tracing::warn!(%error, "nobody can be called"),
        };
        for (seat, line, offer) in answered {
            match self.hear_answer(seat, line, offer) {
                Ok(Called::Peer) => {}
                Ok(Called::Stranger(_)) => tracing::warn!(seat, "has other settings"),
                // It will be tried again.
                Err(failure) => tracing::debug!(seat, ?failure, "does not answer"),
            }
        }
    }

    /// Calls those of the seats that are there, but for those that have not answered yet. All
    /// that this node does by itself comes before it speaks to anybody: who is spoken to wakes,
    /// and may take its processor. Answers with the lines of who has answered by now.
    fn call(&mut self, seats: NodeSet) -> Result<Vec<(usize, TcpStream, L::Offer)>, FabricError> {
        self.called.dial(seats, &self.node.place.addrs);
        let Ready { opened, answered } = self.called.take_ready();
        let offers = opened.iter().map(|_| self.linker.offer());
        let offers = offers.collect::<Result<Vec<_>, _>>()?;
        let seats = self.node.place.seats() as u64;
        let frame = self.node.frame(Purpose::Call, seats);
        for ((seat, mut line), offer) in opened.into_iter().zip(offers) {
            let card = self.linker.card(&offer);
            if self.node.introduce(&mut line, frame, &card).is_ok() {
                self.called.put(seat, line, offer);
            }
        }
        Ok(answered)
    }

    /// Hears the answer of a node, of which something is there, links to it, and tells it so.
    fn hear_answer(
        &self,
        seat: usize,
        mut line: TcpStream,
        offer: L::Offer,
    ) -> Result<Called, Failure> {
        let end = Instant::now() + ANSWER_TIME;
        let frame = hear_frame(&mut line, end)?;
        if frame.purpose != Purpose::Answer || frame.rank != seat {
            return Err(Failure::Gone);
        }
        let answer = hear_rest(&mut line, &frame, end)?;
        if answer.hello != self.node.hello {
            return Ok(Called::Stranger(answer.hello));
        }
        self.check(&frame).map_err(Failure::Other)?;
        let link = self.linker.link(seat, offer, &answer.card);
        let link = link.map_err(Failure::Other)?;
        let line = Line::new(line).map_err(Failure::Other)?;
        let peer = Peer::unready(frame.incarnation, frame.region_bytes, line);
        let peer = Arc::new(peer);
        self.inner.seat(seat, Arc::clone(&peer), link);
        // Behind that: when it admits this node, others may name it in a view, and this node
        // posts to it.
        if self.inner.say_ready(&peer).is_err() {
            self.inner.note_end(seat, &peer);
            return Err(Failure::Gone);
        }
        Ok(Called::Peer)
    }
}
