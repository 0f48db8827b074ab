// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared memory with seats: nodes that come when others have met, or have gone.
//!
//! The meeting place lasts as long as one node is there. Each keeps the abstract socket of its
//! seat, `weft/<uid>/<name>/<seat>`, on which newcomers call it. To bind that name is to take
//! the seat: one process has it at a time, and it goes with the process. A newcomer's
//! incarnation is the time of the host's clock at which it has taken the seat, so a later
//! holder's is higher.
//!
//! A newcomer calls each node on a line of its own: a frame with its memory, the node's answer with
//! that one's, and a byte when the newcomer has mapped it. The node may admit it from then on.
//!
//! A member gives a seat to a newcomer when the line to the former holder has ended, behind
//! which that one has no mapping of this node's memory (see [`super`]). So nothing of it can
//! arrive any more, and its memory, which the member still has mapped until then, is not looked
//! at again.
//!
//! Posts are copies to each peer. Whoever looks into another one's region asks again when that
//! one's seat has got another holder. All regions have the same length.

mod attendant;
mod calling;
mod endpoint;
mod inner;
#[cfg(test)]
mod tests;

use super::frame::Kind;
use super::rendezvous::{self, Met, Node};
use super::{check, MAX_HELLO_BYTES};
use crate::deadline::end_of;
use crate::fabric::{Connected, Fabric, FabricError, Meeting, Newcomer, MAX_INCARNATION};
use attendant::Line;
use endpoint::SeatsEndpoint;
use inner::{Inner, Peer};
use nix::time::{clock_gettime, ClockId};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

/// A node of a shared-memory fabric with seats, before it meets the others: for groups with
/// views ([`Builder::with_views`](crate::multicast::Builder::with_views)), and for
/// [RDMC nodes](crate::rdmc::Node) beside them.
#[derive(Debug)]
pub struct ShmSeats {
    name: String,
    seats: usize,
    rank: usize,
    role: Role,
}

#[derive(Debug)]
enum Role {
    /// It meets the others, of so many, at the beginning.
    Founder(usize),
    /// It has taken a seat.
    Newcomer {
        listener: UnixListener,
        incarnation: u64,
    },
}

impl ShmSeats {
    /// Node `rank` of `founders`, which meet under a name. There are `seats` in all, for those
    /// who come later. Processes of one user with the same name find one another.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::BadName`].
    pub fn founder(
        name: &str,
        rank: usize,
        founders: usize,
        seats: usize,
    ) -> Result<Self, FabricError> {
        check(name, rank, founders)?;
        check(name, founders - 1, seats)?;
        Ok(Self {
            name: name.to_owned(),
            seats,
            rank,
            role: Role::Founder(founders),
        })
    }

    /// Takes an empty seat, of so many, where others have met under the name. Waits for them,
    /// and for a seat, until the time is over.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::BadName`]; [`FabricError::Timeout`] if nobody
    /// is there, [`FabricError::NoSeat`] if somebody is in all seats.
    pub fn newcomer(name: &str, seats: usize, timeout: Duration) -> Result<Self, FabricError> {
        check(name, 0, seats)?;
        let (rank, listener) = calling::take_seat(name, seats, end_of(timeout))?;
        Ok(Self {
            name: name.to_owned(),
            seats,
            rank,
            role: Role::Newcomer {
                listener,
                incarnation: now()?,
            },
        })
    }

    /// As [`Self::newcomer`], in the seat that this node has taken in another fabric, and with the
    /// same incarnation: so that the two name it alike. Both have the same seats, and whoever
    /// comes takes one in the same of the two first.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::BadName`]; [`FabricError::RankTaken`] if another
    /// one has the seat until the time is over.
    pub fn newcomer_as(
        name: &str,
        seats: usize,
        newcomer: Newcomer,
        timeout: Duration,
    ) -> Result<Self, FabricError> {
        let Newcomer { seat, incarnation } = newcomer;
        check(name, seat, seats)?;
        let listener = calling::take_that_seat(name, seat, end_of(timeout))?;
        Ok(Self {
            name: name.to_owned(),
            seats,
            rank: seat,
            role: Role::Newcomer {
                listener,
                incarnation,
            },
        })
    }

    /// Nodes of a fabric within this process, as [`Shm::threads`](super::Shm::threads): the
    /// founders, and the name under which others may come.
    ///
    /// # Errors
    ///
    /// As [`Self::founder`].
    pub fn threads(founders: usize, seats: usize) -> Result<(String, Vec<Self>), FabricError> {
        let name = super::fresh_name();
        let nodes = (0..founders).map(|rank| Self::founder(&name, rank, founders, seats));
        let nodes = nodes.collect::<Result<_, _>>()?;
        Ok((name, nodes))
    }
}

/// Time since the host has started, in nanoseconds, as an incarnation.
fn now() -> Result<u64, FabricError> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
    let now = Duration::from(now.map_err(|errno| FabricError::system("clock_gettime", errno))?);
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    Ok(now.clamp(1, MAX_INCARNATION))
}

// SAFETY: the endpoint is that of `endpoint`.
unsafe impl Fabric for ShmSeats {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.seats
    }

    fn has_seats(&self) -> bool {
        true
    }

    fn has_sight(&self) -> bool {
        true
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        if hello.len() > MAX_HELLO_BYTES {
            return Err(FabricError::BadHello(hello.len()));
        }
        let mut inner = Inner::new(&self.name, self.rank, self.seats, region_bytes, hello)?;
        let mut hellos = vec![Vec::new(); self.seats];
        hellos[self.rank] = hello.to_vec();
        match self.role {
            Role::Founder(founders) => {
                let (met, listener) = meet(&inner, founders, timeout)?;
                let mut lines = Vec::new();
                for peer in met {
                    let checked = inner.check(peer.rank, &peer.memory, peer.region_bytes);
                    hellos[peer.rank] = peer.hello;
                    if checked.is_err() && hellos[peer.rank] != inner.hello {
                        // The hello says why.
                        continue;
                    }
                    checked?;
                    let founder = Peer {
                        incarnation: 0,
                        memory: peer.memory,
                    };
                    inner.seat(peer.rank, &founder)?;
                    lines.push(Line::met(peer.rank, 0, peer.line));
                }
                let meeting = Meeting::Founders((0..founders).collect());
                start(inner, listener, lines, hellos, meeting)
            }
            Role::Newcomer {
                listener,
                incarnation,
            } => {
                inner.incarnation = incarnation;
                let end = end_of(timeout);
                let (lines, met) = calling::call_first(&inner, end, &mut hellos)?;
                let meeting = Meeting::Newcomer { incarnation, met };
                start(inner, listener, lines, hellos, meeting)
            }
        }
    }
}

fn meet(
    inner: &Inner,
    founders: usize,
    timeout: Duration,
) -> Result<(Vec<Met>, UnixListener), FabricError> {
    let node = Node {
        kind: Kind::Founding,
        name: &inner.name,
        rank: inner.rank,
        nodes: founders,
        region_bytes: inner.memory.region().len(),
        memory: &inner.fd,
        hello: &inner.hello,
    };
    rendezvous::meet(&node, timeout)
}

fn start(
    inner: Inner,
    listener: UnixListener,
    lines: Vec<Line>,
    hellos: Vec<Vec<u8>>,
    meeting: Meeting,
) -> Result<Connected, FabricError> {
    if let Meeting::Founders(_) = meeting {
        inner.settle();
    }
    let inner = Arc::new(inner);
    let attendant = attendant::start(Arc::clone(&inner), listener, lines)?;
    Ok(Connected {
        endpoint: Arc::new(SeatsEndpoint::new(attendant, inner)),
        hellos,
        meeting,
    })
}
