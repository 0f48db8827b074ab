// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nodes that come to others that have met before.
//!
//! Each seat has a TCP address. To listen there is to take the seat: one process can at a time,
//! and a node's [`Reception`] answers there for as long as it lives. A newcomer's incarnation is
//! the time of its host's clock at which it has taken the seat.
//!
//! A newcomer calls all who are there ([`calling`]). Each answers with an offer that no one else
//! has ([`super::Linker`]): so whoever had the seat before can be cut off by itself, and is
//! before the seat is vacant. The two link, the newcomer says that it is ready once it can post,
//! and waits until it is admitted ([`Endpoint::admit`](crate::fabric::Endpoint::admit)).

mod calling;
mod lines;
mod reception;
#[cfg(test)]
mod tests;

pub(super) use reception::Reception;

use super::control::Memory;
use super::endpoint::{connect, start};
use super::inner::Inner;
use super::place::Place;
use super::speech::Node;
use super::Linker;
use crate::deadline::end_of;
use crate::fabric::{Connected, FabricError, Meeting, Newcomer, MAX_HELLO_BYTES, MAX_INCARNATION};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How a node comes to a fabric with seats.
#[derive(Debug)]
pub(in crate::fabric) enum Role {
    /// It meets the others at the beginning.
    Founder(Place),
    /// It has taken a seat.
    Newcomer(Seated),
}

/// A newcomer that has taken a seat.
#[derive(Debug)]
pub(in crate::fabric) struct Seated {
    place: Place,
    listener: TcpListener,
    incarnation: u64,
}

/// What makes the endpoint of a node.
pub(in crate::fabric) struct Opened<L: Linker> {
    pub(in crate::fabric) memory: Memory,
    pub(in crate::fabric) linker: L,
    pub(in crate::fabric) transport: L::Transport,
}

impl Role {
    /// Takes an empty seat that has an address of this host. Waits until somebody is there who
    /// says which are empty, and for a seat, until the time is over.
    pub(in crate::fabric) fn newcomer(
        addrs: &[SocketAddr],
        kind: u8,
        timeout: Duration,
    ) -> Result<Self, FabricError> {
        let (place, listener) = calling::take_seat(addrs, kind, end_of(timeout))?;
        Ok(Self::Newcomer(Seated {
            place,
            listener,
            incarnation: now(),
        }))
    }

    /// Takes a seat that is known from another fabric, as soon as nobody else has it.
    pub(in crate::fabric) fn newcomer_as(
        addrs: &[SocketAddr],
        newcomer: Newcomer,
        timeout: Duration,
    ) -> Result<Self, FabricError> {
        let Newcomer { seat, incarnation } = newcomer;
        let place = Place::new(seat, addrs)?;
        let listener = calling::take_that_seat(&place, end_of(timeout))?;
        Ok(Self::Newcomer(Seated {
            place,
            listener,
            incarnation,
        }))
    }

    pub(in crate::fabric) fn place(&self) -> &Place {
        match self {
            Self::Founder(place) => place,
            Self::Newcomer(seated) => &seated.place,
        }
    }

    /// Makes the endpoint: meets the other founders, or calls those who are there.
    pub(in crate::fabric) fn connect<L: Linker>(
        self,
        kind: u8,
        hello: &[u8],
        opened: Opened<L>,
        end: Instant,
    ) -> Result<Connected, FabricError> {
        let (place, newcomer) = match self {
            Self::Founder(place) => (place, None),
            Self::Newcomer(seated) => (seated.place, Some((seated.listener, seated.incarnation))),
        };
        let node = Node {
            place,
            kind,
            region_bytes: opened.memory.region.len(),
            hello: hello.to_vec(),
            incarnation: newcomer.as_ref().map_or(0, |newcomer| newcomer.1),
        };
        match newcomer {
            None => connect(node, opened, end),
            Some((listener, _)) => arrive(node, listener, opened, end),
        }
    }
}

/// Makes the endpoint of a newcomer, which has called those who are there.
fn arrive<L: Linker>(
    node: Node,
    listener: TcpListener,
    opened: Opened<L>,
    end: Instant,
) -> Result<Connected, FabricError> {
    if node.hello.len() > MAX_HELLO_BYTES {
        return Err(FabricError::BadHello(node.hello.len()));
    }
    let Opened {
        memory,
        linker,
        transport,
    } = opened;
    let (rank, seats) = (node.place.rank, node.place.seats());
    let incarnation = node.incarnation;
    let inner = Arc::new(Inner::new(rank, seats, memory, transport)?);
    let mut hellos = vec![Vec::new(); seats];
    hellos[rank].clone_from(&node.hello);
    let mut reception = Reception::new(node, linker, listener, Arc::clone(&inner));
    let met = reception.call_first(&mut hellos, end)?;
    let meeting = Meeting::Newcomer { incarnation, met };
    start(inner, Some(reception.start()?), hellos, meeting)
}

/// Time of the host's clock, in microseconds, as an incarnation.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_micros());
    u64::try_from(now).map_or(MAX_INCARNATION, |now| now.clamp(1, MAX_INCARNATION))
}
