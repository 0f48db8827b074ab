// SPDX-License-Identifier: MIT OR Apache-2.0

//! `struct ibv_send_wr`, turned into what the module reads.

use super::verbs::{self, SendWr, Sge};
use nix::errno::Errno;
use std::ffi::c_int;
use std::ptr;
use weft_core::uapi::{self, Pod, MAX_INLINE, MAX_SGE};

/// Turns one request into the module's form.
///
/// # Safety
///
/// `wr` is a request whose `sg_list` has `num_sge` elements.
pub(super) unsafe fn convert(wr: *const SendWr, signal_all: bool) -> Result<uapi::SendWr, Errno> {
    // SAFETY: C's struct begins with this one, whose fields are set, or may be
    // uninitialised here too.
    let wr = unsafe { ptr::read(wr) };
    // SAFETY: the caller promises a request.
    let mut raw = unsafe { target(&wr) }?;
    raw.wr_id = wr.wr_id;
    raw.flags = flags(wr.send_flags, signal_all)?;
    let is_inline = wr.send_flags & verbs::SEND_INLINE != 0;
    // In verbs an inline request may have more elements: it has no use for them.
    // SAFETY: the caller promises the elements.
    let sges = unsafe { elements(wr.sg_list, wr.num_sge, MAX_SGE) }?;
    if is_inline {
        // SAFETY: the caller promises the bytes of the elements.
        unsafe { copy_inline(&mut raw, sges) }?;
    } else {
        for sge in sges {
            raw.set_sge(raw.num_sge.into(), sge.to_raw());
            raw.num_sge += 1;
        }
    }
    Ok(raw)
}

/// The elements of a request or of a buffer.
///
/// # Safety
///
/// `list` has `count` elements, which nobody writes during `'a`.
pub(super) unsafe fn elements<'a>(
    list: *const Sge,
    count: c_int,
    max: usize,
) -> Result<&'a [Sge], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > max || (list.is_null() && count > 0) {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller promises so many.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

/// Copies what the elements name into the request. (`IBV_SEND_INLINE`)
///
/// # Safety
///
/// The elements name memory that is there; their keys are not looked at.
unsafe fn copy_inline(raw: &mut uapi::SendWr, sges: &[Sge]) -> Result<(), Errno> {
    if !matches!(
        raw.opcode,
        uapi::OP_WRITE | uapi::OP_WRITE_WITH_IMM | uapi::OP_SEND | uapi::OP_SEND_WITH_IMM
    ) {
        return Err(Errno::EINVAL);
    }
    let total: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
    if total > u64::from(MAX_INLINE) {
        return Err(Errno::EINVAL);
    }
    let mut data = [0; MAX_INLINE as usize];
    let mut at = 0;
    for sge in sges {
        let to = &mut data[at..at + sge.length as usize];
        let from = ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        if to.is_empty() {
            continue;
        }
        // SAFETY: the caller promises so many bytes there; `data` is our own.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        at += sge.length as usize;
    }
    for (word, bytes) in raw.data.iter_mut().zip(data.chunks_exact(8)) {
        let mut whole = [0; 8];
        whole.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    raw.flags |= uapi::SEND_INLINE;
    raw.inline_len = at as u32;
    Ok(())
}

/// What a request does to which memory of the peer.
///
/// # Safety
///
/// The part of `wr.wr` that its opcode needs is set, and the immediate of one that
/// has it.
unsafe fn target(wr: &SendWr) -> Result<uapi::SendWr, Errno> {
    let (opcode, has_imm) = match wr.opcode {
        verbs::WR_RDMA_WRITE => (uapi::OP_WRITE, false),
        verbs::WR_RDMA_WRITE_WITH_IMM => (uapi::OP_WRITE_WITH_IMM, true),
        verbs::WR_SEND => (uapi::OP_SEND, false),
        verbs::WR_SEND_WITH_IMM => (uapi::OP_SEND_WITH_IMM, true),
        verbs::WR_RDMA_READ => (uapi::OP_READ, false),
        verbs::WR_ATOMIC_CMP_AND_SWP => (uapi::OP_CAS, false),
        verbs::WR_ATOMIC_FETCH_AND_ADD => (uapi::OP_FAA, false),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let mut raw = uapi::SendWr {
        opcode,
        ..Pod::zeroed()
    };
    if has_imm {
        // SAFETY: the caller promises it.
        raw.imm = u32::from_be(unsafe { wr.imm_data.assume_init() });
    }
    match opcode {
        uapi::OP_SEND | uapi::OP_SEND_WITH_IMM => {}
        uapi::OP_CAS | uapi::OP_FAA => {
            // SAFETY: the caller promises it of an atomic request.
            raw.remote_addr = unsafe { wr.wr.atomic.remote_addr };
            // SAFETY: as above.
            raw.rkey = unsafe { wr.wr.atomic.rkey };
            // SAFETY: as above.
            let compare_add = unsafe { wr.wr.atomic.compare_add };
            // C need not set what an addition does not use.
            let swap = match opcode {
                // SAFETY: as above.
                uapi::OP_CAS => unsafe { wr.wr.atomic.swap },
                _ => 0,
            };
            raw.set_operands(compare_add, swap);
        }
        _ => {
            // SAFETY: the caller promises it of an RDMA request.
            let rdma = unsafe { wr.wr.rdma };
            (raw.remote_addr, raw.rkey) = (rdma.remote_addr, rdma.rkey);
        }
    }
    Ok(raw)
}

fn flags(send_flags: u32, signal_all: bool) -> Result<u8, Errno> {
    let known =
        verbs::SEND_FENCE | verbs::SEND_SIGNALED | verbs::SEND_SOLICITED | verbs::SEND_INLINE;
    if send_flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let signaled = signal_all || send_flags & verbs::SEND_SIGNALED != 0;
    let fenced = send_flags & verbs::SEND_FENCE != 0;
    let signaled = if signaled { uapi::SEND_SIGNALED } else { 0 };
    let fenced = if fenced { uapi::SEND_FENCE } else { 0 };
    Ok(signaled | fenced)
}

#[cfg(test)]
mod tests;
