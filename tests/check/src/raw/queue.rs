// SPDX-License-Identifier: MIT OR Apache-2.0

//! A VQP's rings with nothing in between: any entry, any index.

use std::mem::offset_of;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use weft_core::uapi::{self, Pod, RecvWr, RingHeader, RingsCreate, SendWr, Sge, Wc, WcStatus};

use super::{Memory, Said, Session};

/// What takes longer is lost.
const OUTCOME_NS: u64 = 30_000_000_000;

/// An index in the header.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    SqHead,
    CqTail,
    CqHead,
    RqTail,
    RqHead,
}

impl Field {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::SqHead,
        Self::CqTail,
        Self::CqHead,
        Self::RqTail,
        Self::RqHead,
    ];

    fn offset(self) -> usize {
        match self {
            Self::SqHead => offset_of!(RingHeader, sq_head),
            Self::CqTail => offset_of!(RingHeader, cq_tail),
            Self::CqHead => offset_of!(RingHeader, cq_head),
            Self::RqTail => offset_of!(RingHeader, rq_tail),
            Self::RqHead => offset_of!(RingHeader, rq_head),
        }
    }
}

/// A VQP with its rings. It is not destroyed on drop, only unmapped.
pub struct Queue {
    /// Its handle.
    pub vqp: u32,
    /// What the module said of it.
    pub said: Said,
    /// The mapping.
    pub rings: Memory,
    /// Requests that were taken. Whoever submits holds it.
    taken: Mutex<u32>,
    /// Completions that we have taken, and buffers that we have posted: what the
    /// indices should be.
    reaped: AtomicU32,
    posted: AtomicU32,
}

impl Queue {
    /// Maps the rings of a VQP.
    pub fn map(session: &Session, said: &Said) -> Result<Self, Errno> {
        let rings = Memory::of_device(
            session.as_fd().as_fd(),
            said.map_offset,
            said.ring_bytes as usize,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED,
        )?;
        let this = Self {
            vqp: said.vqp,
            said: *said,
            rings,
            taken: Mutex::new(0),
            reaped: AtomicU32::new(0),
            posted: AtomicU32::new(0),
        };
        // They may have been mapped before.
        let index = |field| this.index(field).load(Ordering::Acquire);
        this.took(index(Field::SqHead));
        this.reaped.store(index(Field::CqHead), Ordering::Relaxed);
        this.posted.store(index(Field::RqTail), Ordering::Relaxed);
        Ok(this)
    }

    /// Maps rings that any number of VQPs use.
    pub fn of_rings(session: &Session, of_rings: &RingsCreate) -> Result<Self, Errno> {
        let said = Said {
            vqp: 0,
            of_rings: *of_rings,
        };
        Self::map(session, &said)
    }

    /// An index.
    pub fn index(&self, field: Field) -> &AtomicU32 {
        self.rings.half(field.offset())
    }

    /// Puts a request of the VQP into the place of an index.
    pub fn put(&self, index: u32, wr: &SendWr) {
        let vqp = self.vqp;
        self.put_any(index, &SendWr { vqp, ..*wr });
    }

    /// Puts a request of any VQP into the place of an index.
    pub fn put_any(&self, index: u32, wr: &SendWr) {
        let place = (index & (self.said.sq_entries - 1)) as usize;
        let at = self.said.sq_offset as usize + place * size_of::<SendWr>();
        self.rings.put(at, wr);
    }

    /// Posts a receive buffer, if there is room.
    pub fn post_recv(&self, wr: &RecvWr) -> bool {
        let index = self.posted.load(Ordering::Relaxed);
        let head = self.index(Field::RqHead).load(Ordering::Acquire);
        let waiting = index.wrapping_sub(head);
        if waiting > self.said.rq_entries {
            // Somebody has written over the kernel's index.
            self.posted.store(head, Ordering::Relaxed);
        }
        if waiting >= self.said.max_recv_wr {
            return false;
        }
        let place = (index & (self.said.rq_entries - 1)) as usize;
        let at = self.said.rq_offset as usize + place * size_of::<RecvWr>();
        self.rings.put(at, wr);
        self.posted.store(index.wrapping_add(1), Ordering::Relaxed);
        self.index(Field::RqTail)
            .store(index.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes what completions fit; answers how many.
    pub fn take(&self, wcs: &mut [Wc]) -> usize {
        let tail = self.index(Field::CqTail).load(Ordering::Acquire);
        let mut index = self.reaped.load(Ordering::Relaxed);
        let mut count = 0;
        for place in wcs {
            if index == tail {
                break;
            }
            let entry = (index & (self.said.cq_entries - 1)) as usize;
            *place = self
                .rings
                .get(self.said.cq_offset as usize + entry * size_of::<Wc>());
            index = index.wrapping_add(1);
            count += 1;
        }
        self.reaped.store(index, Ordering::Relaxed);
        self.index(Field::CqHead).store(index, Ordering::Release);
        count
    }

    /// Puts a request of the VQP into a place, counted from the first that was not taken.
    pub fn put_next(&self, at: u32, wr: &SendWr) {
        let vqp = self.vqp;
        self.put_any_next(at, &SendWr { vqp, ..*wr });
    }

    /// Puts a request of any VQP into a place, counted from the first that was not taken.
    pub fn put_any_next(&self, at: u32, wr: &SendWr) {
        let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_any(taken.wrapping_add(at), wr);
    }

    /// So many were taken.
    pub fn took(&self, count: u32) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.wrapping_add(count);
    }

    /// Submits, waits and reaps; answers with both counts.
    pub fn enter(
        &self,
        session: &Session,
        wrs: &[SendWr],
        wcs: &mut [Wc],
        min: u32,
        timeout_ns: u64,
    ) -> Result<(usize, usize), Errno> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for wr in wrs {
            self.put(taken.wrapping_add(count), wr);
            count += 1;
        }
        let submitted = match session.enter(self.vqp, count, min, timeout_ns) {
            Ok(submitted) => submitted,
            // A full queue is a reason to reap.
            Err(Errno::ENOSPC) => 0,
            Err(errno) => return Err(errno),
        };
        *taken = taken.wrapping_add(submitted as u32);
        let completed = self.take(wcs);
        if submitted == 0 && completed == 0 && count > 0 {
            return Err(Errno::ENOSPC);
        }
        Ok((submitted, completed))
    }

    /// Submits requests of any VQPs in one call, which waits for `min` completions in the
    /// rings `cq`; answers how many were taken, which it does not take off the ring.
    pub fn submit(
        &self,
        session: &Session,
        wrs: &[SendWr],
        cq: u32,
        min: u32,
        timeout_ns: u64,
    ) -> Result<usize, Errno> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for wr in wrs {
            self.put_any(taken.wrapping_add(count), wr);
            count += 1;
        }
        let rings = self.said.of_rings.rings;
        let submitted = session.enter_any(rings, count, cq, min, timeout_ns)?;
        *taken = taken.wrapping_add(submitted as u32);
        Ok(submitted)
    }

    /// How one signalled request ends, if nothing else is on its way.
    pub fn outcome(&self, session: &Session, wr: SendWr) -> Result<WcStatus, Errno> {
        let mut wcs = [Wc::zeroed()];
        let (_, done) = self.enter(session, &[wr], &mut wcs, 1, OUTCOME_NS)?;
        let status = WcStatus::from_number(wcs[0].status.into()).filter(|_| done == 1);
        status.ok_or(Errno::ETIME)
    }

    /// The next completion, which has to come soon.
    pub fn next(&self, session: &Session) -> Result<Wc, Errno> {
        let mut wcs = [Wc::zeroed()];
        session.enter(self.vqp, 0, 1, OUTCOME_NS)?;
        match self.take(&mut wcs) {
            1 => Ok(wcs[0]),
            _ => Err(Errno::ETIME),
        }
    }
}

/// A message that carries its bytes itself.
pub fn message(bytes: &[u8]) -> SendWr {
    let mut wr = SendWr {
        opcode: uapi::OP_SEND,
        flags: uapi::SEND_INLINE | uapi::SEND_SIGNALED,
        inline_len: bytes.len() as u32,
        ..Pod::zeroed()
    };
    for (word, bytes) in wr.data.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    wr
}

/// A receive buffer in one piece.
pub fn buffer(wr_id: u64, local: Sge) -> RecvWr {
    let mut wr = RecvWr {
        wr_id,
        num_sge: 1,
        ..Pod::zeroed()
    };
    wr.sges[0] = local;
    wr
}

/// A request with one element.
pub fn request(opcode: u8, local: Sge, remote_addr: u64, rkey: u32) -> SendWr {
    let mut wr = SendWr {
        opcode,
        num_sge: 1,
        remote_addr,
        rkey,
        ..Pod::zeroed()
    };
    wr.set_sge(0, local);
    wr
}

/// The same request with another first element.
pub fn with_sge(mut wr: SendWr, change: impl FnOnce(&mut Sge)) -> SendWr {
    let mut sge: uapi::Sge = wr.sge(0);
    change(&mut sge);
    wr.set_sge(0, sge);
    wr
}
