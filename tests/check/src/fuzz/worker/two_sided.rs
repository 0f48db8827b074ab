// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports, receive buffers, senders, and mappings.

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use weft_core::uapi::{self, Pod, RecvWr, MAX_RECV_SGE};

use super::super::mutate::mutate;
use super::requests::PORTS;
use super::{Fuzzer, Queue};
use crate::raw::{vqp_on, Memory, Said};

impl Fuzzer<'_> {
    /// Binds a VQP that is not connected.
    pub(super) fn bind(&mut self, at: usize) -> Result<(), Errno> {
        let can_be = |queue: &Queue| {
            queue.to.is_none() && !queue.is_bound && queue.rings.said.max_recv_wr > 0
        };
        let Some(free) = self.known[at].queues.iter().position(can_be) else {
            return self.create(at);
        };
        let mut arg = uapi::QBind {
            vqp: self.known[at].queues[free].handle,
            port: 1 + self.rng.below(PORTS) as u32,
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        let outcome = self.call(&session, uapi::IOC_QBIND, &mut arg).map(drop);
        match outcome {
            Ok(()) => {
                self.known[at].queues[free].is_bound = true;
                self.stats.add("ports bound", 1);
            }
            Err(Errno::EBADF) => drop(self.known[at].queues.swap_remove(free)),
            Err(_) => {}
        }
        outcome
    }

    /// Posts receive buffers, and takes what came.
    pub(super) fn receive(&mut self, at: usize) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let bound = queues.iter().position(|queue| queue.is_bound);
        let chosen = match bound {
            Some(bound) if self.rng.below(4) > 0 => bound,
            _ => self.rng.below(queues.len()),
        };
        self.reap(at, chosen);
        let queue = self.known[at].queues[chosen].clone();
        if self.is_child || queue.rings.said.rq_entries == 0 {
            return Ok(());
        }
        for _ in 0..self.rng.below(40) {
            let mut wr = RecvWr {
                wr_id: self.rng.next(),
                num_sge: self.rng.below(MAX_RECV_SGE + 1) as u32,
                ..Pod::zeroed()
            };
            let Some(local) = self.pick(|known| known == at, None) else {
                break;
            };
            for place in 0..wr.num_sge as usize {
                let len = local.len.min(40_000);
                wr.sges[place] = self.sge(local, len);
            }
            if self.rng.below(20) == 0 {
                mutate(&mut self.rng, self.arena, &mut wr);
            }
            if !queue.rings.post_recv(&wr) {
                break;
            }
        }
        Ok(())
    }

    /// Makes a VQP to a sender.
    pub(super) fn accept(&mut self, at: usize) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let heard = queues
            .iter()
            .find_map(|queue| Some((queue.handle, queue.sender?)));
        // Handles of a session's first VQPs, mostly.
        let any = (self.rng.next() as u32 % 16) | (1 << 20);
        let (bound, src) = heard.unwrap_or((any, self.rng.next() as u32));
        let of_rings = self.create_rings(at)?;
        let mut arg = uapi::Accept {
            vqp: vqp_on(&of_rings),
            bound,
            src,
        };
        let session = self.known[at].session.clone();
        let outcome = self.call(&session, uapi::IOC_ACCEPT, &mut arg).map(drop);
        if outcome == Err(Errno::ENOENT) {
            self.forget_sender(at);
        }
        if let Err(errno) = outcome {
            self.destroy_rings(at, of_rings.rings)?;
            return Err(errno);
        }
        let before = self.known[at].queues.len();
        let vqp = arg.vqp.vqp;
        self.take_in(at, &Said { vqp, of_rings })?;
        if let Some(queue) = self.known[at].queues.get_mut(before) {
            (queue.to, queue.has_port) = (Some(0), true);
            self.stats.add("senders accepted", 1);
        }
        self.forget_sender(at);
        Ok(())
    }

    /// The sender that `accept` took is not wanted any more.
    fn forget_sender(&mut self, at: usize) {
        let mut queues = self.known[at].queues.iter_mut();
        if let Some(queue) = queues.find(|queue| queue.sender.is_some()) {
            queue.sender = None;
        }
    }

    /// Maps something, mostly nothing that is there; or lets a VQP's rings go under
    /// what it has in flight, and maps them again.
    pub(super) fn map(&mut self, at: usize) -> Result<(), Errno> {
        if self.is_child {
            return Ok(());
        }
        let chosen = self.rng.below(self.known[at].queues.len());
        let session = self.known[at].session.clone();
        let said = self.known[at].queues[chosen].rings.said;
        if self.rng.below(3) == 0 {
            let queue = self.known[at].queues.swap_remove(chosen);
            let (vqp, to, is_unconnected) = (queue.handle, queue.to, queue.is_unconnected);
            drop(queue);
            self.take_in(at, &Said { vqp, ..said })?;
            let again = self.known[at].queues.last_mut();
            if let Some(queue) = again.filter(|queue| queue.handle == vqp && is_unconnected) {
                (queue.to, queue.is_unconnected) = (to, true);
            }
            return Ok(());
        }
        let flips = |rng: &mut crate::rng::Rng, value: u64| match rng.below(3) {
            0 => value ^ (1 << rng.below(40)),
            _ => value,
        };
        let offset = flips(&mut self.rng, said.map_offset);
        let len = flips(&mut self.rng, said.ring_bytes.into()) % (1 << 32);
        let prot = ProtFlags::from_bits_truncate(self.rng.below(8) as i32);
        let flags = [
            MapFlags::MAP_SHARED,
            MapFlags::MAP_SHARED,
            MapFlags::MAP_PRIVATE,
        ];
        let flags = flags[self.rng.below(flags.len())];
        Memory::of_device(session.as_fd(), offset, len as usize, prot, flags).map(drop)
    }
}
