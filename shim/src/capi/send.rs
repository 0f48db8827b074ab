// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_post_send`: chains of `struct ibv_send_wr`, turned into what the module
//! reads.
//!
//! A chain goes to the module in batches that live on the stack, one system
//! call each. The last one may also wait for completions.

use super::completion::Reap;
use super::verbs::{self, SendWr, Sge};
use super::vqp::Vqp;
use super::{deref, status};
use crate::ioctl;
use nix::errno::Errno;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{self, addr_of};
use weft_core::uapi::{self, Pod};

/// Requests that one system call submits.
const BATCH: usize = 64;

/// Requests in the module's form.
///
/// # Invariants
///
/// The first `len` places are initialised.
struct Batch {
    wrs: [MaybeUninit<uapi::SendWr>; BATCH],
    len: usize,
}

/// Why a batch ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// So does the chain.
    End,
    /// It has no more room.
    Full,
    /// The next request is none that can be posted.
    Bad(Errno),
}

/// What became of a chain.
pub(super) struct Posted {
    /// The first request that was not taken; null if all were.
    pub(super) left: *mut SendWr,
    /// Completions reaped.
    pub(super) reaped: Result<usize, Errno>,
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, `wr` null or a chain, `bad_wr` null or room for a
/// pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_post_send(
    vqp: *const Vqp,
    wr: *mut SendWr,
    bad_wr: *mut *mut SendWr,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let vqp = unsafe { deref(vqp) }?;
        if wr.is_null() || bad_wr.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises the chain; nothing is to be reaped.
        let posted = unsafe { run(vqp, wr, &Reap::NOTHING) };
        if posted.left.is_null() {
            return Ok(());
        }
        // SAFETY: not null, so the caller promises room.
        unsafe { bad_wr.write(posted.left) };
        Err(posted.reaped.err().unwrap_or(Errno::ENOMEM))
    })
}

/// Submits a chain, which may be empty, and then waits and reaps. A request that
/// cannot be posted ends it with an error after those before it were posted; a
/// full queue only ends the submission.
///
/// # Safety
///
/// `first` is null or a chain, and the completions of `reap` have room.
pub(super) unsafe fn run(vqp: &Vqp, first: *mut SendWr, reap: &Reap) -> Posted {
    let mut left = first;
    while !left.is_null() {
        let mut batch = Batch::new();
        // SAFETY: `left` is within the caller's chain.
        let stop = unsafe { batch.fill(left, vqp.signal_all) };
        if let (0, Stop::Bad(errno)) = (batch.len, stop) {
            return Posted {
                left,
                reaped: Err(errno),
            };
        }
        let is_last = stop == Stop::End;
        let reap = if is_last { reap } else { &Reap::NOTHING };
        // SAFETY: the caller promises room.
        let (taken, reaped) = match unsafe { enter(vqp, &batch, reap) } {
            // Nothing was waited for: the signal's handler has run, go on.
            Err(Errno::EINTR) if reap.room == 0 => continue,
            // The queue is full, which is a reason to reap, if that was not
            // tried.
            Ok((0, _)) | Err(Errno::ENOMEM) if reap.room == 0 => break,
            Err(Errno::ENOMEM) if left != first => (0, 0),
            Ok(done) => done,
            Err(errno) => {
                return Posted {
                    left,
                    reaped: Err(errno),
                }
            }
        };
        // SAFETY: no more were taken than the batch, and so the chain, has.
        left = unsafe { skip(left, taken) };
        // Where nothing could be reaped, the next call tells why it took fewer.
        if is_last && reap.room > 0 {
            return Posted {
                left,
                reaped: Ok(reaped),
            };
        }
    }
    // SAFETY: the caller promises room.
    let reaped = match unsafe { reap_only(vqp, reap) } {
        Ok(0) if !left.is_null() && left == first => Err(Errno::ENOMEM),
        reaped => reaped,
    };
    Posted { left, reaped }
}

/// # Safety
///
/// The completions of `reap` have room.
unsafe fn reap_only(vqp: &Vqp, reap: &Reap) -> Result<usize, Errno> {
    if reap.room == 0 {
        return Ok(0);
    }
    // SAFETY: the caller promises room.
    Ok(unsafe { enter(vqp, &Batch::new(), reap) }?.1)
}

/// One system call: how many requests it took and completions it reaped.
///
/// # Safety
///
/// The completions of `reap` have room.
unsafe fn enter(vqp: &Vqp, batch: &Batch, reap: &Reap) -> Result<(usize, usize), Errno> {
    let mut arg = uapi::Enter {
        vqp: vqp.number,
        // A batch is small.
        wr_count: batch.len as u32,
        wrs: batch.wrs.as_ptr().expose_provenance() as u64,
        wc_max: reap.room,
        wc_min: reap.min,
        wcs: reap.wcs.expose_provenance() as u64,
        timeout_ns: reap.timeout_ns,
        ..Pod::zeroed()
    };
    // SAFETY: by the invariant of `Batch` the requests that the module reads are
    // there; the caller promises room for the completions that it writes.
    let done = unsafe { ioctl::enter_at(vqp.session.fd(), &mut arg) };
    done.map_err(|errno| match errno {
        Errno::ENOSPC => Errno::ENOMEM,
        errno => errno,
    })?;
    let completed = arg.completed.min(reap.room) as usize;
    // SAFETY: the module wrote so many.
    unsafe { reap.expand(completed) };
    Ok((batch.len.min(arg.submitted as usize), completed))
}

/// # Safety
///
/// The chain at `wr` has `count` requests at least.
unsafe fn skip(mut wr: *mut SendWr, count: usize) -> *mut SendWr {
    for _ in 0..count {
        // SAFETY: within the chain.
        wr = unsafe { addr_of!((*wr).next).read() };
    }
    wr
}

impl Batch {
    const fn new() -> Self {
        // INVARIANT: nothing is initialised, and `len` says so.
        Self {
            wrs: [MaybeUninit::uninit(); BATCH],
            len: 0,
        }
    }

    /// Converts requests from `wr` on.
    ///
    /// # Safety
    ///
    /// `wr` is a chain.
    unsafe fn fill(&mut self, mut wr: *const SendWr, signal_all: bool) -> Stop {
        for place in &mut self.wrs {
            if wr.is_null() {
                return Stop::End;
            }
            // SAFETY: not null, so it is a request of the chain.
            match unsafe { convert(wr, signal_all) } {
                Ok(raw) => place.write(raw),
                Err(errno) => return Stop::Bad(errno),
            };
            // INVARIANT: the place after the first `len` was just written.
            self.len += 1;
            // SAFETY: as above.
            wr = unsafe { addr_of!((*wr).next).read() };
        }
        if wr.is_null() {
            Stop::End
        } else {
            Stop::Full
        }
    }
}

/// Turns one request into the module's form.
///
/// # Safety
///
/// `wr` is a request whose `sg_list` has `num_sge` elements.
unsafe fn convert(wr: *const SendWr, signal_all: bool) -> Result<uapi::SendWr, Errno> {
    // SAFETY: C's struct begins with this one, whose fields are set, or may be
    // uninitialised here too.
    let wr = unsafe { ptr::read(wr) };
    // SAFETY: the caller promises a request.
    let target = unsafe { target(&wr) }?;
    let flags = flags(wr.send_flags, signal_all)?;
    if wr.num_sge != 1 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises `num_sge` elements.
    let sge: &Sge = unsafe { deref(wr.sg_list) }?;
    Ok(uapi::SendWr {
        wr_id: wr.wr_id,
        flags,
        num_sge: 1,
        lkey: sge.lkey,
        local_addr: sge.addr,
        len: sge.length,
        ..target
    })
}

/// What a request does to which memory of the peer.
///
/// # Safety
///
/// The part of `wr.wr` that its opcode needs is set.
unsafe fn target(wr: &SendWr) -> Result<uapi::SendWr, Errno> {
    let opcode = match wr.opcode {
        verbs::WR_RDMA_WRITE => uapi::OP_WRITE,
        verbs::WR_RDMA_READ => uapi::OP_READ,
        verbs::WR_ATOMIC_CMP_AND_SWP => uapi::OP_CAS,
        verbs::WR_ATOMIC_FETCH_AND_ADD => uapi::OP_FAA,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if matches!(opcode, uapi::OP_WRITE | uapi::OP_READ) {
        // SAFETY: the caller promises it of an RDMA request.
        let rdma = unsafe { wr.wr.rdma };
        return Ok(uapi::SendWr {
            opcode,
            remote_addr: rdma.remote_addr,
            rkey: rdma.rkey,
            ..Pod::zeroed()
        });
    }
    // C need not set what an addition does not use.
    let swap = if opcode == uapi::OP_CAS {
        // SAFETY: the caller promises it of an atomic request.
        unsafe { wr.wr.atomic.swap }
    } else {
        0
    };
    Ok(uapi::SendWr {
        opcode,
        swap,
        // SAFETY: as above.
        remote_addr: unsafe { wr.wr.atomic.remote_addr },
        // SAFETY: as above.
        rkey: unsafe { wr.wr.atomic.rkey },
        // SAFETY: as above.
        compare_add: unsafe { wr.wr.atomic.compare_add },
        ..Pod::zeroed()
    })
}

fn flags(send_flags: u32, signal_all: bool) -> Result<u8, Errno> {
    if send_flags & !(verbs::SEND_SIGNALED | verbs::SEND_SOLICITED) != 0 {
        return Err(Errno::EINVAL);
    }
    let signaled = signal_all || send_flags & verbs::SEND_SIGNALED != 0;
    Ok(if signaled { uapi::SEND_SIGNALED } else { 0 })
}

#[cfg(test)]
mod tests;
