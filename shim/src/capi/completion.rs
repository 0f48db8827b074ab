// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_poll_cq`, `weft_wait_cq`, `weft_enter`: completions as `struct ibv_wc`.
//!
//! The module writes its own, smaller completions into the caller's array, where
//! they are then widened from the last to the first: no second buffer, and one
//! system call however many there are.

use super::send::run;
use super::verbs::{self, SendWr, Wc};
use super::vqp::Vqp;
use super::{count, deref};
use nix::errno::Errno;
use std::ffi::c_int;
use std::ptr;
use weft_core::uapi::{self, WcStatus, MAX_BATCH, MAX_WAIT_NS};

const NS_PER_MS: u64 = 1_000_000;

// A widened completion never covers one that still has to be widened.
const _: () = assert!(size_of::<Wc>() >= size_of::<uapi::Wc>());
const _: () = assert!(align_of::<Wc>() >= align_of::<uapi::Wc>());

/// What a call reaps, and how long it waits for it.
#[derive(Debug)]
pub(super) struct Reap {
    pub(super) wcs: *mut Wc,
    /// Completions that fit, at most [`MAX_BATCH`].
    pub(super) room: u32,
    pub(super) min: u32,
    pub(super) timeout_ns: u64,
}

impl Reap {
    pub(super) const NOTHING: Self = Self {
        wcs: ptr::null_mut(),
        room: 0,
        min: 0,
        timeout_ns: 0,
    };

    fn new(num_entries: c_int, wcs: *mut Wc, min: c_int, timeout_ms: c_int) -> Result<Self, Errno> {
        let room = u32::try_from(num_entries).map_err(|_| Errno::EINVAL)?;
        let room = room.min(MAX_BATCH);
        let min = u32::try_from(min).map_err(|_| Errno::EINVAL)?;
        if min > room || (wcs.is_null() && room > 0) {
            return Err(Errno::EINVAL);
        }
        let timeout_ns = u64::try_from(timeout_ms).map_or(MAX_WAIT_NS, |ms| ms * NS_PER_MS);
        Ok(Self {
            wcs,
            room,
            min,
            timeout_ns,
        })
    }

    /// Widens the first `completed` completions.
    ///
    /// # Safety
    ///
    /// There is room for `room` completions, of which the module wrote the first
    /// `completed`.
    pub(super) unsafe fn expand(&self, completed: usize) {
        let narrow = self.wcs.cast::<uapi::Wc>();
        for index in (0..completed).rev() {
            // SAFETY: the module wrote it, and the wide ones after it begin at
            // or behind its end.
            let raw = unsafe { narrow.add(index).read() };
            // SAFETY: within the caller's room.
            unsafe { self.wcs.add(index).write(wide(&raw)) };
        }
    }
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
        let reap = Reap::new(num_entries, wc, min_complete, timeout_ms)?;
        if bad_wr.is_null() && !wr.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises the chain and the room.
        let posted = unsafe { run(vqp, wr, &reap) };
        if !bad_wr.is_null() {
            // SAFETY: not null, so the caller promises room.
            unsafe { bad_wr.write(posted.left) };
        }
        posted.reaped
    })
}

fn wide(raw: &uapi::Wc) -> Wc {
    let status = WcStatus::from_number(raw.status);
    Wc {
        wr_id: raw.wr_id,
        status: status.map_or(verbs::WC_GENERAL_ERR, |status| status as u32),
        opcode: wc_opcode(raw.opcode),
        vendor_err: if status.is_none() { raw.status } else { 0 },
        byte_len: raw.byte_len,
        imm_data: 0,
        qp_num: raw.vqp,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

fn wc_opcode(opcode: u32) -> u32 {
    match u8::try_from(opcode) {
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
    fn completions_are_widened_where_they_lie() {
        let narrow = |wr_id: u64| uapi::Wc {
            wr_id,
            opcode: u32::from(uapi::OP_READ),
            byte_len: 8,
            vqp: 3,
            ..Pod::zeroed()
        };
        let mut wcs = [wide(&narrow(u64::MAX)); 7];
        let reap = Reap::new(7, wcs.as_mut_ptr(), 0, 0).unwrap();
        for index in 0..5 {
            // SAFETY: it fits into the first place of a wider one.
            unsafe {
                reap.wcs
                    .cast::<uapi::Wc>()
                    .add(index)
                    .write(narrow(index as u64))
            };
        }
        // SAFETY: five were written, seven fit.
        unsafe { reap.expand(5) };
        for (index, wc) in wcs.iter().take(5).enumerate() {
            assert_eq!(*wc, wide(&narrow(index as u64)));
            assert_eq!(
                (wc.opcode, wc.byte_len, wc.qp_num),
                (verbs::WC_RDMA_READ, 8, 3)
            );
        }
        assert_eq!(wcs[6].wr_id, u64::MAX);
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
        let mut wc = wide(&Pod::zeroed());
        let place = ptr::from_mut(&mut wc);
        for (entries, wcs, min) in [
            (-1, place, 0),
            (1, place, 2),
            (1, place, -1),
            (1, ptr::null_mut(), 0),
            (c_int::MAX, place, 1025),
        ] {
            assert_eq!(Reap::new(entries, wcs, min, 0).err(), Some(Errno::EINVAL));
        }
        let forever = Reap::new(c_int::MAX, place, 1, -1).unwrap();
        assert_eq!((forever.room, forever.timeout_ns), (MAX_BATCH, MAX_WAIT_NS));
    }
}
