// SPDX-License-Identifier: MIT OR Apache-2.0

//! The grammar: what a program would say next, given what it has, and how that
//! is spoilt.

use std::sync::Arc;

use nix::errno::Errno;
use weft_core::uapi::{
    self, Pod, SendWr, Wc, ACCESS_ALL, OP_CAS, OP_FAA, OP_READ, OP_WRITE, SEND_SIGNALED,
};

use crate::raw::Session;
use crate::world::gid;

use super::super::arena::{DATA_BYTES, PAGE};
use super::super::mutate::{address, mutate};
use super::{Fuzzer, Known, Queue, Region, SESSIONS};

/// VQPs and regions that a session gets before others go.
const OBJECTS: usize = 12;

impl Fuzzer<'_> {
    /// One request to the device.
    pub(super) fn request(&mut self) -> Result<(), Errno> {
        let few = self.known.is_empty() || (self.known.len() < SESSIONS && self.rng.below(60) == 0);
        if few {
            return self.open();
        }
        let at = self.rng.below(self.known.len());
        let known = &self.known[at];
        if self.rng.below(25) == 0 {
            return self.noise(&known.session.clone());
        }
        let (queues, regions) = (known.queues.len(), known.regions.len());
        let connected = known.queues.iter().any(|queue| queue.to.is_some());
        match self.rng.below(100) {
            0..=9 if queues >= 2 => self.destroy(at),
            0..=9 => self.create(at),
            10..=14 if queues < OBJECTS => self.create(at),
            15..=24 => self.connect(at),
            25..=34 if regions < OBJECTS => self.register(at),
            35..=39 if regions > 2 => self.deregister(at),
            40..=47 => self.ask(at),
            _ if connected => self.enter(at),
            _ => self.connect(at),
        }
    }

    fn open(&mut self) -> Result<(), Errno> {
        let session =
            Session::bare().map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
        let node = self.rng.below(2) as u8;
        let mut hello = uapi::Hello {
            abi_version: uapi::ABI_VERSION,
            node: u32::from(node),
            ..Pod::zeroed()
        };
        self.call(&session, uapi::IOC_HELLO, &mut hello)?;
        self.known.push(Known {
            session: Arc::new(session),
            node: if hello.node == 1 { 1 } else { 0 },
            queues: Vec::new(),
            regions: Vec::new(),
        });
        Ok(())
    }

    /// A request with its argument in the arena, spoilt now and then.
    fn call<T: Pod>(
        &mut self,
        session: &Session,
        mut request: u32,
        arg: &mut T,
    ) -> Result<(), Errno> {
        if self.rng.below(8) == 0 {
            mutate(&mut self.rng, self.arena, arg);
        }
        if self.rng.below(50) == 0 {
            request ^= 1 << self.rng.below(32);
        }
        let mut at = self.arena.args() + 8 * self.rng.below(2) as u64;
        self.arena.put(at, arg);
        if self.rng.below(30) == 0 {
            at = address(&mut self.rng, self.arena);
            return session.call_at(request, at);
        }
        session.call_at(request, at)?;
        *arg = self.arena.get(at);
        Ok(())
    }

    /// Any bytes, any request.
    fn noise(&mut self, session: &Session) -> Result<(), Errno> {
        let at = self.arena.args();
        for i in 0..16 {
            let word = self.rng.next();
            let word = if self.rng.below(2) == 0 { 0 } else { word };
            self.arena
                .word(at + 8 * i)
                .store(word, std::sync::atomic::Ordering::Relaxed);
        }
        let known = [
            uapi::IOC_HELLO,
            uapi::IOC_NODE,
            uapi::IOC_VQP_CREATE,
            uapi::IOC_VQP_DESTROY,
            uapi::IOC_QCONNECT,
            uapi::IOC_MR_REG,
            uapi::IOC_MR_DEREG,
            uapi::IOC_ENTER,
            uapi::IOC_META,
            uapi::IOC_LOOKUP,
            uapi::IOC_META_ADD,
            uapi::IOC_META_REMOVE,
            uapi::IOC_DCCACHE_FLUSH,
        ];
        let request = match self.rng.below(4) {
            0 => self.rng.next() as u32,
            _ => known[self.rng.below(known.len())],
        };
        session.call_at(request, at)
    }

    fn create(&mut self, at: usize) -> Result<(), Errno> {
        let sizes = [1, 2, 16, 64, 1024];
        let mut arg = uapi::VqpCreate {
            max_send_wr: sizes[self.rng.below(sizes.len())],
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        self.call(&session, uapi::IOC_VQP_CREATE, &mut arg)?;
        self.known[at].queues.push(Queue {
            handle: arg.vqp,
            to: None,
            failed: false,
        });
        Ok(())
    }

    /// Those that have failed go first.
    fn destroy(&mut self, at: usize) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let failed = queues.iter().position(|queue| queue.failed);
        let gone = failed.unwrap_or_else(|| self.rng.below(queues.len()));
        let vqp = self.known[at].queues.swap_remove(gone).handle;
        let session = self.known[at].session.clone();
        let mut arg = uapi::VqpHandle { vqp, reserved: 0 };
        self.call(&session, uapi::IOC_VQP_DESTROY, &mut arg)
    }

    fn connect(&mut self, at: usize) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let Some(free) = queues.iter().position(|queue| queue.to.is_none()) else {
            return self.create(at);
        };
        let to = self.rng.below(2) as u8;
        let mut arg = uapi::QConnect {
            vqp: queues[free].handle,
            gid: gid(to),
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        let outcome = self.call(&session, uapi::IOC_QCONNECT, &mut arg);
        match outcome {
            Ok(()) | Err(Errno::EISCONN) => self.known[at].queues[free].to = Some(to),
            Err(Errno::EBADF) => drop(self.known[at].queues.swap_remove(free)),
            Err(_) => {}
        }
        outcome
    }

    fn register(&mut self, at: usize) -> Result<(), Errno> {
        let from = self.rng.next() % (DATA_BYTES - PAGE) / 8 * 8;
        let access = match self.rng.below(5) {
            0 => self.rng.below(16) as u32,
            _ => ACCESS_ALL,
        };
        let mut arg = uapi::MrReg {
            addr: self.arena.data() + from,
            len: 8 + self.rng.next() % (DATA_BYTES - from - 8),
            access,
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        self.call(&session, uapi::IOC_MR_REG, &mut arg)?;
        self.known[at].regions.push(Region {
            key: arg.lkey,
            addr: arg.addr,
            len: arg.len,
            access: arg.access,
        });
        Ok(())
    }

    fn deregister(&mut self, at: usize) -> Result<(), Errno> {
        let gone = self.rng.below(self.known[at].regions.len());
        let lkey = self.known[at].regions.swap_remove(gone).key;
        let session = self.known[at].session.clone();
        let mut arg = uapi::MrDereg { lkey, reserved: 0 };
        self.call(&session, uapi::IOC_MR_DEREG, &mut arg)
    }

    /// What changes nothing.
    fn ask(&mut self, at: usize) -> Result<(), Errno> {
        let session = self.known[at].session.clone();
        let index = self.rng.below(2) as u32;
        match self.rng.below(4) {
            0 => session.call_at(uapi::IOC_NOP, self.rng.next()),
            1 => {
                let mut arg = uapi::NodeInfo {
                    index,
                    ..Pod::zeroed()
                };
                self.call(&session, uapi::IOC_NODE, &mut arg)
            }
            2 => {
                let mut arg = uapi::MetaInfo::zeroed();
                self.call(&session, uapi::IOC_META, &mut arg)
            }
            _ => {
                let mut arg = uapi::Lookup {
                    gid: gid(index as u8),
                    ..Pod::zeroed()
                };
                self.call(&session, uapi::IOC_LOOKUP, &mut arg)
            }
        }
    }

    fn enter(&mut self, at: usize) -> Result<(), Errno> {
        let usable: Vec<usize> = (0..self.known[at].queues.len())
            .filter(|i| self.known[at].queues[*i].to.is_some())
            .collect();
        let chosen = usable[self.rng.below(usable.len())];
        let queue = self.known[at].queues[chosen];
        let count = match self.rng.below(10) {
            0 => 0,
            1 => self.rng.below(200),
            _ => 1 + self.rng.below(16),
        };
        self.batch(at, queue.to.unwrap_or(0), count);
        let room = 1 + self.rng.below(1024) as u32;
        let mut arg = uapi::Enter {
            vqp: queue.handle,
            wr_count: count as u32,
            wrs: self.arena.wrs(),
            wc_max: room,
            wc_min: self.rng.below(count + 1).min(room as usize) as u32,
            wcs: self.arena.wcs(),
            timeout_ns: self.rng.next() % 3_000_000,
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        let outcome = self.call(&session, uapi::IOC_ENTER, &mut arg);
        match outcome {
            Ok(()) => self.known[at].queues[chosen].failed |= self.reaped(&arg),
            Err(Errno::EBADF) => drop(self.known[at].queues.swap_remove(chosen)),
            Err(_) => {}
        }
        outcome
    }

    /// Counts what came back; answers whether a request has failed.
    fn reaped(&mut self, arg: &uapi::Enter) -> bool {
        let mut failed = false;
        self.stats
            .add("work requests posted", u64::from(arg.submitted.min(1024)));
        for i in 0..u64::from(arg.completed.min(1024)) {
            let wc: Wc = self
                .arena
                .get(self.arena.wcs() + i * size_of::<Wc>() as u64);
            self.stats.completion(wc.status);
            failed |= wc.status != 0;
        }
        failed
    }

    /// Work requests to a node; in one batch of three, one is spoilt.
    fn batch(&mut self, at: usize, to: u8, count: usize) {
        let bad = match self.rng.below(3) {
            0 => self.rng.below(count.max(1)),
            _ => usize::MAX,
        };
        for i in 0..count {
            let mut wr = self.work_request(at, to);
            if i == bad {
                mutate(&mut self.rng, self.arena, &mut wr);
            }
            self.arena.put(self.arena.wrs() + 64 * i as u64, &wr);
        }
    }

    fn work_request(&mut self, at: usize, to: u8) -> SendWr {
        let ops = [OP_WRITE, OP_WRITE, OP_READ, OP_READ, OP_CAS, OP_FAA];
        let opcode = ops[self.rng.below(ops.len())];
        let local = self.pick(|known| known == at, None);
        let nodes: Vec<u8> = self.known.iter().map(|known| known.node).collect();
        let remote = self.pick(|known| nodes[known] == to, local);
        let (Some(local), Some(remote)) = (local, remote) else {
            return SendWr::zeroed();
        };
        let atomic = matches!(opcode, OP_CAS | OP_FAA);
        let len = match self.rng.below(10) {
            _ if atomic => 8,
            0 => local.len.min(remote.len),
            _ => (self.rng.next() % 9000).min(local.len).min(remote.len),
        };
        SendWr {
            wr_id: self.rng.next(),
            opcode,
            flags: if self.rng.below(2) == 0 {
                SEND_SIGNALED
            } else {
                0
            },
            num_sge: 1,
            remote_addr: remote.addr + self.rng.next() % (remote.len - len + 1) / 8 * 8,
            rkey: remote.key,
            lkey: local.key,
            local_addr: local.addr + self.rng.next() % (local.len - len + 1),
            len: len as u32,
            compare_add: if atomic { self.rng.next() % 3 } else { 0 },
            swap: if opcode == OP_CAS {
                self.rng.next() % 3
            } else {
                0
            },
            ..Pod::zeroed()
        }
    }

    /// A region of one of these sessions, most often one that allows all.
    fn pick(&mut self, of: impl Fn(usize) -> bool, or: Option<Region>) -> Option<Region> {
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
