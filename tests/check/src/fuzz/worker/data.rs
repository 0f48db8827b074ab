// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests: put into the ring, submitted, reaped.

use nix::errno::Errno;
use weft_core::uapi::{
    self, Pod, Run, SendWr, Sge, Wc, ACCESS_ALL, MAX_INLINE, MAX_SGE, OP_CAS, OP_FAA, OP_READ,
    OP_SEND, OP_SEND_WITH_IMM, OP_WRITE, OP_WRITE_WITH_IMM, SEND_FENCE, SEND_INLINE, SEND_SIGNALED,
    SRC_NONE,
};

use super::super::arena::DATA_BYTES;
use super::super::mutate::{address, mutate};
use super::requests::OBJECTS;
use super::{Fuzzer, Queue, Region};

/// Requests that are carried out one after the other, at most.
const RUNS: usize = 8;
const FLAGS: [u8; 5] = [
    0,
    0,
    SEND_SIGNALED,
    SEND_SIGNALED,
    SEND_SIGNALED | SEND_FENCE,
];
const OPS: [u8; 10] = [
    OP_WRITE,
    OP_WRITE,
    OP_READ,
    OP_READ,
    OP_CAS,
    OP_FAA,
    OP_SEND,
    OP_SEND,
    OP_SEND_WITH_IMM,
    OP_WRITE_WITH_IMM,
];

impl Fuzzer<'_> {
    pub(super) fn enter(&mut self, at: usize) -> Result<(), Errno> {
        let usable: Vec<usize> = (0..self.known[at].queues.len())
            .filter(|i| self.known[at].queues[*i].to.is_some())
            .collect();
        let chosen = usable[self.rng.below(usable.len())];
        let queue = self.known[at].queues[chosen].clone();
        let count = match self.rng.below(10) {
            0 => 0,
            1 => self.rng.below(200),
            _ => 1 + self.rng.below(16),
        };
        let count = count.min(queue.rings.said.sq_entries as usize);
        self.batch(at, &queue, count);
        let mut arg = uapi::Enter {
            sq: queue.rings.said.of_rings.rings,
            cq: self.rings_to_wait_for(at, &queue),
            wr_count: count as u32,
            wc_min: self.rng.below(count + 1) as u32,
            timeout_ns: self.rng.next() % 3_000_000,
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        let outcome = self.call(&session, uapi::IOC_ENTER, &mut arg);
        match outcome {
            Ok(taken) => {
                queue.rings.took(taken as u32);
                self.stats.add("work requests posted", taken as u64);
            }
            // It may be gone, or a request has named what is.
            Err(Errno::EBADF) if self.rng.below(4) == 0 => {
                self.known[at].queues.swap_remove(chosen);
                return Err(Errno::EBADF);
            }
            Err(_) => {}
        }
        self.reap(at, chosen);
        outcome.map(drop)
    }

    /// Requests that are carried out in the call, half of the time on a VQP that is
    /// new: one of long standing has failed more often than not.
    pub(super) fn run_some(&mut self, at: usize) -> Result<(), Errno> {
        if self.rng.below(2) == 0 {
            if self.known[at].queues.len() >= OBJECTS {
                self.destroy(at)?;
            }
            self.create(at)?;
            // Only what goes to another node goes by RC.
            let to = match self.rng.below(8) {
                0 => self.known[at].node,
                _ => 1 - self.known[at].node,
            };
            self.connect_to(at, to)?;
        }
        // One that is refused says nothing of the next.
        for _ in 0..self.rng.below(RUNS) {
            let _ = self.run_one(at);
        }
        self.run_one(at)
    }

    /// One, on a VQP that has not failed if there is one.
    fn run_one(&mut self, at: usize) -> Result<(), Errno> {
        let is_any = self.rng.below(40) == 0;
        let queues = &self.known[at].queues;
        let with = |may_have_failed: bool| {
            let is_usable = |queue: &&Queue| {
                let is_connected = queue.to.is_some() && (is_any || !queue.is_unconnected);
                is_connected && (may_have_failed || !queue.failed)
            };
            queues.iter().rfind(is_usable).cloned()
        };
        let Some(queue) = with(false).or_else(|| with(true)) else {
            return Ok(());
        };
        let Some((local, remote)) = self.regions(at, &queue) else {
            return Ok(());
        };
        let len = (1 + self.rng.next() % 9000).min(local.len).min(remote.len);
        let mut run = Run {
            vqp: queue.handle,
            opcode: [OP_READ, OP_WRITE][self.rng.below(2)].into(),
            rkey: remote.key,
            reserved: 0,
            remote_addr: remote.addr + self.rng.next() % (remote.len - len + 1),
            local: self.sge(local, len),
        };
        if self.rng.below(4) == 0 {
            mutate(&mut self.rng, self.arena, &mut run);
        }
        let mut from = self.arena.args() + 8 * self.rng.below(2) as u64;
        self.arena.put(from, &run);
        if self.rng.below(30) == 0 {
            from = address(&mut self.rng, self.arena);
        }
        let session = self.known[at].session.clone();
        let answer = session.answer(uapi::IOC_RUN, from)?;
        self.stats.add("requests run", 1);
        self.stats.completion(answer as u16);
        Ok(())
    }

    /// Takes what came, of requests and of messages.
    pub(super) fn reap(&mut self, at: usize, chosen: usize) {
        if self.is_child {
            return;
        }
        let queues = &mut self.known[at].queues;
        let mut wcs = [Wc::zeroed(); 64];
        let count = queues[chosen].rings.take(&mut wcs);
        for wc in &wcs[..count] {
            self.stats.completion(wc.status);
            let is_message = wc.opcode >= uapi::WC_RECV;
            let of_it = queues.iter().position(|queue| queue.handle == wc.vqp);
            let queue = &mut queues[of_it.unwrap_or(chosen)];
            // Of an unconnected one, what failed is a peer's alone.
            queue.failed |= wc.status != 0 && !is_message && !queue.is_unconnected;
            if is_message && wc.status == 0 {
                self.stats.add("messages received", 1);
            }
            if wc.src != SRC_NONE && is_message {
                queue.sender = Some(wc.src);
            }
            if queue.is_unconnected && wc.status == 0 {
                self.stats.add("requests to peers", 1);
            }
        }
    }

    /// Work requests; in one batch of three, one is spoilt.
    fn batch(&mut self, at: usize, queue: &Queue, count: usize) {
        let bad = match self.rng.below(3) {
            0 => self.rng.below(count.max(1)),
            _ => usize::MAX,
        };
        for i in 0..count {
            let wr = self.work_request(at, queue);
            let mut wr = self.name(at, queue, wr);
            if i == bad {
                mutate(&mut self.rng, self.arena, &mut wr);
            }
            if !self.is_child {
                queue.rings.put_any_next(i as u32, &wr);
            }
        }
    }

    fn work_request(&mut self, at: usize, queue: &Queue) -> SendWr {
        let opcode = loop {
            let opcode = OPS[self.rng.below(OPS.len())];
            let needs_port = matches!(opcode, OP_SEND | OP_SEND_WITH_IMM | OP_WRITE_WITH_IMM);
            if queue.has_port || !needs_port || self.rng.below(500) == 0 {
                break opcode;
            }
        };
        let Some((local, remote)) = self.regions(at, queue) else {
            return SendWr::zeroed();
        };
        let is_atomic = matches!(opcode, OP_CAS | OP_FAA);
        let is_message = matches!(opcode, OP_SEND | OP_SEND_WITH_IMM);
        let mut wr = SendWr {
            wr_id: self.rng.next(),
            opcode,
            flags: FLAGS[self.rng.below(FLAGS.len())],
            imm: if matches!(opcode, OP_SEND_WITH_IMM | OP_WRITE_WITH_IMM) {
                self.rng.next() as u32
            } else {
                0
            },
            ..Pod::zeroed()
        };
        let may_be_inline = !is_atomic && opcode != OP_READ;
        let len = if may_be_inline && self.rng.below(4) == 0 {
            self.inline(&mut wr, remote.len)
        } else {
            self.elements(&mut wr, local, remote.len)
        };
        if is_atomic {
            let swap = match opcode {
                OP_CAS => self.rng.next() % 3,
                _ => 0,
            };
            wr.set_operands(self.rng.next() % 3, swap);
        }
        if !is_message {
            let room = remote.len - len + 1;
            wr.remote_addr = remote.addr + self.rng.next() % room / 8 * 8;
            wr.rkey = remote.key;
        }
        wr
    }

    /// Memory of the session and of the node that the VQP leads to.
    fn regions(&mut self, at: usize, queue: &Queue) -> Option<(Region, Region)> {
        let to = queue.to.unwrap_or(0);
        let local = self.pick(|known| known == at, None);
        let nodes: Vec<u8> = self.known.iter().map(|known| known.node).collect();
        let remote = self.pick(|known| nodes[known] == to, local);
        local.zip(remote)
    }

    /// Bytes in the request itself; answers how many.
    fn inline(&mut self, wr: &mut SendWr, max: u64) -> u64 {
        let len = (self.rng.next() % u64::from(MAX_INLINE + 1)).min(max);
        wr.flags |= SEND_INLINE;
        wr.inline_len = len as u32;
        wr.data = std::array::from_fn(|_| self.rng.next());
        len
    }

    /// Pieces of a region; answers their bytes.
    fn elements(&mut self, wr: &mut SendWr, local: Region, max: u64) -> u64 {
        let is_atomic = matches!(wr.opcode, OP_CAS | OP_FAA);
        let count = match self.rng.below(3) {
            _ if is_atomic => 1,
            0 => self.rng.below(MAX_SGE + 1),
            _ => 1,
        };
        let mut total = 0;
        for place in 0..count {
            let left = local.len.min(max - total);
            let len = match self.rng.below(10) {
                _ if is_atomic => 8,
                0 => left,
                _ => (self.rng.next() % 9000).min(left),
            };
            wr.set_sge(place, self.sge(local, len));
            total += len;
        }
        wr.num_sge = count as u16;
        total
    }

    /// So many bytes somewhere in a region.
    pub(super) fn sge(&mut self, local: Region, len: u64) -> Sge {
        Sge {
            addr: local.addr + self.rng.next() % (local.len - len + 1),
            len: len as u32,
            lkey: local.key,
        }
    }

    /// A region of one of these sessions, most often one that allows all.
    pub(super) fn pick(
        &mut self,
        of: impl Fn(usize) -> bool,
        or: Option<Region>,
    ) -> Option<Region> {
        let any = self.rng.below(40) == 0;
        let sessions = self.known.iter().enumerate().filter(|(i, _)| of(*i));
        let regions: Vec<Region> = sessions
            .flat_map(|(_, known)| known.regions.iter().copied())
            .filter(|region| {
                (8..=DATA_BYTES).contains(&region.len) && (any || region.access == ACCESS_ALL)
            })
            .collect();
        match regions.len() {
            0 => or,
            many => Some(regions[self.rng.below(many)]),
        }
    }
}
