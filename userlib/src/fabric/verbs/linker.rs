// SPDX-License-Identifier: MIT OR Apache-2.0

//! What makes queue pairs to peers.

use super::transport::{Link, Target, VerbsTransport, SEND_QUEUE};
use crate::fabric::rdma::control::Memory;
use crate::fabric::rdma::seats::Opened;
use crate::fabric::rdma::Linker;
use crate::fabric::{FabricError, Words, WORD_ATOMIC_BYTES};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;
use weft_core::gid::Gid;
use weft_verbs::{
    Access, Context, Cq, Endpoint as QpAddress, InitQp, LocalGid, Mr, Pages, Pd, QpConfig,
};

/// The card: a queue pair's address, the memory's address, its key.
const CARD_BYTES: usize = QpAddress::BYTES + 8 + 4;

/// Which port a node uses.
pub(super) struct Port {
    /// The node's address: the RDMA device is the one whose port has the same IP address.
    pub(super) addr: SocketAddr,
    pub(super) words: Words,
}

impl Port {
    /// Opens the device, registers the node's memory, and makes a completion queue with room
    /// for all that may be under way to so many nodes.
    pub(super) fn open(
        self,
        region_bytes: usize,
        nodes: usize,
        end: Instant,
    ) -> Result<Opened<VerbsLinker>, FabricError> {
        let bytes = Memory::bytes(region_bytes)?;
        // When a queue pair fails, all that is posted on it completes.
        let entries = SEND_QUEUE * u32::try_from(nodes).unwrap_or(u32::MAX);
        let set_up = || -> weft_verbs::Result<(VerbsLinker, Mr)> {
            let patience = end.saturating_duration_since(Instant::now());
            let (context, local) = Context::open_by_gid(gid_of(self.addr), patience)?;
            let pd = Pd::new(&context)?;
            let pages = Pages::zeroed(bytes)?;
            let cq = Cq::new(&context, entries)?;
            // What has ATOMIC WRITE is soft-RoCE so far, and what has not needs none.
            let is_atomic = self.words.are_single(context.has_atomic_write()?);
            let mr = Mr::register(&pd, &pages, Access::All)?;
            let linker = VerbsLinker {
                addr: self.addr,
                local,
                pages,
                rkey: mr.rkey(),
                pd,
                cq,
                is_atomic,
            };
            Ok((linker, mr))
        };
        let opened = set_up();
        let (linker, mr) = opened.map_err(|error| refusal(self.addr, &error))?;
        let memory = memory_of(&linker.pages, region_bytes);
        let (cq, is_atomic) = (linker.cq.clone(), linker.is_atomic);
        let transport = VerbsTransport::new(nodes, cq, mr, memory.all.clone(), is_atomic);
        Ok(Opened {
            memory,
            linker,
            transport,
        })
    }
}

fn refusal(addr: SocketAddr, error: &weft_verbs::Error) -> FabricError {
    let reason = error.to_string();
    FabricError::Rdma { addr, reason }
}

fn memory_of(pages: &Arc<Pages>, region_bytes: usize) -> Memory {
    let base = NonNull::from(pages.words()).cast();
    // SAFETY: the pages are mapped while they are owned, begin at a page,
    // are as many as the control page and the region take, and are only
    // reached through atomics.
    unsafe { Memory::new(base, region_bytes, Arc::clone(pages) as _) }
}

/// What makes queue pairs to peers.
pub(super) struct VerbsLinker {
    addr: SocketAddr,
    local: LocalGid,
    pages: Arc<Pages>,
    rkey: u32,
    pd: Pd,
    cq: Cq,
    is_atomic: bool,
}

impl Linker for VerbsLinker {
    type Transport = VerbsTransport;
    type Offer = InitQp;

    fn offer(&self) -> Result<InitQp, FabricError> {
        let config = QpConfig {
            max_send_wr: SEND_QUEUE,
            // Devices with less room than this for a request's own bytes (irdma, bnxt_re,
            // erdma) refuse to make the queue pair.
            max_inline: WORD_ATOMIC_BYTES as u32,
            atomic_write: self.is_atomic,
            ..QpConfig::default()
        };
        let qp = InitQp::with_config(&self.pd, &self.cq, self.local, &config);
        qp.map_err(|error| refusal(self.addr, &error))
    }

    fn card(&self, offer: &InitQp) -> Vec<u8> {
        let mut card = offer.endpoint().encode().to_vec();
        card.extend(self.pages.addr().to_le_bytes());
        card.extend(self.rkey.to_le_bytes());
        card
    }

    fn link(&self, peer: usize, offer: InitQp, card: &[u8]) -> Result<Link, FabricError> {
        let what = "its card cannot be read";
        let (address, target) = read_card(card).ok_or(FabricError::Protocol { peer, what })?;
        let qp = offer.connect(&address);
        let qp = qp.map_err(|error| refusal(self.addr, &error))?;
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
}
