// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_post_recv`: chains of `struct ibv_recv_wr`, put into the ring that the
//! kernel takes them from.

use super::queues::{lock, Queues};
use super::send::elements;
use super::verbs::RecvWr;
use super::vqp::Vqp;
use super::{deref, status};
use crate::ring::RecvRing;
use nix::errno::Errno;
use std::ffi::c_int;
use std::sync::Arc;
use weft_core::uapi::{self, Pod, MAX_RECV_SGE};

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, `wr` null or a chain, `bad_wr` null or room for a
/// pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_post_recv(
    vqp: *const Vqp,
    wr: *mut RecvWr,
    bad_wr: *mut *mut RecvWr,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let vqp = unsafe { deref(vqp) }?;
        // SAFETY: the caller promises it.
        unsafe { post_to(vqp.recv_queues(), wr, bad_wr) }
    })
}

/// Posts a chain to a receive queue, if there is one.
///
/// # Safety
///
/// `wr` is null or a chain, `bad_wr` null or room for a pointer.
pub(super) unsafe fn post_to(
    queues: Option<&Arc<Queues>>,
    wr: *mut RecvWr,
    bad_wr: *mut *mut RecvWr,
) -> Result<(), Errno> {
    if wr.is_null() || bad_wr.is_null() {
        return Err(Errno::EINVAL);
    }
    let (left, outcome) = match queues {
        None => (wr, Err(Errno::EINVAL)),
        // SAFETY: the caller promises a chain.
        Some(queues) => unsafe { post(&mut lock(&queues.recv), wr) },
    };
    if outcome.is_err() {
        // SAFETY: not null, so the caller promises room.
        unsafe { bad_wr.write(left) };
    }
    outcome
}

/// Posts what comes before the first that cannot be posted, and answers with that.
///
/// # Safety
///
/// `first` is a chain.
unsafe fn post(ring: &mut RecvRing, first: *mut RecvWr) -> (*mut RecvWr, Result<(), Errno>) {
    if !ring.is_there() {
        return (first, Err(Errno::EINVAL));
    }
    let (mut left, mut count, mut outcome) = (first, 0, Ok(()));
    // SAFETY: the caller promises a chain, of which this is one.
    while let Some(wr) = unsafe { left.as_ref() } {
        // SAFETY: the caller promises the elements.
        let converted = match unsafe { convert(wr) } {
            Ok(_) if ring.room(count as usize + 1) <= count as usize => Err(Errno::ENOMEM),
            converted => converted,
        };
        match converted {
            Ok(raw) => ring.put(count, &raw),
            Err(errno) => {
                outcome = Err(errno);
                break;
            }
        }
        count += 1;
        left = wr.next;
    }
    ring.publish(count);
    (left, outcome)
}

/// Turns one buffer into the module's form.
///
/// # Safety
///
/// Its `sg_list` has `num_sge` elements.
unsafe fn convert(wr: &RecvWr) -> Result<uapi::RecvWr, Errno> {
    let mut raw = uapi::RecvWr {
        wr_id: wr.wr_id,
        ..Pod::zeroed()
    };
    // SAFETY: the caller promises the elements.
    for sge in unsafe { elements(wr.sg_list, wr.num_sge, MAX_RECV_SGE) }? {
        raw.sges[raw.num_sge as usize] = sge.to_raw();
        raw.num_sge += 1;
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::super::verbs::Sge;
    use super::*;
    use std::ptr;

    const SGE: Sge = Sge {
        addr: 0x5000,
        length: 64,
        lkey: 3,
    };

    fn converted(num_sge: c_int, sg_list: *mut Sge) -> Result<uapi::RecvWr, Errno> {
        let wr = RecvWr {
            wr_id: 42,
            next: ptr::null_mut(),
            sg_list,
            num_sge,
        };
        // SAFETY: no more elements are looked at than there are.
        unsafe { convert(&wr) }
    }

    #[test]
    fn a_buffer_becomes_the_modules_with_the_same_content() {
        let mut sges = [SGE; MAX_RECV_SGE];
        sges[1].addr = 0x6000;
        let raw = converted(2, sges.as_mut_ptr()).unwrap();
        assert_eq!((raw.wr_id, raw.num_sge, raw.reserved), (42, 2, 0));
        assert_eq!(
            (raw.sges[0], raw.sges[1]),
            (sges[0].to_raw(), sges[1].to_raw())
        );
        assert_eq!(raw.sges[2], Pod::zeroed());
        assert_eq!(converted(0, ptr::null_mut()).unwrap().num_sge, 0);
    }

    #[test]
    fn elements_that_cannot_be_are_refused() {
        let mut sges = [SGE; MAX_RECV_SGE];
        for num_sge in [-1, MAX_RECV_SGE as c_int + 1, c_int::MAX] {
            assert_eq!(converted(num_sge, sges.as_mut_ptr()), Err(Errno::EINVAL));
        }
        assert_eq!(converted(1, ptr::null_mut()), Err(Errno::EINVAL));
    }
}
