// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections that there are, and those that are not complete yet.
//!
//! A request for a connection can be forged, with any address. So one that the peer has
//! not completed is ended after a while, and makes room at once when room is needed. If all
//! are complete, the oldest makes room: see [`Refusal::displaced`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_verbs::{ConnectionId, ServerConnection};

use crate::peers::{Peers, Refusal, Standing};

/// How long a peer may take to complete its connection: several tries of rdma_cm.
const PATIENCE: Duration = Duration::from_secs(20);

/// A queue pair: its device's number, and its own there.
pub type QpKey = (usize, u32);

/// A connection and what it has done.
pub struct Connected {
    /// The connection itself.
    pub connection: ServerConnection,
    /// Its queue pair.
    pub key: QpKey,
    /// Its other end.
    pub peer: SocketAddr,
    /// When it was accepted.
    pub accepted: Instant,
    /// What its messages have to repeat.
    pub token: u64,
    /// Its messages that were refused.
    pub refused: u32,
}

/// All connections.
pub struct Connections {
    all: HashMap<ConnectionId, Connected>,
    by_qp: HashMap<QpKey, ConnectionId>,
    peers: Peers<ConnectionId>,
    /// When those were accepted that are not complete.
    pending: HashMap<ConnectionId, Instant>,
}

impl Connections {
    /// There are none.
    pub fn new() -> Self {
        Self {
            all: HashMap::new(),
            by_qp: HashMap::new(),
            peers: Peers::new(),
            pending: HashMap::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether one more from `peer` is allowed. `Ok(Some)`: once that one has been ended.
    pub fn admit(&self, peer: SocketAddr) -> Result<Option<ConnectionId>, Refusal> {
        let Err(refusal) = self.peers.admit(peer) else {
            return Ok(None);
        };
        let standing = self.all.iter().map(|(&id, other)| Standing {
            id,
            peer: other.peer,
            accepted: other.accepted,
            is_complete: self.is_complete(id),
        });
        refusal.displaced(peer, standing).map(Some).ok_or(refusal)
    }

    /// Whether the peer has completed it.
    pub fn is_complete(&self, id: ConnectionId) -> bool {
        !self.pending.contains_key(&id)
    }

    /// Adds one that was accepted.
    pub fn insert(&mut self, connected: Connected) {
        let id = connected.connection.id();
        self.peers.enter(connected.peer, id);
        self.by_qp.insert(connected.key, id);
        self.pending.insert(id, connected.accepted);
        self.all.insert(id, connected);
    }

    /// The peer has completed it.
    pub fn complete(&mut self, id: ConnectionId) {
        self.pending.remove(&id);
    }

    /// Takes one out that is over.
    pub fn remove(&mut self, id: ConnectionId) -> Option<Connected> {
        let over = self.all.remove(&id)?;
        self.by_qp.remove(&over.key);
        self.pending.remove(&id);
        self.peers.leave(over.peer, id);
        Some(over)
    }

    /// The one with this name.
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        self.all.get_mut(&id)
    }

    /// The one with this queue pair.
    pub fn by_qp(&self, key: QpKey) -> Option<&Connected> {
        self.all.get(self.by_qp.get(&key)?)
    }

    /// Those by a device.
    pub fn on_device(&self, device: usize) -> Vec<ConnectionId> {
        let keys = self.by_qp.iter();
        let found = keys.filter(|((at, _), _)| *at == device);
        found.map(|(_, id)| *id).collect()
    }

    /// `id` has published its address's own record: see [`Peers::published`].
    pub fn published(&mut self, peer: SocketAddr, id: ConnectionId) -> Vec<ConnectionId> {
        self.peers.published(peer, id)
    }

    /// Those that were not completed in time.
    pub fn overdue(&self, now: Instant) -> Vec<ConnectionId> {
        let late = |accepted: &Instant| now.saturating_duration_since(*accepted) >= PATIENCE;
        let overdue = self.pending.iter().filter(|(_, accepted)| late(accepted));
        overdue.map(|(id, _)| *id).collect()
    }

    /// When the next one will be overdue.
    pub fn due(&self) -> Option<Instant> {
        let first = self.pending.values().min();
        first.map(|accepted| *accepted + PATIENCE)
    }
}
