// SPDX-License-Identifier: MIT OR Apache-2.0

//! What requests become.

use super::*;
use std::mem::MaybeUninit;

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
    let mut expected = uapi::SendWr {
        wr_id: 42,
        opcode: uapi::OP_READ,
        flags: uapi::SEND_SIGNALED,
        num_sge: 1,
        remote_addr: 0x9000,
        rkey: 4,
        ..Pod::zeroed()
    };
    expected.set_sge(0, SGE.to_raw());
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
fn an_immediate_is_a_number_whatever_the_order_of_its_bytes() {
    let with_imm = |opcode| {
        converted(|wr| {
            wr.opcode = opcode;
            wr.imm_data = MaybeUninit::new(0x0102_0304_u32.to_be());
        })
        .map(|wr| (wr.opcode, wr.imm, wr.remote_addr, wr.rkey))
    };
    assert_eq!(
        with_imm(1),
        Ok((uapi::OP_WRITE_WITH_IMM, 0x0102_0304, 0x9000, 4))
    );
    assert_eq!(with_imm(3), Ok((uapi::OP_SEND_WITH_IMM, 0x0102_0304, 0, 0)));
    assert_eq!(with_imm(2), Ok((uapi::OP_SEND, 0, 0, 0)));
}

#[test]
fn several_elements_keep_their_order() {
    let mut sges = [SGE; MAX_SGE];
    for (at, sge) in sges.iter_mut().enumerate() {
        sge.addr += at as u64;
    }
    let wr = converted(|wr| {
        wr.sg_list = sges.as_mut_ptr();
        wr.num_sge = MAX_SGE as c_int;
    });
    let wr = wr.unwrap();
    assert_eq!(usize::from(wr.num_sge), MAX_SGE);
    assert!((0..MAX_SGE).all(|at| wr.sge(at) == sges[at].to_raw()));
}

#[test]
fn inline_bytes_are_gathered_into_the_request() {
    let bytes: Vec<u8> = (0..81).collect();
    let sge = |range: std::ops::Range<usize>| Sge {
        addr: bytes[range.start..].as_ptr().expose_provenance() as u64,
        length: range.len() as u32,
        lkey: 99,
    };
    let inline = |opcode, sges: &mut [Sge]| {
        converted(|wr| {
            wr.opcode = opcode;
            wr.send_flags = verbs::SEND_INLINE;
            wr.sg_list = sges.as_mut_ptr();
            wr.num_sge = sges.len() as c_int;
        })
    };
    let wr = inline(verbs::WR_SEND, &mut [sge(0..3), sge(3..3), sge(3..80)]).unwrap();
    assert_eq!((wr.num_sge, wr.inline_len), (0, 80));
    assert_eq!(wr.flags, uapi::SEND_INLINE);
    assert_eq!(wr.as_bytes()[48..], bytes[..80]);
    let empty = inline(verbs::WR_SEND, &mut []).unwrap();
    assert_eq!((empty.flags, empty.inline_len), (uapi::SEND_INLINE, 0));
    let long = inline(verbs::WR_SEND, &mut [sge(0..80), sge(80..81)]);
    assert_eq!(long, Err(Errno::EINVAL));
    let read = inline(verbs::WR_RDMA_READ, &mut [sge(0..8)]);
    assert_eq!(read, Err(Errno::EINVAL));
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
        .map(|wr| {
            (
                wr.opcode,
                wr.remote_addr,
                wr.rkey,
                wr.operands().0,
                wr.operands().1,
            )
        })
    };
    let swapped = atomic(verbs::WR_ATOMIC_CMP_AND_SWP);
    assert_eq!(swapped, Ok((uapi::OP_CAS, 0x9008, 4, 10, 11)));
    let added = atomic(verbs::WR_ATOMIC_FETCH_AND_ADD);
    assert_eq!(added, Ok((uapi::OP_FAA, 0x9008, 4, 10, 0)));
}

#[test]
fn what_the_module_cannot_do_is_refused() {
    assert_eq!(converted(|wr| wr.opcode = 7), Err(Errno::EOPNOTSUPP));
    for flag in [1 << 4, 1 << 31] {
        assert_eq!(converted(|wr| wr.send_flags |= flag), Err(Errno::EINVAL));
    }
    for num_sge in [-1, MAX_SGE as c_int + 1] {
        assert_eq!(converted(|wr| wr.num_sge = num_sge), Err(Errno::EINVAL));
    }
    let no_list = converted(|wr| wr.sg_list = ptr::null_mut());
    assert_eq!(no_list, Err(Errno::EINVAL));
}

#[test]
fn a_vqp_that_signals_all_signals_all() {
    assert_eq!(flags(0, true), Ok(uapi::SEND_SIGNALED));
    assert_eq!(flags(0, false), Ok(0));
    assert_eq!(flags(verbs::SEND_FENCE, false), Ok(uapi::SEND_FENCE));
}
