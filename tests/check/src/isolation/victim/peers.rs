// SPDX-License-Identifier: MIT OR Apache-2.0

//! The victim's VQP that is not connected, and the peers that it has opened.

use anyhow::{ensure, Context, Result};
use weft_core::uapi::{
    self, MrReg, Pod, SendWr, Sge, VqpCreate, Wc, OP_WRITE, RINGS_NONE, SEND_SIGNALED,
};

use super::super::users::with_reserve;
use crate::raw::{request, Memory, Queue, Session};
use crate::world::gid;

const PEERS: usize = 4;
const PAGE: usize = 4096;
const WAIT_NS: u64 = 60_000_000_000;

/// A page on a node.
struct Page {
    memory: Memory,
    region: MrReg,
}

/// They.
pub(super) struct Peers {
    session: Session,
    _far: Session,
    queue: Queue,
    vqp: u32,
    /// To nodes 0 and 1 in turn.
    pub(super) handles: Vec<u32>,
    local: Page,
    there: [Page; 2],
    rounds: u64,
}

impl Page {
    fn on(session: &Session) -> Result<Self> {
        let memory = Memory::map(PAGE)?;
        Ok(Self {
            region: session.register(&memory, 0, PAGE as u64, uapi::ACCESS_ALL)?,
            memory,
        })
    }
}

impl Peers {
    pub(super) fn new() -> Result<Self> {
        let (session, far) = (Session::open(0)?, with_reserve(|| Session::open(1))?);
        let rings = session.make_rings(16, 16, 0)?;
        let vqp = session.make_vqp(VqpCreate {
            cq: rings.rings,
            rq: RINGS_NONE,
            max_send_wr: 4,
            flags: uapi::VQP_UNCONNECTED,
            ..Pod::zeroed()
        })?;
        let open = |at: usize| session.open_peer(gid((at % 2) as u8), 0);
        let handles = (0..PEERS).map(open).collect::<Result<_, _>>()?;
        Ok(Self {
            queue: Queue::of_rings(&session, &rings)?,
            vqp,
            handles,
            local: Page::on(&session)?,
            there: [Page::on(&session)?, Page::on(&far)?],
            _far: far,
            session,
            rounds: 0,
        })
    }

    /// The handle of the rings.
    pub(super) fn rings(&self) -> u32 {
        self.queue.said.of_rings.rings
    }

    /// One call that writes to all peers.
    pub(super) fn round(&mut self) -> Result<()> {
        self.rounds += 1;
        let one = |(at, peer): (usize, &u32)| {
            let place = 8 * at as u64;
            self.local
                .memory
                .word(8 * at)
                .store(self.rounds + place, std::sync::atomic::Ordering::Relaxed);
            let from = Sge {
                addr: self.local.region.addr + place,
                len: 8,
                lkey: self.local.region.lkey,
            };
            let to = &self.there[at % 2].region;
            SendWr {
                vqp: self.vqp,
                peer: *peer,
                flags: SEND_SIGNALED,
                ..request(OP_WRITE, from, to.addr + place, to.rkey)
            }
        };
        let wrs: Vec<SendWr> = self.handles.iter().enumerate().map(one).collect();
        let taken = self
            .queue
            .submit(&self.session, &wrs, self.rings(), PEERS as u32, WAIT_NS)
            .context("requests to its peers")?;
        let mut wcs = [Wc::zeroed(); 2 * PEERS];
        let done = self.queue.take(&mut wcs);
        let good = wcs[..done].iter().all(|wc| wc.status == 0);
        ensure!(
            taken == PEERS && done == PEERS && good,
            "{taken} requests to peers were taken, of which {done} ended: {:?}",
            &wcs[..done]
        );
        for at in 0..PEERS {
            let there = self.there[at % 2].memory.word(8 * at);
            let value = there.load(std::sync::atomic::Ordering::Relaxed);
            ensure!(
                value == self.rounds + 8 * at as u64,
                "peer {at} has {value}"
            );
        }
        Ok(())
    }
}
