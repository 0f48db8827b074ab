// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_poll_cq`, `weft_wait_cq`, `weft_enter`: completions as `struct ibv_wc`,
//! straight from the ring.

use super::cq::Cq;
use super::post::{post_all, Chain, List, Post, Why};
use super::queues::{is_recv, lock, Completions, Queues};
use super::verbs::{self, SendWr, Wc};
use super::vqp::Vqp;
use super::{count, deref};
use nix::errno::Errno;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;
use std::time::Instant;
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

    /// No more can be waited for than there is room for. Answers with the time, if it will
    /// be needed.
    fn begin(&self, queues: &Queues) -> Result<Option<Instant>, Errno> {
        if self.min as usize > lock(&queues.done).entries() {
            return Err(Errno::EINVAL);
        }
        // Another thread may destroy VQPs during the wait, which then goes on.
        Ok((self.min != 0).then(Instant::now))
    }
}

/// Waits until there are as many completions as wanted.
pub(super) fn wait(queues: &Queues, reap: &Reap) -> Result<(), Errno> {
    let wanted = reap.min as usize;
    if lock(&queues.done).ready(wanted) < wanted {
        queues.enter(0, reap.min, reap.timeout_ns)?;
    }
    Ok(())
}

/// Takes what fits, after a wait since `begin`; answers with how many. If that has ended for
/// completions that are thrown away, it goes on.
///
/// # Safety
///
/// `wc` has room for as many.
unsafe fn take(
    queues: &Queues,
    reap: &Reap,
    begin: Option<Instant>,
    wc: *mut Wc,
) -> Result<usize, Errno> {
    let wait = |min, timeout_ns| queues.enter(0, min, timeout_ns).map(drop);
    take_by(&queues.done, reap, begin, wait, |at, raw| {
        // SAFETY: within the caller's room.
        unsafe { wc.add(at).write(wide(&raw)) };
    })
}

/// [`take`], by `wait`: it is told how many completions to wait for, and how long.
fn take_by(
    done: &Mutex<Completions>,
    reap: &Reap,
    begin: Option<Instant>,
    mut wait: impl FnMut(u32, u64) -> Result<(), Errno>,
    mut into: impl FnMut(usize, uapi::Wc),
) -> Result<usize, Errno> {
    let mut taken = 0;
    loop {
        let place = |at, raw| into(taken + at, raw);
        let (kept, threw_some) = lock(done).take(reap.room - taken, place);
        taken += kept;
        let got = u32::try_from(taken).unwrap_or(u32::MAX);
        if got >= reap.min || !threw_some {
            return Ok(taken);
        }
        let left_ns = left_of(reap.timeout_ns, begin);
        if left_ns == 0 {
            return Ok(taken);
        }
        match wait(reap.min - got, left_ns) {
            Err(errno) if taken == 0 => return Err(errno),
            Err(_) => return Ok(taken),
            Ok(()) => {}
        }
    }
}

/// The rest of a time that began then.
fn left_of(timeout_ns: u64, begin: Option<Instant>) -> u64 {
    let Some(begin) = begin else {
        return timeout_ns;
    };
    let over = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    timeout_ns.saturating_sub(over)
}

/// See `weft.h`.
///
/// # Safety
///
/// `cq` is null or a CQ, `wc` null or room for `num_entries`.
#[no_mangle]
pub unsafe extern "C" fn weft_poll_cq(cq: *const Cq, num_entries: c_int, wc: *mut Wc) -> c_int {
    // SAFETY: the caller promises it; there is nothing to post.
    unsafe { weft_enter_list(cq, ptr::null_mut(), 0, 0, num_entries, wc, 0) }
}

/// See `weft.h`.
///
/// # Safety
///
/// As [`weft_poll_cq`].
#[no_mangle]
pub unsafe extern "C" fn weft_wait_cq(
    cq: *const Cq,
    num_entries: c_int,
    wc: *mut Wc,
    timeout_ms: c_int,
) -> c_int {
    let min = c_int::from(num_entries > 0);
    // SAFETY: the caller promises it; there is nothing to post.
    unsafe { weft_enter_list(cq, ptr::null_mut(), 0, min, num_entries, wc, timeout_ms) }
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
        let queues = &vqp.cq.queues;
        let reap = Reap::new(num_entries, wc.is_null(), min_complete, timeout_ms)?;
        let begin = reap.begin(queues)?;
        if bad_wr.is_null() && !wr.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises the chain.
        let mut chain = unsafe { Chain::new(vqp, ptr::null(), wr) };
        if wr.is_null() {
            // Nothing to post is nothing to refuse.
            chain.error = None;
        }
        // SAFETY: as above.
        let waited = unsafe { post_all(queues, std::slice::from_mut(&mut chain), &reap) };
        if !bad_wr.is_null() {
            // SAFETY: not null, so the caller promises room.
            unsafe { bad_wr.write(chain.left) };
        }
        let is_full = match chain.error {
            Some(Why::Full) => chain.left == wr,
            Some(Why::Errno(errno)) => return Err(errno),
            None => false,
        };
        if !waited? {
            wait(queues, &reap)?;
        }
        // SAFETY: the caller promises the room.
        let taken = unsafe { take(queues, &reap, begin, wc) }?;
        if is_full && taken == 0 {
            return Err(Errno::ENOMEM);
        }
        Ok(taken)
    })
}

/// See `weft.h`.
///
/// # Safety
///
/// That of [`super::weft_post_list`], and `wc` is null or room for `num_entries`.
#[no_mangle]
pub unsafe extern "C" fn weft_enter_list(
    cq: *const Cq,
    posts: *mut Post,
    num_posts: c_int,
    min_complete: c_int,
    num_entries: c_int,
    wc: *mut Wc,
    timeout_ms: c_int,
) -> c_int {
    count(|| {
        // SAFETY: the caller promises it.
        let queues = &unsafe { deref(cq) }?.queues;
        let mut reap = Reap::new(num_entries, wc.is_null(), min_complete, timeout_ms)?;
        let begin = reap.begin(queues)?;
        let mut waits = true;
        if num_posts != 0 {
            // SAFETY: the caller promises it.
            let mut list = unsafe { List::new(posts, num_posts, queues.session()) }?;
            // SAFETY: as above.
            let waited = unsafe { post_all(queues, &mut list.chains, &reap) };
            // SAFETY: as above.
            unsafe { list.answer() };
            waits = !waited?;
            if !list.may_wait() {
                reap.min = 0;
            }
        }
        if waits {
            wait(queues, &reap)?;
        }
        // SAFETY: the caller promises the room.
        unsafe { take(queues, &reap, begin, wc) }
    })
}

/// The completion that C gets.
pub(super) fn wide(raw: &uapi::Wc) -> Wc {
    let status = WcStatus::from_number(raw.status.into());
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
        src_qp: match raw.src {
            uapi::SRC_NONE if !is_recv(raw) => 0,
            src => src,
        },
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
    use crate::ring::tests::{completions_of, rings};
    use weft_core::uapi::Pod;

    const HOUR_NS: u64 = 3_600_000_000_000;
    const MESSAGE: u16 = uapi::WC_RECV;

    /// Takes two completions of a queue on which `wcs` are there, by VQP, once it has waited
    /// for them. VQP 3 was destroyed. Answers with what was taken, and with what more was
    /// waited for, each time in vain.
    fn taken(timeout_ns: u64, wcs: &[u32]) -> (Result<usize, Errno>, Vec<u32>, Vec<u32>) {
        let wcs: Vec<_> = wcs.iter().map(|vqp| (*vqp, MESSAGE)).collect();
        let mut done = Completions::new(completions_of(&wcs));
        done.note_made(3, true);
        done.add_ghost(3, 1);
        let reap = Reap {
            room: 2,
            min: 2,
            timeout_ns,
        };
        let (mut vqps, mut waits) = (Vec::new(), Vec::new());
        let wait = |min, left_ns| {
            assert!(left_ns <= timeout_ns);
            waits.push(min);
            Err(Errno::EINTR)
        };
        let into = |_, wc: uapi::Wc| vqps.push(wc.vqp);
        let begin = Some(Instant::now());
        let count = take_by(&Mutex::new(done), &reap, begin, wait, into);
        (count, vqps, waits)
    }

    #[test]
    fn a_wait_that_a_destroyed_vqp_has_ended_goes_on() {
        assert_eq!(taken(HOUR_NS, &[3, 4]), (Ok(1), vec![4], vec![1]));
        assert_eq!(taken(HOUR_NS, &[3]), (Err(Errno::EINTR), vec![], vec![2]));
    }

    #[test]
    fn a_wait_goes_on_for_no_other_reason_and_only_while_there_is_time() {
        assert_eq!(taken(HOUR_NS, &[4, 3, 4]), (Ok(2), vec![4, 4], vec![]));
        assert_eq!(taken(HOUR_NS, &[4]), (Ok(1), vec![4], vec![]));
        assert_eq!(taken(0, &[3, 4]), (Ok(1), vec![4], vec![]));
    }

    #[test]
    fn whatever_may_wait_knows_when_it_began() {
        let queues = Queues::of_rings(rings(8, 0, &[]));
        let began = |min| {
            let reap = Reap {
                room: 9,
                min,
                timeout_ns: HOUR_NS,
            };
            reap.begin(&queues).map(|begin| begin.is_some())
        };
        assert_eq!((began(0), began(1)), (Ok(false), Ok(true)));
        assert_eq!(began(9), Err(Errno::EINVAL));
    }

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
    fn a_request_of_an_unconnected_vqp_has_its_peer() {
        let raw = uapi::Wc {
            opcode: u16::from(uapi::OP_WRITE),
            src: 77,
            ..Pod::zeroed()
        };
        assert_eq!(wide(&raw).src_qp, 77);
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
