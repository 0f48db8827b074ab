// SPDX-License-Identifier: MIT OR Apache-2.0

//! The grammar: what a program would say next, given what it has, and how that
//! is spoilt.

use std::sync::Arc;

use nix::errno::Errno;
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, ACCESS_ALL};

use crate::raw::{vqp_on, Queue as Rings, Said, Session};
use crate::world::gid;

use super::super::arena::{DATA_BYTES, PAGE};
use super::super::mutate::{address, mutate};
use super::{Fuzzer, Known, Queue, Region, SESSIONS};

/// VQPs and regions that a session gets before others go.
pub(super) const OBJECTS: usize = 12;
/// Ports that messages go to are 1 to this.
pub(super) const PORTS: usize = 6;

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
        let heard = known.queues.iter().any(|queue| queue.sender.is_some());
        // What is left of a hundred would leave it to luck whether a short run accepts any.
        if heard && queues < OBJECTS && self.rng.below(4) == 0 {
            return self.accept(at);
        }
        match self.rng.below(100) {
            0..=9 if queues >= 2 => self.destroy(at),
            0..=9 => self.create(at),
            10..=11 if queues < OBJECTS => self.create(at),
            12..=15 if queues < OBJECTS => self.create_light(at),
            16..=17 => self.peer(at),
            18 if queues > 0 => self.notify(at),
            19..=24 => self.connect(at),
            25..=31 if regions < OBJECTS => self.register(at),
            32..=34 if regions < OBJECTS && regions > 0 => self.bind_window(at),
            35..=39 if regions > 2 => self.deregister(at),
            40..=47 => self.ask(at),
            48..=52 if queues > 0 => self.bind(at),
            53..=62 if queues > 0 => self.receive(at),
            63..=65 if queues > 0 => self.accept(at),
            66..=68 if queues > 0 => self.map(at),
            69..=74 if connected => self.run_some(at),
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
        if self.rng.below(4) == 0 {
            hello.rings = uapi::RingsCreate {
                max_send_wr: 16,
                max_wc: 16,
                memory_bytes: 1 << self.rng.below(17),
                memory_access: uapi::ACCESS_ALL,
                ..Pod::zeroed()
            };
        }
        if self.rng.below(3) == 0 {
            hello.peer = Gid::from_ipv4([10, 77, 0, self.rng.below(256) as u8]);
        }
        let outcome = self.call(&session, uapi::IOC_HELLO, &mut hello);
        let foreign = match outcome {
            Err(Errno::ENODEV) => self.foreign.lock().ok().and_then(|mut some| some.pop()),
            _ => None,
        };
        let known = match foreign {
            Some(known) => known,
            None => outcome.map(|_| Known::new(session, 0))?,
        };
        self.known.push(known);
        Ok(())
    }

    /// A request with its argument in the arena, spoilt now and then.
    pub(super) fn call<T: Pod>(
        &mut self,
        session: &Session,
        mut request: u32,
        arg: &mut T,
    ) -> Result<usize, Errno> {
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
            return session.answer(request, at);
        }
        let answer = session.answer(request, at)?;
        *arg = self.arena.get(at);
        Ok(answer)
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
            uapi::IOC_MW_BIND,
            uapi::IOC_ENTER,
            uapi::IOC_META,
            uapi::IOC_LOOKUP,
            uapi::IOC_META_ADD,
            uapi::IOC_META_REMOVE,
            uapi::IOC_DCCACHE_FLUSH,
            uapi::IOC_QBIND,
            uapi::IOC_ACCEPT,
            uapi::IOC_RUN,
            uapi::IOC_RINGS_CREATE,
            uapi::IOC_RINGS_DESTROY,
            uapi::IOC_PEER_OPEN,
            uapi::IOC_PEER_CLOSE,
            uapi::IOC_CQ_NOTIFY,
            uapi::IOC_POOL_USE,
            uapi::IOC_POOL_PEER,
        ];
        let request = match self.rng.below(5) {
            0 => self.rng.next() as u32,
            _ => known[self.rng.below(known.len())],
        };
        session.call_at(request, at)
    }

    pub(super) fn create(&mut self, at: usize) -> Result<(), Errno> {
        let of_rings = self.create_rings(at)?;
        let mut arg = vqp_on(&of_rings);
        let session = self.known[at].session.clone();
        if let Err(errno) = self.call(&session, uapi::IOC_VQP_CREATE, &mut arg) {
            self.destroy_rings(at, of_rings.rings)?;
            return Err(errno);
        }
        let vqp = arg.vqp;
        self.take_in(at, &Said { vqp, of_rings })
    }

    /// Rings for a VQP.
    pub(super) fn create_rings(&mut self, at: usize) -> Result<uapi::RingsCreate, Errno> {
        let sizes = [1, 2, 16, 64, 1024];
        let max_send_wr = sizes[self.rng.below(sizes.len())];
        let max_recv_wr = [0, 1, 16, 32, 1024][self.rng.below(5)];
        let mut arg = uapi::RingsCreate {
            max_send_wr,
            max_wc: max_send_wr + max_recv_wr,
            max_recv_wr,
            ..Pod::zeroed()
        };
        if self.rng.below(4) == 0 {
            arg.memory_bytes = [1, 4096, 9000, 1 << 16][self.rng.below(4)];
            arg.memory_addr = [0, 4096, 1 << 40][self.rng.below(3)];
            arg.memory_access = self.rng.below(uapi::ACCESS_ALL as usize + 1) as u32;
        }
        let session = self.known[at].session.clone();
        self.call(&session, uapi::IOC_RINGS_CREATE, &mut arg)?;
        Ok(arg)
    }

    pub(super) fn destroy_rings(&mut self, at: usize, rings: u32) -> Result<(), Errno> {
        let session = self.known[at].session.clone();
        let mut arg = uapi::RingsHandle { rings, reserved: 0 };
        self.call(&session, uapi::IOC_RINGS_DESTROY, &mut arg)
            .map(drop)
    }

    /// A VQP that was made, if what was said of it was not written over.
    pub(super) fn take_in(&mut self, at: usize, said: &Said) -> Result<(), Errno> {
        let sound = self.is_sound(said);
        if self.is_child || !sound {
            return Ok(());
        }
        let rings = Arc::new(Rings::map(&self.known[at].session, said)?);
        self.live.add(&rings);
        self.known[at].queues.push(Queue {
            handle: said.vqp,
            rings,
            to: None,
            has_port: false,
            is_bound: false,
            is_unconnected: false,
            sender: None,
            failed: false,
        });
        Ok(())
    }

    /// Whether we may believe it: another thread may have rewritten it.
    fn is_sound(&self, said: &Said) -> bool {
        let ring = |offset: u32, entries: u32, size: usize| {
            let end = u64::from(offset) + u64::from(entries) * size as u64;
            entries <= 4096 && offset % 8 == 0 && end <= u64::from(said.ring_bytes)
        };
        let pow2 = |entries: u32| entries.is_power_of_two();
        said.ring_bytes <= 1 << 20
            && said.map_offset % (1 << 24) == 0
            && pow2(said.sq_entries)
            && pow2(said.cq_entries)
            && (said.rq_entries == 0 || pow2(said.rq_entries))
            && ring(said.sq_offset, said.sq_entries, size_of::<uapi::SendWr>())
            && ring(said.cq_offset, said.cq_entries, size_of::<uapi::Wc>())
            && ring(said.rq_offset, said.rq_entries, size_of::<uapi::RecvWr>())
    }

    /// Those that have failed go first. Their rings go with the last VQP on them; now and
    /// then it is tried before.
    pub(super) fn destroy(&mut self, at: usize) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let failed = queues.iter().position(|queue| queue.failed);
        let gone = failed.unwrap_or_else(|| self.rng.below(queues.len()));
        let queue = self.known[at].queues.swap_remove(gone);
        let (vqp, rings) = (queue.handle, queue.rings.said.of_rings.rings);
        let session = self.known[at].session.clone();
        if self.rng.below(20) == 0 {
            let _ = self.destroy_rings(at, rings);
        }
        let mut arg = uapi::VqpHandle { vqp, reserved: 0 };
        self.call(&session, uapi::IOC_VQP_DESTROY, &mut arg)?;
        self.forget(vqp);
        let mut others = self.known[at].queues.iter();
        let is_used = others.any(|other| other.rings.said.of_rings.rings == rings);
        if is_used {
            return Ok(());
        }
        self.forget(rings);
        self.destroy_rings(at, rings)
    }

    fn connect(&mut self, at: usize) -> Result<(), Errno> {
        let to = self.rng.below(2) as u8;
        self.connect_to(at, to)
    }

    pub(super) fn connect_to(&mut self, at: usize, to: u8) -> Result<(), Errno> {
        let queues = &self.known[at].queues;
        let is_free =
            |queue: &Queue| queue.to.is_none() && !queue.is_bound && !queue.is_unconnected;
        let Some(free) = queues.iter().position(is_free) else {
            return self.create(at);
        };
        let mut arg = uapi::QConnect {
            vqp: queues[free].handle,
            port: self.rng.below(PORTS + 1) as u32,
            gid: gid(to),
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        let outcome = self.call(&session, uapi::IOC_QCONNECT, &mut arg);
        match outcome {
            Ok(_) | Err(Errno::EISCONN) => {
                let queue = &mut self.known[at].queues[free];
                (queue.to, queue.has_port) = (Some(to), arg.port != 0);
            }
            Err(Errno::EBADF) => drop(self.known[at].queues.swap_remove(free)),
            Err(_) => {}
        }
        outcome.map(drop)
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
        let region = self.known[at].regions.swap_remove(gone);
        let session = self.known[at].session.clone();
        let mut arg = uapi::MrDereg {
            lkey: region.key,
            reserved: 0,
        };
        let outcome = self.call(&session, uapi::IOC_MR_DEREG, &mut arg);
        if outcome == Err(Errno::EBUSY) {
            // It has windows, and stays.
            self.known[at].regions.push(region);
        }
        outcome.map(drop)
    }

    /// Another key to a region, or to a window, which is refused.
    fn bind_window(&mut self, at: usize) -> Result<(), Errno> {
        let of = self.rng.below(self.known[at].regions.len());
        let region = self.known[at].regions[of];
        // A call that was spoilt may have left a region of no bytes.
        let from = self.rng.next() % region.len.max(1);
        let access = match self.rng.below(5) {
            0 => self.rng.below(16) as u32,
            _ => ACCESS_ALL & !uapi::ACCESS_LOCAL_WRITE,
        };
        let mut arg = uapi::MwBind {
            addr: region.addr.wrapping_add(from),
            len: 1 + self.rng.next() % region.len.saturating_sub(from).max(1),
            lkey: region.key,
            access,
            ..Pod::zeroed()
        };
        let session = self.known[at].session.clone();
        self.call(&session, uapi::IOC_MW_BIND, &mut arg)?;
        self.known[at].regions.push(Region {
            key: arg.rkey,
            addr: arg.addr,
            len: arg.len,
            access: arg.access,
        });
        Ok(())
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
                self.call(&session, uapi::IOC_NODE, &mut arg).map(drop)
            }
            2 => {
                let mut arg = uapi::MetaInfo::zeroed();
                self.call(&session, uapi::IOC_META, &mut arg).map(drop)
            }
            _ => {
                let mut arg = uapi::Lookup {
                    gid: gid(index as u8),
                    ..Pod::zeroed()
                };
                self.call(&session, uapi::IOC_LOOKUP, &mut arg).map(drop)
            }
        }
    }
}
