// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a chain becomes, without a module to post it to.

use super::*;

const SGE: Sge = Sge {
    addr: 0x5000,
    length: 64,
    lkey: 3,
};

fn request(sge: &mut Sge) -> SendWr {
    SendWr {
        wr_id: 42,
        next: ptr::null_mut(),
        sg_list: sge,
        num_sge: 1,
        opcode: verbs::WR_RDMA_READ,
        send_flags: verbs::SEND_SIGNALED,
        imm_data: MaybeUninit::uninit(),
        wr: verbs::Wr {
            rdma: verbs::Rdma {
                remote_addr: 0x9000,
                rkey: 4,
            },
        },
    }
}

fn converted(change: impl FnOnce(&mut SendWr)) -> Result<uapi::SendWr, Errno> {
    let mut sge = SGE;
    let mut wr = request(&mut sge);
    change(&mut wr);
    // SAFETY: `num_sge` is at most what `sg_list` has where it is looked at.
    unsafe { convert(&wr, false) }
}

#[test]
fn a_request_becomes_the_modules_with_the_same_content() {
    let expected = uapi::SendWr {
        wr_id: 42,
        opcode: uapi::OP_READ,
        flags: uapi::SEND_SIGNALED,
        num_sge: 1,
        remote_addr: 0x9000,
        rkey: 4,
        lkey: 3,
        local_addr: 0x5000,
        len: 64,
        ..Pod::zeroed()
    };
    assert_eq!(converted(|_| {}), Ok(expected));
    let write = converted(|wr| {
        wr.opcode = verbs::WR_RDMA_WRITE;
        wr.send_flags = verbs::SEND_SOLICITED;
    });
    assert_eq!(
        write,
        Ok(uapi::SendWr {
            opcode: uapi::OP_WRITE,
            flags: 0,
            ..expected
        })
    );
}

#[test]
fn an_atomic_request_has_the_operands_that_its_opcode_uses() {
    let atomic = |opcode| {
        converted(|wr| {
            wr.opcode = opcode;
            wr.wr.atomic = verbs::Atomic {
                remote_addr: 0x9008,
                compare_add: 10,
                swap: 11,
                rkey: 4,
            };
        })
        .map(|wr| (wr.opcode, wr.remote_addr, wr.rkey, wr.compare_add, wr.swap))
    };
    let swapped = atomic(verbs::WR_ATOMIC_CMP_AND_SWP);
    assert_eq!(swapped, Ok((uapi::OP_CAS, 0x9008, 4, 10, 11)));
    let added = atomic(verbs::WR_ATOMIC_FETCH_AND_ADD);
    assert_eq!(added, Ok((uapi::OP_FAA, 0x9008, 4, 10, 0)));
}

#[test]
fn what_the_module_cannot_do_is_refused() {
    const INLINE: u32 = 1 << 3;
    const FENCE: u32 = 1;
    assert_eq!(converted(|wr| wr.opcode = 2), Err(Errno::EOPNOTSUPP));
    for flag in [INLINE, FENCE, 1 << 31] {
        assert_eq!(converted(|wr| wr.send_flags |= flag), Err(Errno::EINVAL));
    }
    for num_sge in [-1, 0, 2] {
        assert_eq!(converted(|wr| wr.num_sge = num_sge), Err(Errno::EINVAL));
    }
    let no_list = converted(|wr| wr.sg_list = ptr::null_mut());
    assert_eq!(no_list, Err(Errno::EINVAL));
}

#[test]
fn a_vqp_that_signals_all_signals_all() {
    assert_eq!(flags(0, true), Ok(uapi::SEND_SIGNALED));
    assert_eq!(flags(0, false), Ok(0));
}

/// A chain of `count` requests.
fn chain(count: usize, sge: &mut Sge) -> Vec<SendWr> {
    let mut wrs = vec![request(sge); count];
    let first = wrs.as_mut_ptr();
    for index in 1..count {
        wrs[index - 1].next = first.wrapping_add(index);
        wrs[index].wr_id = index as u64;
    }
    wrs
}

#[test]
fn a_batch_ends_with_the_chain_with_its_room_or_before_a_bad_request() {
    let mut sge = SGE;
    for (count, len, stop) in [
        (1, 1, Stop::End),
        (BATCH, BATCH, Stop::End),
        (BATCH + 1, BATCH, Stop::Full),
    ] {
        let wrs = chain(count, &mut sge);
        let mut batch = Batch::new();
        // SAFETY: a chain.
        assert_eq!(unsafe { batch.fill(wrs.as_ptr(), false) }, stop);
        assert_eq!(batch.len, len);
    }
    let mut wrs = chain(5, &mut sge);
    wrs[3].num_sge = 0;
    let mut batch = Batch::new();
    // SAFETY: a chain.
    let stop = unsafe { batch.fill(wrs.as_ptr(), false) };
    assert_eq!((stop, batch.len), (Stop::Bad(Errno::EINVAL), 3));
    // SAFETY: the chain has five.
    assert_eq!(unsafe { (*skip(wrs.as_mut_ptr(), 3)).num_sge }, 0);
    // SAFETY: as above.
    assert!(unsafe { skip(wrs.as_mut_ptr(), 5) }.is_null());
}
