// SPDX-License-Identifier: GPL-2.0

//! Connecting an RC queue pair, and ending it.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::rc::{
    Blocks, Hello, Lane, PacketEnd, Role, WrId, CQ_ENTRIES, DEPTH, READ_DEPTH, RECEIVES,
};
use weft_core::uapi::{WcStatus, MAX_INLINE};

use crate::dc::Requester;
use crate::mem::{MrTable, TableInfo};
use crate::net::{Endpoint, Handler, PacketOpening, PacketPeer};
use crate::random::{random_u32, random_u64};
use crate::rc::chain::SGES;
use crate::rc::queue::{RcQueue, RemoteTable};
use crate::rc::Claim;
use crate::rdma::{Capacity, Cq, Init, Pd, Port, Qp, Remote};
use crate::text::Shown;

/// PSNs have 24 bits.
const PSN_MASK: u32 = 0x00ff_ffff;
/// How long a broken queue pair may take to flush before it is destroyed anyway.
const FLUSH_MS: u32 = 200;

/// The device's objects that a node's queue pairs are made of, as long as the device is there.
#[derive(Clone)]
pub(super) struct Hardware {
    pub(super) port: Port,
    pub(super) pd: Arc<Pd>,
}

/// A queue pair that does not know its other half yet. Fields are dropped in
/// order.
pub(crate) struct Opening<R: Requester> {
    qp: Option<Qp<Init>>,
    cq: Arc<Cq>,
    hardware: Hardware,
    hello: Hello,
    queue: Arc<RcQueue<R>>,
    /// The one for packets, and what takes those that come. `None`: the device had no more.
    packets: Option<(PacketOpening, Arc<dyn Handler>)>,
}

impl<R: Requester> Opening<R> {
    /// A queue pair of node `own`, of a lane to its peer. Only the first has another one with it
    /// for packets.
    pub(super) fn new(
        hardware: Hardware,
        mrs: &Arc<MrTable>,
        own: Gid,
        lane: Lane,
        role: Role,
        token: Option<u64>,
        (handler, longest): (Arc<dyn Handler>, u32),
    ) -> Result<Self> {
        let port = hardware.port;
        mrs.use_rc()?;
        let TableInfo {
            addr,
            rkey,
            geometry,
        } = mrs.table_info().ok_or_else(crate::errno::not_supported)?;
        let blocks = mrs.block_size().ok_or_else(crate::errno::not_supported)?;
        let token = token.unwrap_or_else(random_u64);
        let nonce = match role {
            Role::Offer => 0,
            Role::Answer => random_u32(),
        };
        let queue = RcQueue::<R>::new(lane, token, nonce, mrs.clone(), port)?;
        // SAFETY: the queue is pinned and counted. It outlives the completion
        // queue: here by the order of fields, later by `shut_down`, which whoever
        // takes it out of the node's list calls first.
        let cq = unsafe { Cq::new(port.device, CQ_ENTRIES, &raw const *queue) }?;
        let cq = Arc::new(cq, GFP_KERNEL)?;
        let capacity = Capacity {
            sends: DEPTH,
            sges: (SGES as u32).min(port.device.most_pieces().0),
            receives: RECEIVES,
            inline: MAX_INLINE,
            lets_access: true,
        };
        let qp = Qp::new(port, hardware.pd.clone(), cq.clone(), &capacity)?;
        // Without it messages go by UDP, as to all peers without RC.
        let packets = match lane.is_first() {
            true => PacketOpening::new(port, hardware.pd.clone(), longest).ok(),
            false => None,
        };
        let hello = Hello {
            role,
            gid: own,
            lane: lane.number,
            token,
            qpn: qp.number(),
            psn: random_u32() & PSN_MASK,
            mtu: port.active_mtu().ok_or(ENODEV)?,
            read_depth: READ_DEPTH.min(port.device.read_depths().0),
            table_addr: addr,
            table_rkey: rkey,
            geometry,
            blocks,
            nonce,
            packets: packets.as_ref().map(PacketOpening::end),
        };
        Ok(Self {
            qp: Some(qp),
            cq,
            hardware,
            hello,
            queue,
            packets: packets.map(|packets| (packets, handler)),
        })
    }

    /// The record to send to the peer.
    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The lane that the queue pair is to be of.
    pub(super) fn lane(&self) -> &Lane {
        &self.queue.lane
    }

    /// Connects to the other half, that of `peer`. The queue is ready to receive; it may not be
    /// used before both ends are.
    pub(super) fn connect(mut self, theirs: &Hello, peer: &Claim) -> Result<Arc<RcQueue<R>>> {
        let qp = self.qp.take().ok_or(EINVAL)?;
        let queue = &self.queue;
        queue.remote.set(RemoteTable {
            addr: theirs.table_addr,
            rkey: theirs.table_rkey,
            geometry: theirs.geometry,
            blocks: Blocks {
                local: self.hello.blocks,
                remote: theirs.blocks,
            },
        });
        queue.peer.set(*peer);
        if self.hello.role == Role::Answer {
            qp.post_empty_receive(WrId::Receive.encode())?;
        }
        let to = Remote {
            gid: theirs.gid,
            qpn: theirs.qpn,
            psn: theirs.psn,
            mtu: theirs.mtu.min(self.hello.mtu),
            read_depth: theirs.read_depth,
        };
        let port = self.hardware.port;
        let sends = READ_DEPTH.min(port.device.read_depths().1);
        // Before the peer can reach a region, so that none goes behind its back.
        queue.mrs.add_link(queue.token)?;
        let hello = &self.hello;
        let qp = qp
            .connect(port, &hello.gid, &to, hello.psn, (hello.read_depth, sends))
            .inspect_err(|_| queue.mrs.remove_link(queue.token))?;
        queue.reaping.lock().cq = Some(self.cq.clone());
        queue.posting.lock().qp = Some(qp);
        let queue = queue.clone();
        if let Some(end) = theirs.packets {
            self.connect_packets(theirs, end, peer.from);
        }
        Ok(queue)
    }

    /// Connects the queue pair for packets. If that fails, messages go by UDP.
    fn connect_packets(&mut self, theirs: &Hello, end: PacketEnd, endpoint: Endpoint) {
        let Some((packets, handler)) = self.packets.take() else {
            return;
        };
        let peer = PacketPeer {
            gid: theirs.gid,
            endpoint,
            mtu: theirs.mtu.min(self.hello.mtu),
            end,
        };
        match packets.connect(self.hardware.port, &self.hello.gid, &peer, handler) {
            Ok(link) => {
                self.queue.packets.set(link);
            }
            Err(error) => pr_debug!("no RC for packets to {}: {error:?}\n", Shown(theirs.gid)),
        }
    }
}

impl<R: Requester> Drop for Opening<R> {
    fn drop(&mut self) {
        let connected = self.queue.posting.lock().qp.is_some();
        if !connected {
            // The queue dies with this.
            self.queue.stop_work();
        }
    }
}

impl<R: Requester> RcQueue<R> {
    /// The end that offered: tells the other that both are ready. `nonce` proves that
    /// this end has seen the answer.
    pub(super) fn complete_offer(&self, nonce: u32) -> Result {
        self.tell_ready(nonce)?;
        self.up.store(true, Ordering::Release);
        Ok(())
    }

    /// The end that answers: waits, in the background, to be told.
    pub(super) fn complete_answer(&self) {
        self.arm();
    }

    /// Shuts one down that has been retired: no request is on its way when this returns, and no
    /// peer reaches this node's memory through it. May sleep, briefly; may be called again.
    pub(super) fn shut_down(&self) {
        // Another one that shuts it down waits for the end of that.
        let _ending = self.ending.lock();
        if let Some(packets) = self.packets() {
            packets.shut_down();
        }
        let qp = self.posting.lock().qp.take();
        if let Some(qp) = qp {
            // In error it completes all that was posted, with `IB_WC_WR_FLUSH_ERR` (IBTA vol. 1,
            // chapter 10; C10-96). A device that does not, because it is gone or hangs, is not
            // waited for.
            qp.fail();
            for _ in 0..FLUSH_MS {
                self.poll();
                if self.window.outstanding() == 0 {
                    break;
                }
                kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
            }
            drop(qp);
            let cq = {
                let mut reaping = self.reaping.lock();
                reaping.rest = Some(WcStatus::WrFlushErr);
                reaping.cq.take()
            };
            drop(cq);
            self.mrs.remove_link(self.token);
        }
        // Ends the requests that the device did not flush, and those that were refused meanwhile.
        self.poll();
        // Nobody waits for the buffer any more: its request has ended.
        let buffer = self.control.lock().take();
        drop(buffer);
    }
}
