// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs on rings of other VQPs, peers of unconnected ones, and requests that name any VQP
//! and any peer.

use std::os::fd::{AsFd as _, AsRawFd as _};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use weft_core::uapi::{
    self, CqNotify, PeerOpen, Pod, SendWr, VqpCreate, RINGS_NONE, VQP_SHARED_RECEIVE,
    VQP_UNCONNECTED,
};

use super::requests::PORTS;
use super::{Fuzzer, Peer, Queue};
use crate::world::gid;

/// Peers that a session has open before others are closed.
const PEERS: usize = 16;
/// Handles of what is gone that a thread remembers.
const GONE: usize = 32;

impl Fuzzer<'_> {
    /// Makes a VQP on the rings of another one, connected or not, or never to be.
    pub(super) fn create_light(&mut self, at: usize) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let Some(on) = queues.get(self.rng.below(queues.len().max(1))).cloned() else {
            return self.create(at);
        };
        let receive_at = self.rng.below(queues.len());
        let receive = queues[receive_at].rings.said.of_rings;
        let is_unconnected = self.rng.below(3) == 0;
        let to = (!is_unconnected && self.rng.below(3) > 0).then(|| self.rng.below(2) as u8);
        let (rq, flags) = match self.rng.below(4) {
            _ if is_unconnected => (RINGS_NONE, VQP_UNCONNECTED),
            0 => (RINGS_NONE, 0),
            1 => (on.rings.said.of_rings.rings, 0),
            _ => (receive.rings, VQP_SHARED_RECEIVE),
        };
        let mut arg = VqpCreate {
            cq: on.rings.said.of_rings.rings,
            rq,
            max_send_wr: [1, 4, 64, 1024][self.rng.below(4)],
            flags,
            gid: to.map_or_else(Default::default, gid),
            port: to.map_or(0, |_| self.rng.below(PORTS + 1) as u32),
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        self.call(&session, uapi::IOC_VQP_CREATE, &mut arg)?;
        if self.is_child {
            return Ok(());
        }
        self.stats.add("VQPs on shared rings", 1);
        self.known[at].queues.push(Queue {
            handle: arg.vqp,
            to: to.or(is_unconnected.then_some(1)),
            has_port: arg.port != 0,
            is_unconnected,
            is_bound: false,
            sender: None,
            failed: false,
            rings: on.rings,
        });
        Ok(())
    }

    /// Opens a peer, or closes one.
    pub(super) fn peer(&mut self, at: usize) -> Result<(), Errno> {
        let session = self.known[at].session.clone();
        let count = self.known[at].peers.len();
        if count >= PEERS || (count > 0 && self.rng.below(3) == 0) {
            let gone = self.rng.below(count);
            let peer = self.known[at].peers.swap_remove(gone).handle;
            self.forget(peer);
            let mut arg = uapi::PeerHandle { peer, reserved: 0 };
            return self
                .call(&session, uapi::IOC_PEER_CLOSE, &mut arg)
                .map(drop);
        }
        let to = self.rng.below(2) as u8;
        let mut arg = PeerOpen {
            gid: gid(to),
            port: self.rng.below(PORTS + 1) as u32,
            ..Pod::zeroed()
        };
        self.call(&session, uapi::IOC_PEER_OPEN, &mut arg)?;
        if !self.is_child {
            let handle = arg.peer;
            self.known[at].peers.push(Peer { handle, to });
        }
        Ok(())
    }

    /// Has an eventfd, or what is none, signalled for a VQP's completions.
    pub(super) fn notify(&mut self, at: usize) -> Result<(), Errno> {
        let session = self.known[at].session.clone();
        let chosen = self.rng.below(self.known[at].queues.len());
        let rings = self.known[at].queues[chosen].rings.said.of_rings.rings;
        let eventfd = EventFd::new()?;
        let mut arg = CqNotify {
            rings,
            eventfd: match self.rng.below(4) {
                0 => self.rng.below(64) as u32,
                _ => eventfd.as_fd().as_raw_fd() as u32,
            },
            count: 1 + self.rng.below(8) as u32,
            period_us: 1 + self.rng.below(1000) as u32,
            ..Pod::zeroed()
        };
        self.call(&session, uapi::IOC_CQ_NOTIFY, &mut arg).map(drop)
    }

    /// Remembers a handle that names nothing any more.
    pub(super) fn forget(&mut self, handle: u32) {
        if self.gone.len() < GONE {
            return self.gone.push(handle);
        }
        let at = self.rng.below(GONE);
        self.gone[at] = handle;
    }

    /// The request as one of the queue, or of another one of its session; to a peer, if that
    /// is unconnected.
    pub(super) fn name(&mut self, at: usize, queue: &Queue, wr: SendWr) -> SendWr {
        let any = self.rng.below(20) == 0;
        let mut of = queue;
        let queues = &self.known[at].queues;
        if self.rng.below(8) == 0 {
            // Its memory should be where the request's is.
            let alike: Vec<&Queue> = queues.iter().filter(|q| any || q.to == queue.to).collect();
            of = alike
                .get(self.rng.below(alike.len().max(1)))
                .copied()
                .unwrap_or(of);
        }
        let (mut vqp, mut peer) = (of.handle, 0);
        if of.is_unconnected {
            let is_there = |peer: &&Peer| any || Some(peer.to) == queue.to;
            let peers: Vec<&Peer> = self.known[at].peers.iter().filter(is_there).collect();
            let chosen = peers.get(self.rng.below(peers.len().max(1)));
            peer = chosen.map_or(0, |peer| peer.handle);
        }
        match self.rng.below(400) {
            0 => vqp = self.any_handle(),
            1 => peer = self.any_handle(),
            _ => {}
        }
        SendWr { vqp, peer, ..wr }
    }

    /// A handle of another session, of what is gone, or none at all.
    pub(super) fn any_handle(&mut self) -> u32 {
        let foreign = self.rng.below(self.known.len());
        let known = &self.known[foreign];
        let of_session = match self.rng.below(3) {
            0 => known.peers.first().map(|peer| peer.handle),
            1 => known
                .queues
                .first()
                .map(|queue| queue.rings.said.of_rings.rings),
            _ => known.queues.last().map(|queue| queue.handle),
        };
        let gone = self
            .gone
            .get(self.rng.below(self.gone.len().max(1)))
            .copied();
        match self.rng.below(3) {
            0 => self.rng.next() as u32,
            1 => gone.unwrap_or(0),
            _ => of_session.unwrap_or(u32::MAX),
        }
    }

    /// The rings that a call waits for: mostly those that it submits from.
    pub(super) fn rings_to_wait_for(&mut self, at: usize, queue: &Queue) -> u32 {
        let own = queue.rings.said.of_rings.rings;
        let queues = &self.known[at].queues;
        match self.rng.below(12) {
            0 => self.any_handle(),
            1..=3 => {
                let other = queues.get(self.rng.below(queues.len().max(1)));
                other.map_or(own, |other| other.rings.said.of_rings.rings)
            }
            _ => own,
        }
    }
}
