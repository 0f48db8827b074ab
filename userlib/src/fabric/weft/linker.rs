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
    Access, Connector, Device, Error, Gid, MemoryRegion, QpConfig, Queues, QueuesConfig, Remote,
};

/// The card: the node's GID, the memory's address, its key.
const CARD_BYTES: usize = 16 + 8 + 4;
const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// By which keys peers reach a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// All by one: none can be cut off without the others.
    One,
    /// Each by one of its own. The memory is registered, and its pages count, once for each.
    OwnEach,
}

/// Where a node gets its part of the module.
pub(super) struct Port {
    /// The node's address, for errors.
    pub(super) addr: SocketAddr,
    /// By the index that `weftctl nodes` shows; the first one, if none.
    pub(super) device: Option<u32>,
    pub(super) words: Words,
    pub(super) keys: Keys,
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
            let mr = Arc::new(MemoryRegion::allocate(&device, bytes, ACCESS)?);
            let queues = Queues::create(&device, &config)?;
            Ok((device, gid, mr, queues))
        };
        let (device, gid, mr, queues) = set_up().map_err(|error| self.error(&error))?;
        let memory = memory_of(&mr, region_bytes)?;
        let is_single = self.words.are_single(true);
        let linker = WeftLinker {
            port: self,
            device,
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
    device: Device,
    gid: Gid,
    mr: Arc<MemoryRegion>,
    connector: Connector,
}

/// A key of a peer's own: it is no key any more once this is dropped.
#[derive(Debug)]
pub(super) struct Key {
    region: MemoryRegion,
    /// Unmapped after the registration has gone.
    _memory: Arc<MemoryRegion>,
}

impl Linker for WeftLinker {
    type Transport = WeftTransport;
    /// None where all peers have the same key.
    type Offer = Option<Key>;

    fn offer(&self) -> Result<Option<Key>, FabricError> {
        if self.port.keys == Keys::One {
            return Ok(None);
        }
        let addr = usize::try_from(self.mr.addr()).unwrap_or(0);
        let addr = NonNull::new(std::ptr::with_exposed_provenance_mut(addr));
        let addr = addr.ok_or(FabricError::BadRegion(0))?;
        // SAFETY: the key keeps the memory's first registration, which has it mapped and hands
        // out its address as a number only. Words of both are at the same places.
        let region =
            unsafe { MemoryRegion::register_raw(&self.device, addr, self.mr.len(), ACCESS) };
        Ok(Some(Key {
            region: region.map_err(|error| self.port.error(&error))?,
            _memory: Arc::clone(&self.mr),
        }))
    }

    fn card(&self, offer: &Option<Key>) -> Vec<u8> {
        let region = offer.as_ref().map_or(&*self.mr, |key| &key.region);
        let Remote { addr, rkey } = region.remote();
        [&self.gid.0[..], &addr.to_le_bytes(), &rkey.to_le_bytes()].concat()
    }

    fn link(&self, peer: usize, offer: Option<Key>, card: &[u8]) -> Result<Link, FabricError> {
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
