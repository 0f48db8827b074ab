// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nodes that come to others that have met before.
//!
//! Each seat has a TCP address. To listen there is to take the seat: one process can at a time,
//! and a node's [`Reception`] answers there for as long as it lives. A newcomer's incarnation is
//! the time of its host's clock at which it has taken the seat.
//!
//! A newcomer calls all who are there ([`calling`]). Each answers with an offer that no one else
//! has ([`super::Linker`]): so whoever had the seat before can be cut off by itself, and is
//! before the seat is vacant. The two link, the newcomer says that it is ready, and waits
//! until it is admitted ([`Endpoint::admit`](crate::fabric::Endpoint::admit)).

mod calling;
mod reception;
#[cfg(test)]
mod tests;

pub(super) use reception::Reception;

use super::control::Memory;
use super::endpoint::start;
use super::inner::Inner;
use super::meeting::end_of;
use super::place::Place;
use super::speech::Node;
use super::Linker;
use crate::fabric::{Connected, FabricError, Meeting, MAX_HELLO_BYTES, MAX_INCARNATION};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A newcomer that has taken a seat.
#[derive(Debug)]
pub(in crate::fabric) struct Seated {
    pub(in crate::fabric) place: Place,
    listener: TcpListener,
    incarnation: u64,
}

/// Takes an empty seat that has an address of this host. Waits until somebody is there who says
/// which are empty, and for a seat, until the time is over.
pub(in crate::fabric) fn take_seat(
    addrs: &[SocketAddr],
    kind: u8,
    timeout: Duration,
) -> Result<Seated, FabricError> {
    let (place, listener) = calling::take_seat(addrs, kind, end_of(timeout))?;
    Ok(Seated {
        place,
        listener,
        incarnation: now(),
    })
}

/// Time of the host's clock, in microseconds, as an incarnation.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_micros());
    u64::try_from(now).map_or(MAX_INCARNATION, |now| now.clamp(1, MAX_INCARNATION))
}

/// Makes the endpoint of a newcomer, which has called those who are there.
pub(in crate::fabric) fn arrive<L: Linker>(
    seated: Seated,
    kind: u8,
    hello: &[u8],
    memory: Memory,
    linker: L,
    transport: L::Transport,
    end: Instant,
) -> Result<Connected, FabricError> {
    if hello.len() > MAX_HELLO_BYTES {
        return Err(FabricError::BadHello(hello.len()));
    }
    let Seated {
        place,
        listener,
        incarnation,
    } = seated;
    let node = Node {
        place,
        kind,
        region_bytes: memory.region.len(),
        hello: hello.to_vec(),
        incarnation,
    };
    let (rank, seats) = (node.place.rank, node.place.seats());
    let inner = Arc::new(Inner::new(rank, seats, memory, transport)?);
    let mut hellos = vec![Vec::new(); seats];
    hellos[rank].clone_from(&node.hello);
    let mut reception = Reception::new(node, linker, listener, Arc::clone(&inner));
    let met = reception.call_first(&mut hellos, end)?;
    let meeting = Meeting::Newcomer { incarnation, met };
    start(inner, Some(reception.start()?), hellos, meeting)
}
