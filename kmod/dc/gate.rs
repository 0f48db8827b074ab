// SPDX-License-Identifier: GPL-2.0

//! Tokens of streams that can be checked without a look at the stream: a response
//! from anywhere but the stream's peer, or with a token that was not made here, costs
//! one hash, and neither a lock nor a reference.
//!
//! Half of a token is random; the other half is a keyed hash of that, of the stream's
//! number and of the peer's endpoint. So nobody guesses more of it than of 64 random
//! bits. The stream itself compares all of it, under its lock: the token of its past
//! passes here.

use crate::net::Endpoint;
use crate::random::{random_u32, KeyedHash};

/// Makes and checks a node's tokens.
pub(super) struct Gate(KeyedHash);

impl Gate {
    /// With a new secret.
    pub(super) fn new() -> Self {
        Self(KeyedHash::new())
    }

    /// A new token for a stream to a peer.
    pub(super) fn token(&self, stream: u32, peer: Endpoint) -> u64 {
        let random = random_u32();
        u64::from(random) << 32 | u64::from(self.proof(stream, peer, random))
    }

    /// Whether this node made the token, for a stream of this number to this peer.
    pub(super) fn is_genuine(&self, token: u64, stream: u32, peer: Endpoint) -> bool {
        let (random, proof) = ((token >> 32) as u32, token as u32);
        self.proof(stream, peer, random) == proof
    }

    fn proof(&self, stream: u32, peer: Endpoint, random: u32) -> u32 {
        let addr = u32::from_ne_bytes(peer.addr);
        self.0.of([stream, addr, u32::from(peer.port), random])
    }
}
