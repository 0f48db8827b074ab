// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft's virtual queue pairs, through `weft-shim`: nodes that connect in
//! microseconds, over connections that the module shares among processes.
//!
//! Each node has one VQP to each peer, and all of them share their queues: what a node
//! posts to all peers in a round goes to the module in one call. Making and connecting them takes no
//! network hardware; what the nodes tell each other over TCP is where their
//! memory is and which RDMA port they are at.
//!
//! Words that go one by one ([`Words`]) are WRITEs of 8 bytes here, which the
//! module stores with one instruction. (One that it sends by soft-RoCE's RC, as `pool=rc`
//! makes it, is copied by soft-RoCE instead: see [`crate::fabric`].)

mod outgoing;
mod transport;

use super::rdma::control::{Memory, CONTROL_BYTES};
use super::rdma::meeting::{self, meet, Met, Node, Place};
use super::rdma::{self, Own};
use super::{Connected, Fabric, FabricError, Words};
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use transport::{Link, WeftTransport, BATCH, SEND_QUEUE};
use weft_shim::{
    Access, Device, Error, Gid, MemoryRegion, QpConfig, Queues, QueuesConfig, Remote, MAX_MR_BYTES,
};

/// Says that a node uses this fabric.
const KIND: u8 = 2;
/// The card: the node's GID, the memory's address, its key.
const CARD_BYTES: usize = 16 + 8 + 4;
/// Longest region of a node: what the module registers at once, without the
/// fabric's own page.
pub const MAX_WEFT_REGION_BYTES: usize = MAX_MR_BYTES as usize - CONTROL_BYTES;

/// A node of a fabric over Weft, before it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weft {
    place: Place,
    words: Words,
    device: Option<u32>,
}

impl Weft {
    /// The node at `rank` of a list of addresses, one for each node, the same
    /// everywhere. Nodes meet there over TCP. Their data goes by the first RDMA
    /// port of the network namespace that [`Fabric::connect`] is called in.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`].
    pub fn new(rank: usize, addrs: &[SocketAddr]) -> Result<Self, FabricError> {
        Ok(Self {
            place: Place::new(rank, addrs)?,
            words: Words::default(),
            device: None,
        })
    }

    /// Another RDMA port, by the index that `weftctl nodes` shows.
    #[must_use]
    pub fn device(self, index: u32) -> Self {
        let device = Some(index);
        Self { device, ..self }
    }

    /// How words get there whole, if the default is not right.
    #[must_use]
    pub fn words(self, words: Words) -> Self {
        Self { words, ..self }
    }

    fn error(&self, error: &weft_shim::Error) -> FabricError {
        FabricError::Rdma {
            addr: self.place.own(),
            reason: error.to_string(),
        }
    }

    /// Opens a session, and registers the node's memory.
    fn open(&self, region_bytes: usize) -> Result<Stack, FabricError> {
        let bytes = Memory::bytes(region_bytes)?;
        if region_bytes > MAX_WEFT_REGION_BYTES {
            return Err(FabricError::RegionTooLong {
                bytes: region_bytes,
                max: MAX_WEFT_REGION_BYTES,
            });
        }
        let set_up = || {
            let device = match self.device {
                Some(index) => Device::open_on(index)?,
                None => Device::open()?,
            };
            let mut nodes = device.nodes()?.into_iter();
            let node = nodes.find(|node| node.index == device.node());
            let gid = node.ok_or(weft_shim::Error::NodeGone)?.gid;
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
            let mr = Arc::new(MemoryRegion::allocate(&device, bytes, access)?);
            Ok(Stack { device, gid, mr })
        };
        set_up().map_err(|error| self.error(&error))
    }

    /// Connects a VQP to a peer.
    fn link(&self, queues: &Queues, peer: &Met) -> Result<Link, FabricError> {
        let (gid, target) = read_card(&peer.card).ok_or(FabricError::Protocol {
            peer: peer.rank,
            what: "its card cannot be read",
        })?;
        let config = QpConfig {
            max_send_wr: SEND_QUEUE,
            ..QpConfig::default()
        };
        let qp = loop {
            match queues.connect(gid, 0, &config) {
                // A signal's handler may have run meanwhile; nothing else has changed.
                Err(Error::Interrupted) => {}
                connected => break connected.map_err(|error| self.error(&error))?,
            }
        };
        Ok(Link::new(qp, target))
    }

    /// Queues with room for all that may be under way to so many peers.
    fn queues(&self, stack: &Stack, peers: usize) -> Result<Queues, FabricError> {
        let config = QueuesConfig {
            max_send_wr: BATCH as u32,
            max_wc: SEND_QUEUE * u32::try_from(peers.max(1)).unwrap_or(u32::MAX),
            max_recv_wr: 0,
        };
        Queues::create(&stack.device, &config).map_err(|error| self.error(&error))
    }
}

/// What a node has of the module.
struct Stack {
    device: Device,
    gid: Gid,
    mr: Arc<MemoryRegion>,
}

impl Stack {
    fn card(&self) -> Vec<u8> {
        let Remote { addr, rkey } = self.mr.remote();
        [&self.gid.0[..], &addr.to_le_bytes(), &rkey.to_le_bytes()].concat()
    }

    fn memory(&self, region_bytes: usize) -> Result<Memory, FabricError> {
        let addr = usize::try_from(self.mr.addr()).unwrap_or(0);
        let first = std::ptr::with_exposed_provenance_mut(addr);
        let base = NonNull::new(first).ok_or(FabricError::BadRegion(region_bytes))?;
        // SAFETY: the memory is mapped while the registration lives, begins at a
        // page, is as long as the control page and the region, and is handed out
        // by the shim as a number only.
        Ok(unsafe { Memory::new(base, region_bytes, Arc::clone(&self.mr) as _) })
    }
}

// SAFETY: the endpoint is that of `rdma`, over VQPs that keep their order.
unsafe impl Fabric for Weft {
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
        let stack = self.open(region_bytes)?;
        let memory = stack.memory(region_bytes)?;
        let node = Node {
            place: &self.place,
            kind: KIND,
            region_bytes,
            hello,
            card: &|_| stack.card(),
        };
        let met = meet(&node, end)?;
        let mut links: Vec<Option<Link>> = (0..self.place.nodes()).map(|_| None).collect();
        let queues = self.queues(&stack, met.len())?;
        for peer in &met {
            links[peer.rank] = Some(self.link(&queues, peer)?);
        }
        let is_single = self.words.are_single(true);
        let transport = WeftTransport::new(links, queues, stack.mr, memory.all.clone(), is_single);
        let own = Own {
            rank: self.place.rank,
            hello,
            memory,
        };
        rdma::connect(own, met, transport, end)
    }
}

fn read_card(card: &[u8]) -> Option<(Gid, Remote)> {
    let card: &[u8; CARD_BYTES] = card.try_into().ok()?;
    let (gid, memory) = card.split_first_chunk()?;
    let (addr, rkey) = memory.split_first_chunk()?;
    let gid = Gid(*gid);
    let remote = Remote {
        addr: u64::from_le_bytes(*addr),
        rkey: u32::from_le_bytes(rkey.try_into().ok()?),
    };
    (!gid.is_zero()).then_some((gid, remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_card() {
        assert!(read_card(&[]).is_none());
        assert!(read_card(&[0; CARD_BYTES]).is_none());
        assert!(read_card(&[1; CARD_BYTES + 1]).is_none());
        let (gid, remote) = read_card(&[1; CARD_BYTES]).expect("a card");
        assert_eq!(gid, Gid([1; 16]));
        assert_eq!(
            (remote.addr, remote.rkey),
            (0x0101_0101_0101_0101, 0x0101_0101)
        );
    }

    #[test]
    fn a_region_that_the_module_would_refuse_is_refused_here() {
        let here = SocketAddr::from(([127, 0, 0, 1], 7000));
        let connect = |bytes| {
            let node = Weft::new(0, &[here]).expect("a place");
            // SAFETY: nothing is done with it.
            unsafe { node.connect(bytes, &[], Duration::ZERO) }.err()
        };
        assert_eq!(connect(0), Some(FabricError::BadRegion(0)));
        let bytes = MAX_WEFT_REGION_BYTES + 1;
        assert!(matches!(
            connect(bytes),
            Some(FabricError::RegionTooLong { .. })
        ));
    }
}
