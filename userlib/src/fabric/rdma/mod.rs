// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the fabrics over RDMA have in common: everything but the queue pairs.
//!
//! Nodes meet over TCP ([`meeting`]), tell one another where their memory is,
//! and keep the lines: the end of a line is how a death is noticed without
//! posting anything, and doorbells ring over it ([`doors`]). The data itself
//! goes by one-sided requests, which a [`Transport`] carries, over the links
//! that a [`Linker`] makes. Where there are seats, nodes come later too
//! ([`seats`]).
//!
//! A node's memory begins with a page of the fabric's own ([`control`]); the
//! region follows.

mod bell;
pub(super) mod control;
mod doors;
mod endpoint;
mod frame;
pub(super) mod health;
#[cfg(test)]
mod held;
mod inner;
mod line;
pub(super) mod meeting;
pub(super) mod place;
pub(super) mod seats;
pub(super) mod speech;
mod watch;
pub(super) mod words;

use super::{FabricError, Write};
use health::Health;
use std::fmt;
use std::sync::Arc;

/// Longest piece of a write: requests count bytes with 32 bits, and no device
/// or module takes more in one.
const MAX_PIECE_BYTES: usize = 1 << 30;

/// The peer's connection is broken; it is marked down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Connections to all peers that carry one-sided requests.
///
/// Offsets count from the beginning of the memories, control pages included,
/// and the caller has checked that ranges are within them and at most
/// [`MAX_PIECE_BYTES`] long. Peers are such that exist.
///
/// Requests to a peer are carried out in the order of posting, whichever thread
/// posts: each is over before a later one is visible, and a read sees what was
/// written before. (A responder executes WRITEs in their order, and a READ after the
/// WRITEs before it: IBTA vol. 1, 9.5 Transaction Ordering. That WRITEs also become
/// visible in this order to who polls memory is for the device to keep: see
/// [`crate::fabric`].)
pub(super) trait Transport: Send + Sync + fmt::Debug + Sized + 'static {
    /// The connection to one peer.
    type Link: Send + fmt::Debug;

    /// What is posted to a peer goes by this link from now on, and nothing that was posted
    /// before does. Nobody posts to the peer meanwhile.
    fn seat(&self, peer: usize, link: Self::Link);

    /// Posts writes. A full queue is waited for, a peer that is down is not.
    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), Gone>;

    /// Runs `posts`. What its thread posts in there may be handed over when it returns,
    /// all at once.
    fn together(&self, posts: &mut dyn FnMut()) {
        posts();
    }

    /// Reads `what.remote` into `what.local`, and returns when it is there.
    fn read(&self, peer: usize, what: Write) -> Result<(), Gone>;

    /// Reaps completions, and marks peers down whose connection has failed.
    fn poll(&self);

    /// Cuts off a peer that is down, as [`Endpoint::severed`] has it, and says whether that was
    /// done: it may be tried again.
    ///
    /// [`Endpoint::severed`]: super::Endpoint::severed
    fn sever(&self, peer: usize) -> bool;

    /// System calls so far, as [`Endpoint::system_calls`] counts them.
    ///
    /// [`Endpoint::system_calls`]: super::Endpoint::system_calls
    fn system_calls(&self) -> Option<u64> {
        None
    }

    /// Which peers are down, shared with the rest.
    fn health(&self) -> &Arc<Health>;
}

/// What makes links to peers.
pub(super) trait Linker: Send + 'static {
    /// Who carries requests over them.
    type Transport: Transport;
    /// What one peer is given, to reach this node by it: until this is dropped, or the link that
    /// is made of it.
    type Offer: Send;

    /// Makes an offer.
    fn offer(&self) -> Result<Self::Offer, FabricError>;

    /// The card that tells a peer of it.
    fn card(&self, offer: &Self::Offer) -> Vec<u8>;

    /// Makes the link to a peer that has this card, and that was made this offer. The other one
    /// may not be ready yet.
    fn link(
        &self,
        peer: usize,
        offer: Self::Offer,
        card: &[u8],
    ) -> Result<<Self::Transport as Transport>::Link, FabricError>;
}
