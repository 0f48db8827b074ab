// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the checks of shared rings stand on: a session on node 0 with one set of rings,
//! and regions of nodes 1 and 2 in slots.

use std::collections::HashMap;

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::uapi::{
    self, MrReg, Pod, RingsCreate, SendWr, Sge, VqpCreate, Wc, WcStatus, OP_READ, OP_WRITE,
    RINGS_NONE, SEND_SIGNALED,
};

use crate::raw::{request, Memory, Queue, Session};
use crate::world::gid;

/// Bytes of a slot.
pub const SLOT: usize = 4096;
/// Slots of a region.
pub const SLOTS: usize = 256;
/// What takes longer is lost, on the slowest machine.
pub const PATIENCE_NS: u64 = 60_000_000_000;
/// Bytes of a region.
pub const REGION: usize = SLOT * SLOTS;

/// A region on another node.
pub struct Peer {
    /// The node.
    pub node: u8,
    /// The session that has it.
    pub session: Session,
    /// Its bytes.
    pub memory: Memory,
    /// Its keys.
    pub region: MrReg,
}

impl Peer {
    /// A region of all slots.
    pub fn new(node: u8) -> Result<Self> {
        let session = Session::open(node.into())?;
        let memory = Memory::map(REGION)?;
        let region = session.register(&memory, 0, REGION as u64, uapi::ACCESS_ALL)?;
        Ok(Self {
            node,
            session,
            memory,
            region,
        })
    }

    /// The bytes at the beginning of a slot.
    pub fn slot(&self, slot: usize, len: usize) -> Vec<u8> {
        self.memory.bytes(slot * SLOT, len)
    }
}

/// Rings of node 0, and peers.
pub struct Scene {
    /// The session that has the rings.
    pub session: Session,
    /// The rings.
    pub rings: RingsCreate,
    /// Their mapping.
    pub queue: Queue,
    /// As many slots as a peer's to write from, then as many to read into.
    pub memory: Memory,
    local: MrReg,
    /// Nodes 1 and 2.
    pub peers: [Peer; 2],
}

impl Scene {
    /// One whose rings have so much room.
    pub fn new(max_send_wr: u32, max_wc: u32, max_recv_wr: u32) -> Result<Self> {
        let session = Session::open(0)?;
        let rings = session.make_rings(max_send_wr, max_wc, max_recv_wr)?;
        let memory = Memory::map(2 * REGION)?;
        Ok(Self {
            queue: Queue::of_rings(&session, &rings)?,
            local: session.register(&memory, 0, 2 * REGION as u64, uapi::ACCESS_ALL)?,
            rings,
            memory,
            session,
            peers: [Peer::new(1)?, Peer::new(2)?],
        })
    }

    /// A VQP on the rings that receives nothing, to be made.
    pub fn vqp_arg(&self, max_send_wr: u32) -> VqpCreate {
        VqpCreate {
            cq: self.rings.rings,
            rq: RINGS_NONE,
            max_send_wr,
            ..Pod::zeroed()
        }
    }

    /// A VQP that is made and connected in one call; `to` is an index into the peers.
    pub fn vqp(&self, to: usize, max_send_wr: u32) -> Result<u32, Errno> {
        self.session.make_vqp(VqpCreate {
            gid: gid(self.peers[to].node),
            ..self.vqp_arg(max_send_wr)
        })
    }

    /// VQPs, to the one peer and the other in turn.
    pub fn vqps(&self, count: usize, max_send_wr: u32) -> Result<Vec<u32>, Errno> {
        (0..count).map(|at| self.vqp(at % 2, max_send_wr)).collect()
    }

    /// A VQP that is not connected.
    pub fn unconnected(&self, max_send_wr: u32) -> Result<u32, Errno> {
        self.session.make_vqp(VqpCreate {
            flags: uapi::VQP_UNCONNECTED,
            ..self.vqp_arg(max_send_wr)
        })
    }

    /// Handles of the one peer and the other in turn.
    pub fn handles(&self, count: usize) -> Result<Vec<u32>, Errno> {
        let open = |at: usize| self.session.open_peer(gid(self.peers[at % 2].node), 0);
        (0..count).map(open).collect()
    }

    /// A WRITE of a slot here to the same one there.
    pub fn write(&self, vqp: u32, to: usize, slot: usize, len: usize) -> SendWr {
        let region = &self.peers[to].region;
        let at = (slot * SLOT) as u64;
        SendWr {
            vqp,
            ..request(OP_WRITE, self.sge(at, len), region.addr + at, region.rkey)
        }
    }

    /// A READ of a slot there to the place for it here.
    pub fn read(&self, vqp: u32, to: usize, slot: usize, len: usize) -> SendWr {
        let region = &self.peers[to].region;
        let at = (slot * SLOT) as u64;
        let into = self.sge(REGION as u64 + at, len);
        SendWr {
            vqp,
            ..request(OP_READ, into, region.addr + at, region.rkey)
        }
    }

    /// Memory here, in the one region of both.
    pub fn sge(&self, at: u64, len: usize) -> Sge {
        Sge {
            addr: self.local.addr + at,
            len: len as u32,
            lkey: self.local.lkey,
        }
    }

    /// Puts bytes where a WRITE takes them.
    pub fn fill(&self, slot: usize, bytes: &[u8]) {
        self.memory.fill(slot * SLOT, bytes);
    }

    /// The bytes that a READ has brought.
    pub fn landed(&self, slot: usize, len: usize) -> Vec<u8> {
        self.memory.bytes(REGION + slot * SLOT, len)
    }

    /// One call that submits and does not wait.
    pub fn post(&self, wrs: &[SendWr]) -> Result<usize, Errno> {
        self.queue
            .submit(&self.session, wrs, self.rings.rings, 0, 0)
    }

    /// One call that submits, all or nothing, and does not wait.
    pub fn post_all(&self, wrs: &[SendWr]) -> Result<()> {
        let taken = self.post(wrs)?;
        ensure!(taken == wrs.len(), "{taken} of {} were taken", wrs.len());
        Ok(())
    }

    /// Waits for completions and takes them.
    pub fn collect(&self, count: usize) -> Result<Vec<Wc>> {
        let mut all: Vec<Wc> = Vec::new();
        while all.len() < count {
            let left = count - all.len();
            let min = left.min(self.rings.max_wc as usize) as u32;
            let rings = self.rings.rings;
            self.session.enter_rings(rings, 0, min, PATIENCE_NS)?;
            let taken = self.take(left);
            ensure!(
                !taken.is_empty(),
                "only {} of {count} completions",
                all.len()
            );
            all.extend(taken);
        }
        Ok(all)
    }

    /// Takes completions that are there, at most so many.
    pub fn take(&self, most: usize) -> Vec<Wc> {
        let mut wcs = vec![Wc::zeroed(); most];
        let taken = self.queue.take(&mut wcs);
        wcs.truncate(taken);
        wcs
    }

    /// Posts all of them, however many calls that takes, and waits for `expected`
    /// completions.
    pub fn drive(&self, wrs: &[SendWr], expected: usize) -> Result<Vec<Wc>> {
        let (mut posted, mut all) = (0, Vec::new());
        while posted < wrs.len() || all.len() < expected {
            let end = wrs.len().min(posted + self.rings.sq_entries as usize);
            let (batch, min) = (&wrs[posted..end], expected.saturating_sub(all.len()).min(1));
            let rings = self.rings.rings;
            let outcome = self
                .queue
                .submit(&self.session, batch, rings, min as u32, PATIENCE_NS);
            let taken = match outcome {
                Err(Errno::ENOSPC) => 0,
                other => other?,
            };
            let wcs = self.take(self.rings.cq_entries as usize);
            ensure!(
                taken + wcs.len() > 0,
                "{posted} of {} were posted, {} completed, and nothing goes on",
                wrs.len(),
                all.len()
            );
            posted += taken;
            all.extend(wcs);
        }
        ensure!(
            all.len() == expected,
            "{} completions, not {expected}",
            all.len()
        );
        Ok(all)
    }

    /// There is no completion.
    pub fn is_quiet(&self) -> Result<()> {
        let wcs = self.take(4);
        ensure!(wcs.is_empty(), "there is {wcs:?}");
        Ok(())
    }
}

/// The request, to make a completion with this number.
pub fn signaled(wr: SendWr, wr_id: u64) -> SendWr {
    SendWr {
        wr_id,
        flags: wr.flags | SEND_SIGNALED,
        ..wr
    }
}

/// The request to a peer that was opened.
pub fn by(wr: SendWr, peer: u32) -> SendWr {
    SendWr { peer, ..wr }
}

/// The request with a key that nobody gave out.
pub fn with_bad_key(wr: SendWr) -> SendWr {
    let rkey = wr.rkey ^ 0x0005_0000;
    SendWr { rkey, ..wr }
}

/// All have succeeded.
pub fn all_good(wcs: &[Wc]) -> Result<()> {
    let bad = wcs.iter().find(|wc| wc.status != WcStatus::Success as u16);
    ensure!(bad.is_none(), "one ended badly: {bad:?}");
    Ok(())
}

/// The numbers of each VQP's completions, of an unconnected one for each peer, ascend.
pub fn in_order(wcs: &[Wc]) -> Result<()> {
    let mut last = HashMap::new();
    for wc in wcs {
        let before = last.insert((wc.vqp, wc.src), wc.wr_id);
        ensure!(
            before.is_none_or(|before| before < wc.wr_id),
            "{} came after {before:?} on VQP {}",
            wc.wr_id,
            wc.vqp
        );
    }
    Ok(())
}

/// Each number from 0 on is there once.
pub fn once_each(wcs: &[Wc], count: usize) -> Result<()> {
    let mut seen = vec![false; count];
    for wc in wcs {
        let place = seen.get_mut(wc.wr_id as usize);
        let is_new = place.is_some_and(|seen| !std::mem::replace(seen, true));
        ensure!(is_new, "{} was not posted, or came twice", wc.wr_id);
    }
    let missing = seen.iter().position(|seen| !seen);
    ensure!(missing.is_none(), "{missing:?} is lost");
    Ok(())
}

/// How the completions of a VQP ended, in their order.
pub fn statuses(wcs: &[Wc], vqp: u32) -> Vec<u16> {
    let of_it = wcs.iter().filter(|wc| wc.vqp == vqp);
    of_it.map(|wc| wc.status).collect()
}

/// They ended so.
pub fn ended(wcs: &[Wc], vqp: u32, wanted: &[WcStatus]) -> Result<()> {
    let got = statuses(wcs, vqp);
    let wanted: Vec<u16> = wanted.iter().map(|status| *status as u16).collect();
    ensure!(got == wanted, "they ended with {got:?}, not {wanted:?}");
    Ok(())
}
