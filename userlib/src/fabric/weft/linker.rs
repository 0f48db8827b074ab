// SPDX-License-Identifier: MIT OR Apache-2.0

//! What makes VQPs to peers, and the keys by which they reach this node's memory.

use super::transport::{Link, WeftTransport, BATCH, SEND_QUEUE};
use super::MAX_WEFT_REGION_BYTES;
use crate::fabric::rdma::control::Memory;
use crate::fabric::rdma::seats::Opened;
use crate::fabric::rdma::Linker;
use crate::fabric::{FabricError, Words};
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use weft_shim::{
    Access, Connector, Device, Error, Gid, MemoryRegion, MemoryWindow, QpConfig, Queues,
    QueuesConfig, Remote,
};

/// The card: the node's GID, the memory's address, its key.
const CARD_BYTES: usize = 16 + 8 + 4;
/// The rights of each peer, by a memory window of its own.
const RIGHTS: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

/// Where a node gets its part of the module.
pub(super) struct Port {
    /// The node's address, for errors.
    pub(super) addr: SocketAddr,
    /// By the index that `weftctl nodes` shows; the first one, if none.
    pub(super) device: Option<u32>,
    pub(super) words: Words,
}

impl Port {
    /// Opens a session, registers the node's memory, and makes queues with room for all that
    /// may be under way to so many nodes.
    pub(super) fn open(
        self,
        region_bytes: usize,
        nodes: usize,
    ) -> Result<Opened<WeftLinker>, FabricError> {
        let bytes = Memory::bytes(region_bytes)?;
        if region_bytes > MAX_WEFT_REGION_BYTES {
            return Err(FabricError::RegionTooLong {
                bytes: region_bytes,
                max: MAX_WEFT_REGION_BYTES,
            });
        }
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let config = QueuesConfig {
            max_send_wr: BATCH as u32,
            max_wc: SEND_QUEUE * nodes,
            max_recv_wr: 0,
        };
        let set_up = || {
            let device = match self.device {
                Some(index) => Device::open_on(index)?,
                None => Device::open()?,
            };
            let mut known = device.nodes()?.into_iter();
            let node = known.find(|node| node.index == device.node());
            let gid = node.ok_or(Error::NodeGone)?.gid;
            let mr = Arc::new(MemoryRegion::allocate(&device, bytes, Access::LOCAL_WRITE)?);
            let queues = Queues::create(&device, &config)?;
            Ok((gid, mr, queues))
        };
        let (gid, mr, queues) = set_up().map_err(|error| self.error(&error))?;
        let memory = memory_of(&mr, region_bytes)?;
        let is_single = self.words.are_single(true);
        let linker = WeftLinker {
            port: self,
            gid,
            mr: Arc::clone(&mr),
            connector: queues.connector(),
        };
        let nodes = nodes as usize;
        let transport = WeftTransport::new(nodes, queues, mr, memory.all.clone(), is_single);
        Ok(Opened {
            memory,
            linker,
            transport,
        })
    }

    fn error(&self, error: &Error) -> FabricError {
        FabricError::Rdma {
            addr: self.addr,
            reason: error.to_string(),
        }
    }
}

fn memory_of(mr: &Arc<MemoryRegion>, region_bytes: usize) -> Result<Memory, FabricError> {
    let addr = usize::try_from(mr.addr()).unwrap_or(0);
    let first = std::ptr::with_exposed_provenance_mut(addr);
    let base = NonNull::new(first).ok_or(FabricError::BadRegion(region_bytes))?;
    // SAFETY: the memory is mapped while the registration lives, begins at a
    // page, is as long as the control page and the region, and is handed out
    // by the shim as a number only.
    Ok(unsafe { Memory::new(base, region_bytes, Arc::clone(mr) as _) })
}

/// What makes VQPs to peers.
pub(super) struct WeftLinker {
    port: Port,
    gid: Gid,
    mr: Arc<MemoryRegion>,
    connector: Connector,
}

impl Linker for WeftLinker {
    type Transport = WeftTransport;
    /// The peer's own key to this node's memory.
    type Offer = MemoryWindow;

    fn offer(&self) -> Result<MemoryWindow, FabricError> {
        let window = MemoryWindow::bind(&self.mr, 0..self.mr.len(), RIGHTS);
        window.map_err(|error| self.port.error(&error))
    }

    fn card(&self, offer: &MemoryWindow) -> Vec<u8> {
        let Remote { addr, rkey } = offer.remote();
        [&self.gid.0[..], &addr.to_le_bytes(), &rkey.to_le_bytes()].concat()
    }

    fn link(&self, peer: usize, offer: MemoryWindow, card: &[u8]) -> Result<Link, FabricError> {
        let what = "its card cannot be read";
        let (gid, target) = read_card(card).ok_or(FabricError::Protocol { peer, what })?;
        let config = QpConfig {
            max_send_wr: SEND_QUEUE,
            ..QpConfig::default()
        };
        loop {
            match self.connector.connect(gid, 0, &config) {
                // A signal's handler may have run meanwhile; nothing else has changed.
                Err(Error::Interrupted) => {}
                Err(error) => return Err(self.port.error(&error)),
                Ok(qp) => return Ok(Link::new(qp, target, offer)),
            }
        }
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
}
