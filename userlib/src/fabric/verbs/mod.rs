// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plain RC queue pairs through rdma-core: the baseline, and the choice without
//! Weft's module.
//!
//! Each pair of nodes has one queue pair, made with the verbs and connected by
//! what the nodes tell each other over TCP.
//!
//! Words that go one by one ([`Words`]) are ATOMIC WRITEs here, which soft-RoCE
//! has.

mod transport;

use super::rdma::control::Memory;
use super::rdma::health::Health;
use super::rdma::meeting::{self, meet, Met, Node, Place};
use super::rdma::{self, Own};
use super::{Connected, Fabric, FabricError, Words};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::{Link, Target, VerbsTransport, SEND_QUEUE};
use weft_core::gid::Gid;
use weft_verbs::{
    Access, Context, Cq, Endpoint as QpAddress, InitQp, LocalGid, Mr, Pages, Pd, QpConfig,
};

/// Says that a node uses this fabric.
const KIND: u8 = 1;
/// The card: a queue pair's address, the memory's address, its key.
const CARD_BYTES: usize = QpAddress::BYTES + 8 + 4;

/// A node of a fabric over verbs, before it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verbs {
    place: Place,
    words: Words,
}

impl Verbs {
    /// The node at `rank` of a list of addresses, one for each node, the same
    /// everywhere. Nodes meet there over TCP; the RDMA device is the one whose
    /// port has the same IP address.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`].
    pub fn new(rank: usize, addrs: &[SocketAddr]) -> Result<Self, FabricError> {
        Ok(Self {
            place: Place::new(rank, addrs)?,
            words: Words::default(),
        })
    }

    /// How words get there whole, if the default is not right.
    #[must_use]
    pub fn words(self, words: Words) -> Self {
        Self { words, ..self }
    }

    fn error(&self, error: &weft_verbs::Error) -> FabricError {
        FabricError::Rdma {
            addr: self.place.own(),
            reason: error.to_string(),
        }
    }

    /// Opens the device, and makes what the node needs of it.
    fn open(&self, region_bytes: usize, end: Instant) -> Result<Stack, FabricError> {
        let bytes = Memory::bytes(region_bytes)?;
        let set_up = || -> weft_verbs::Result<Stack> {
            let patience = end.saturating_duration_since(Instant::now());
            let (context, local) = Context::open_by_gid(gid_of(self.place.own()), patience)?;
            let pd = Pd::new(&context)?;
            let pages = Pages::zeroed(bytes)?;
            let peers = u32::try_from(self.place.nodes() - 1).unwrap_or(u32::MAX);
            // When a queue pair fails, all that is posted on it completes.
            let cq = Cq::new(&context, (peers * SEND_QUEUE).max(1))?;
            // What has ATOMIC WRITE is soft-RoCE so far, and what has not needs none.
            let is_atomic = self.words.are_single(context.has_atomic_write()?);
            Ok(Stack {
                local,
                mr: Mr::register(&pd, &pages, Access::All)?,
                pages,
                pd,
                cq,
                is_atomic,
            })
        };
        set_up().map_err(|error| self.error(&error))
    }
}

/// What a node has of its device.
struct Stack {
    local: LocalGid,
    mr: Mr,
    pages: Arc<Pages>,
    pd: Pd,
    cq: Cq,
    is_atomic: bool,
}

impl Stack {
    fn queue_pair(&self) -> weft_verbs::Result<InitQp> {
        let config = QpConfig {
            max_send_wr: SEND_QUEUE,
            // Devices with less room than this for a request's own bytes (irdma, bnxt_re,
            // erdma) refuse to make the queue pair.
            max_inline: super::WORD_ATOMIC_BYTES as u32,
            atomic_write: self.is_atomic,
            ..QpConfig::default()
        };
        InitQp::with_config(&self.pd, &self.cq, self.local, &config)
    }

    fn memory(&self, region_bytes: usize) -> Memory {
        let base = NonNull::from(self.pages.words()).cast();
        // SAFETY: the pages are mapped while they are owned, begin at a page,
        // are as many as the control page and the region take, and are only
        // reached through atomics.
        unsafe { Memory::new(base, region_bytes, Arc::clone(&self.pages) as _) }
    }

    fn card(&self, qp: &InitQp) -> Vec<u8> {
        let mut card = qp.endpoint().encode().to_vec();
        card.extend(self.pages.addr().to_le_bytes());
        card.extend(self.mr.rkey().to_le_bytes());
        card
    }
}

// SAFETY: the endpoint is that of `rdma`, over queue pairs that keep their order.
unsafe impl Fabric for Verbs {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn nodes(&self) -> usize {
        self.place.nodes()
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        let end = meeting::end_of(timeout);
        let stack = self.open(region_bytes, end)?;
        let mut offered = Vec::with_capacity(self.place.nodes());
        for rank in 0..self.place.nodes() {
            offered.push(if rank == self.place.rank {
                None
            } else {
                Some(stack.queue_pair().map_err(|error| self.error(&error))?)
            });
        }
        let card = |peer: usize| {
            let offer = offered.get(peer).and_then(Option::as_ref);
            offer.map(|qp| stack.card(qp)).unwrap_or_default()
        };
        let node = Node {
            place: &self.place,
            kind: KIND,
            region_bytes,
            hello,
            card: &card,
        };
        let met = meet(&node, end)?;
        let mut links: Vec<Option<Link>> = (0..self.place.nodes()).map(|_| None).collect();
        for peer in &met {
            if let Some(qp) = offered[peer.rank].take() {
                links[peer.rank] = Some(self.link(qp, peer)?);
            }
        }
        let memory = stack.memory(region_bytes);
        let transport = VerbsTransport {
            memory: memory.all.clone(),
            mr: stack.mr,
            cq: stack.cq,
            is_atomic: stack.is_atomic,
            links,
            health: Arc::new(Health::default()),
        };
        let own = Own {
            rank: self.place.rank,
            hello,
            memory,
        };
        rdma::connect(own, met, transport, end)
    }
}

impl Verbs {
    /// Connects a queue pair to the one that the peer offers.
    fn link(&self, qp: InitQp, peer: &Met) -> Result<Link, FabricError> {
        let (address, target) = read_card(&peer.card).ok_or(FabricError::Protocol {
            peer: peer.rank,
            what: "its card cannot be read",
        })?;
        let qp = qp.connect(&address).map_err(|error| self.error(&error))?;
        Ok(Link::new(qp, target))
    }
}

fn read_card(card: &[u8]) -> Option<(QpAddress, Target)> {
    let card: &[u8; CARD_BYTES] = card.try_into().ok()?;
    let (qp, memory) = card.split_first_chunk()?;
    let (addr, rkey) = memory.split_first_chunk()?;
    let target = Target {
        addr: u64::from_le_bytes(*addr),
        rkey: u32::from_le_bytes(rkey.try_into().ok()?),
    };
    Some((QpAddress::decode(qp).ok()?, target))
}

/// The GID that a RoCE port has for an IP address.
fn gid_of(addr: SocketAddr) -> Gid {
    match addr.ip() {
        IpAddr::V4(v4) => Gid::from_ipv4(v4.octets()),
        IpAddr::V6(v6) => Gid(v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_card() {
        assert!(read_card(&[]).is_none());
        assert!(read_card(&[0; CARD_BYTES]).is_none());
        assert!(read_card(&[0xff; CARD_BYTES]).is_none());
        assert!(read_card(&[1; CARD_BYTES + 1]).is_none());
    }

    #[test]
    fn a_host_without_the_address_says_so() {
        let nowhere = SocketAddr::from(([192, 0, 2, 1], 7000));
        let node = Verbs::new(0, &[nowhere]).expect("a place");
        // SAFETY: nothing is done with it.
        let refusal = unsafe { node.connect(64, &[], Duration::ZERO) };
        assert!(matches!(
            refusal.expect_err("no such device"),
            FabricError::Rdma { addr, .. } if addr == nowhere
        ));
    }
}
