// SPDX-License-Identifier: MIT OR Apache-2.0

//! What makes queue pairs to peers.

use super::transport::{Link, Target, VerbsTransport, SEND_QUEUE};
use crate::fabric::rdma::control::Memory;
use crate::fabric::rdma::seats::Opened;
use crate::fabric::rdma::Linker;
use crate::fabric::{FabricError, Words, COPIED_BYTES, WORD_ATOMIC_BYTES};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;
use weft_core::gid::Gid;
use weft_verbs::{
    Access, Context, Cq, Endpoint as QpAddress, InitQp, LocalGid, Mr, Pages, Pd, QpConfig,
};

/// The card: a queue pair's address, the memory's address, its key.
const CARD_BYTES: usize = QpAddress::BYTES + 8 + 4;

/// Bytes that a request may carry itself, the most first: as long as a write of words may be;
/// what irdma and erdma have, rounded down to words; and what a fabric promises to copy.
const INLINE_ROOMS: [usize; 3] = [WORD_ATOMIC_BYTES, 96, COPIED_BYTES];

/// Which port a node uses.
pub(super) struct Port {
    /// The node's address: the RDMA device is the one whose port has the same IP address.
    pub(super) addr: SocketAddr,
    pub(super) choices: Choices,
}

/// The choices that a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choices {
    pub(super) words: Words,
    /// Most bytes that a request carries itself, if the device has room for them.
    pub(super) max_inline: usize,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            words: Words::default(),
            max_inline: WORD_ATOMIC_BYTES,
        }
    }
}

impl Choices {
    pub(super) fn words(self, words: Words) -> Self {
        Self { words, ..self }
    }

    /// No less than what is promised to be copied.
    pub(super) fn max_inline(self, bytes: usize) -> Self {
        let max_inline = bytes.max(COPIED_BYTES);
        Self { max_inline, ..self }
    }
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
            let is_atomic = self.choices.words.are_single(context.has_atomic_write()?);
            let mr = Mr::register(&pd, &pages, Access::All)?;
            let linker = VerbsLinker {
                addr: self.addr,
                local,
                pages,
                rkey: mr.rkey(),
                pd,
                cq,
                is_atomic,
                inline_room: AtomicUsize::new(self.choices.max_inline),
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
    /// Bytes that a request carries itself: the most that the device has not refused.
    inline_room: AtomicUsize,
}

/// A queue pair that knows no peer yet.
pub(super) struct QpOffer {
    qp: InitQp,
    inline_room: usize,
}

impl VerbsLinker {
    /// A queue pair whose requests carry up to so many bytes themselves.
    fn queue_pair(&self, inline_room: usize) -> weft_verbs::Result<InitQp> {
        let config = QpConfig {
            max_send_wr: SEND_QUEUE,
            max_inline: u32::try_from(inline_room).unwrap_or(u32::MAX),
            atomic_write: self.is_atomic,
            ..QpConfig::default()
        };
        InitQp::with_config(&self.pd, &self.cq, self.local, &config)
    }
}

impl Linker for VerbsLinker {
    type Transport = VerbsTransport;
    type Offer = QpOffer;

    /// A device that has less room for a request's own bytes than it is asked for refuses to
    /// make the queue pair (`ibv_create_qp(3)`: `EINVAL`), so it is asked for less.
    fn offer(&self) -> Result<QpOffer, FabricError> {
        let mut inline_room = self.inline_room.load(Ordering::Relaxed);
        let qp = loop {
            let less = INLINE_ROOMS.into_iter().find(|&room| room < inline_room);
            match (self.queue_pair(inline_room), less) {
                (Ok(qp), _) => break qp,
                (Err(error), Some(less)) if error.errno() == Some(libc::EINVAL) => {
                    inline_room = less;
                }
                (Err(error), _) => return Err(refusal(self.addr, &error)),
            }
        };
        self.inline_room.store(inline_room, Ordering::Relaxed);
        Ok(QpOffer { qp, inline_room })
    }

    fn card(&self, offer: &QpOffer) -> Vec<u8> {
        let mut card = offer.qp.endpoint().encode().to_vec();
        card.extend(self.pages.addr().to_le_bytes());
        card.extend(self.rkey.to_le_bytes());
        card
    }

    fn link(&self, peer: usize, offer: QpOffer, card: &[u8]) -> Result<Link, FabricError> {
        let what = "its card cannot be read";
        let (address, target) = read_card(card).ok_or(FabricError::Protocol { peer, what })?;
        let qp = offer.qp.connect(&address);
        let qp = qp.map_err(|error| refusal(self.addr, &error))?;
        Ok(Link::new(qp, target, offer.inline_room))
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
