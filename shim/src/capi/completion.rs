// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_poll_cq`, `weft_wait_cq`, `weft_enter`: completions as `struct ibv_wc`,
//! straight from the ring.

use super::send::{post, Posted};
use super::verbs::{self, SendWr, Wc};
use super::vqp::{lock, Vqp};
use super::{count, deref};
use nix::errno::Errno;
use std::ffi::c_int;
use std::ptr;
use weft_core::uapi::{self, WcStatus, MAX_WAIT_NS};

const NS_PER_MS: u64 = 1_000_000;

/// What a call reaps, and how long it waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reap {
    /// Completions that fit.
    pub(super) room: usize,
    pub(super) min: u32,
    pub(super) timeout_ns: u64,
}

impl Reap {
    /// What the arguments of C say; `is_null`: there is no room after all.
    pub(super) fn new(
        num_entries: c_int,
        is_null: bool,
        min: c_int,
        timeout_ms: c_int,
    ) -> Result<Self, Errno> {
        if min > num_entries || (is_null && num_entries > 0) {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            room: usize::try_from(num_entries).map_err(|_| Errno::EINVAL)?,
            min: u32::try_from(min).map_err(|_| Errno::EINVAL)?,
            timeout_ns: u64::try_from(timeout_ms).map_or(MAX_WAIT_NS, |ms| ms * NS_PER_MS),
        })
    }
}

/// Waits until there are as many completions as wanted.
pub(super) fn wait(vqp: &Vqp, reap: &Reap) -> Result<(), Errno> {
    let wanted = reap.min as usize;
    if lock(&vqp.done).ready(wanted) < wanted {
        vqp.enter(0, reap.min, reap.timeout_ns)?;
    }
    Ok(())
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, `wc` null or room for `num_entries`.
#[no_mangle]
pub unsafe extern "C" fn weft_poll_cq(vqp: *const Vqp, num_entries: c_int, wc: *mut Wc) -> c_int {
    // SAFETY: the caller promises it; there is no chain.
    unsafe { weft_enter(vqp, ptr::null_mut(), ptr::null_mut(), 0, num_entries, wc, 0) }
}

/// See `weft.h`.
///
/// # Safety
///
/// As [`weft_poll_cq`].
#[no_mangle]
pub unsafe extern "C" fn weft_wait_cq(
    vqp: *const Vqp,
    num_entries: c_int,
    wc: *mut Wc,
    timeout_ms: c_int,
) -> c_int {
    let min = c_int::from(num_entries > 0);
    let none = ptr::null_mut();
    // SAFETY: the caller promises it; there is no chain.
    unsafe { weft_enter(vqp, none, ptr::null_mut(), min, num_entries, wc, timeout_ms) }
}

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, `wr` null or a chain, `bad_wr` null or room for a
/// pointer, `wc` null or room for `num_entries`.
#[no_mangle]
pub unsafe extern "C" fn weft_enter(
    vqp: *const Vqp,
    wr: *mut SendWr,
    bad_wr: *mut *mut SendWr,
    min_complete: c_int,
    num_entries: c_int,
    wc: *mut Wc,
    timeout_ms: c_int,
) -> c_int {
    count(|| {
        // SAFETY: the caller promises it.
        let vqp = unsafe { deref(vqp) }?;
        let reap = Reap::new(num_entries, wc.is_null(), min_complete, timeout_ms)?;
        let too_many = reap.min as usize > lock(&vqp.done).entries();
        if too_many || (bad_wr.is_null() && !wr.is_null()) {
            return Err(Errno::EINVAL);
        }
        let posted = if wr.is_null() {
            Posted::NOTHING
        } else {
            // SAFETY: the caller promises the chain.
            unsafe { post(vqp, wr, &reap) }
        };
        if !bad_wr.is_null() {
            // SAFETY: not null, so the caller promises room.
            unsafe { bad_wr.write(posted.left) };
        }
        let is_full = match posted.error {
            Some(Errno::ENOMEM) => posted.left == wr,
            Some(errno) => return Err(errno),
            None => false,
        };
        if !posted.has_waited {
            wait(vqp, &reap)?;
        }
        let reaped = lock(&vqp.done).take(reap.room, |at, raw| {
            // SAFETY: within the caller's room.
            unsafe { wc.add(at).write(wide(&raw)) };
        });
        if is_full && reaped == 0 {
            return Err(Errno::ENOMEM);
        }
        Ok(reaped)
    })
}

/// The completion that C gets.
pub(super) fn wide(raw: &uapi::Wc) -> Wc {
    let status = WcStatus::from_number(raw.status.into());
    let is_recv = matches!(raw.opcode, uapi::WC_RECV | uapi::WC_RECV_RDMA_WITH_IMM);
    let has_imm = raw.flags & uapi::WC_WITH_IMM != 0;
    Wc {
        wr_id: raw.wr_id,
        status: status.map_or(verbs::WC_GENERAL_ERR, |status| status as u32),
        opcode: wc_opcode(raw.opcode),
        vendor_err: if status.is_none() {
            raw.status.into()
        } else {
            0
        },
        byte_len: raw.byte_len,
        imm_data: if has_imm { raw.imm.to_be() } else { 0 },
        qp_num: raw.vqp,
        src_qp: if is_recv { raw.src } else { 0 },
        wc_flags: if has_imm { verbs::WC_WITH_IMM } else { 0 },
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

fn wc_opcode(opcode: u16) -> u32 {
    match opcode {
        uapi::WC_RECV => return verbs::WC_RECV,
        uapi::WC_RECV_RDMA_WITH_IMM => return verbs::WC_RECV_RDMA_WITH_IMM,
        _ => {}
    }
    match u8::try_from(opcode) {
        Ok(uapi::OP_SEND | uapi::OP_SEND_WITH_IMM) => verbs::WC_SEND,
        Ok(uapi::OP_READ) => verbs::WC_RDMA_READ,
        Ok(uapi::OP_CAS) => verbs::WC_COMP_SWAP,
        Ok(uapi::OP_FAA) => verbs::WC_FETCH_ADD,
        // Only requests that `weft_post_send` knows are ever completed.
        _ => verbs::WC_RDMA_WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::uapi::Pod;

    #[test]
    fn a_completion_says_the_same_to_c() {
        let raw = uapi::Wc {
            wr_id: 42,
            opcode: u16::from(uapi::OP_READ),
            byte_len: 8,
            vqp: 3,
            src: uapi::SRC_NONE,
            imm: 9,
            ..Pod::zeroed()
        };
        let wc = wide(&raw);
        assert_eq!((wc.wr_id, wc.byte_len, wc.qp_num), (42, 8, 3));
        assert_eq!((wc.opcode, wc.status), (verbs::WC_RDMA_READ, 0));
        assert_eq!((wc.wc_flags, wc.imm_data, wc.src_qp), (0, 0, 0));
    }

    #[test]
    fn a_message_has_its_sender_and_its_immediate_in_network_order() {
        let raw = uapi::Wc {
            opcode: uapi::WC_RECV,
            flags: uapi::WC_WITH_IMM,
            src: 7,
            imm: 0x0102_0304,
            ..Pod::zeroed()
        };
        let wc = wide(&raw);
        assert_eq!((wc.opcode, wc.src_qp), (verbs::WC_RECV, 7));
        assert_eq!(wc.wc_flags, verbs::WC_WITH_IMM);
        assert_eq!(wc.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn every_opcode_has_the_number_of_verbs() {
        let numbers = (0..7).map(wc_opcode);
        assert!(numbers.eq([1, 1, 0, 0, 2, 3, 4]));
        assert_eq!((wc_opcode(128), wc_opcode(129)), (128, 129));
    }

    #[test]
    fn a_status_of_a_newer_module_is_a_general_error() {
        let raw = uapi::Wc {
            status: 99,
            ..Pod::zeroed()
        };
        let wc = wide(&raw);
        assert_eq!((wc.status, wc.vendor_err), (verbs::WC_GENERAL_ERR, 99));
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
        for (entries, is_null, min) in [(-1, false, 0), (1, false, 2), (1, false, -1), (1, true, 0)]
        {
            let reap = Reap::new(entries, is_null, min, 0);
            assert_eq!(reap.err(), Some(Errno::EINVAL));
        }
        let forever = Reap::new(c_int::MAX, false, 1, -1).unwrap();
        assert_eq!(forever.timeout_ns, MAX_WAIT_NS);
    }
}
