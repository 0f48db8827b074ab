// SPDX-License-Identifier: MIT OR Apache-2.0

//! A request has what its builder was told.

use super::*;
use crate::error::Error;
use crate::mr::tests::dangling_slice;
use uapi::{Sge, MAX_INLINE, MAX_MSG_BYTES, MAX_RECV_SGE, MAX_SGE};

const REMOTE: Remote = Remote {
    addr: 0x9000,
    rkey: 4,
};

fn slices(count: u32) -> Vec<LocalSlice<'static>> {
    (0..count)
        .map(|n| dangling_slice(0x5000 + u64::from(n) * 64, 64, n + 1))
        .collect()
}

fn sge(n: u32) -> Sge {
    Sge {
        addr: 0x5000 + u64::from(n) * 64,
        len: 64,
        lkey: n + 1,
    }
}

#[test]
fn only_a_plain_read_or_write_is_run_in_the_call() {
    let run = |opcode: u8| uapi::Run {
        vqp: 3,
        opcode: opcode.into(),
        rkey: REMOTE.rkey,
        reserved: 0,
        remote_addr: REMOTE.addr,
        local: sge(0),
    };
    let slices = slices(2);
    let (one, two) = (slices[0], Sges::new(&slices).unwrap());
    let read = SendWr::read(one, REMOTE).signaled().wr_id(9);
    assert_eq!(read.as_run(3), Some(run(uapi::OP_READ)));
    let write = SendWr::write(one, REMOTE);
    assert_eq!(write.as_run(3), Some(run(uapi::OP_WRITE)));
    let inline = Payload::inline(b"eight by").unwrap();
    for other in [
        SendWr::read(two, REMOTE),
        SendWr::write(inline, REMOTE),
        SendWr::write_with_imm(one, REMOTE, 0),
        SendWr::fetch_add(one, REMOTE, 0),
        SendWr::send(one),
        write.fenced(),
    ] {
        assert_eq!(other.as_run(3), None, "{other:?}");
    }
}

#[test]
fn a_write_has_its_opcode_its_element_and_its_target() {
    let wr = SendWr::write(slices(1)[0], REMOTE).signaled().wr_id(42);
    let mut expected = uapi::SendWr {
        wr_id: 42,
        opcode: uapi::OP_WRITE,
        flags: uapi::SEND_SIGNALED,
        num_sge: 1,
        remote_addr: 0x9000,
        rkey: 4,
        ..Pod::zeroed()
    };
    expected.set_sge(0, sge(0));
    assert_eq!(*wr.as_raw(), expected);
}

#[test]
fn a_message_has_no_target() {
    let wr = SendWr::send_with_imm(Sges::EMPTY, 7);
    let expected = uapi::SendWr {
        opcode: uapi::OP_SEND_WITH_IMM,
        imm: 7,
        ..Pod::zeroed()
    };
    assert_eq!(*wr.as_raw(), expected);
    assert_eq!(SendWr::send(Sges::EMPTY).as_raw().opcode, uapi::OP_SEND);
}

#[test]
fn several_pieces_keep_their_order() {
    let all = slices(MAX_SGE as u32 + 1);
    let wr = SendWr::read(Sges::new(&all[..MAX_SGE]).unwrap(), REMOTE);
    let raw = wr.as_raw();
    assert_eq!((raw.opcode, raw.num_sge), (uapi::OP_READ, MAX_SGE as u16));
    assert!((0..MAX_SGE as u32).all(|n| raw.sge(n as usize) == sge(n)));
    let (given, max) = (MAX_SGE + 1, MAX_SGE);
    let refused = Sges::new(&all).err();
    assert_eq!(refused, Some(Error::TooManyElements { given, max }));
}

#[test]
fn pieces_together_are_no_longer_than_a_request_may_be() {
    let half = dangling_slice(0, MAX_MSG_BYTES / 2, 1);
    assert!(Sges::new(&[half, half]).is_ok());
    let error = Error::TooLong(MAX_MSG_BYTES as usize / 2 * 3);
    assert_eq!(Sges::new(&[half; 3]).err(), Some(error.clone()));
    assert_eq!(RecvWr::scattered(&[half; 3]).err(), Some(error));
}

#[test]
fn inline_bytes_are_in_the_request() {
    let bytes: Vec<u8> = (1..=MAX_INLINE as u8 + 1).collect();
    for len in [0, 1, 7, 8, 9, 79, 80] {
        let payload = Payload::inline(&bytes[..len]).unwrap();
        let wr = SendWr::write_with_imm(payload, REMOTE, 5);
        let raw = wr.as_raw();
        assert_eq!((raw.opcode, raw.imm), (uapi::OP_WRITE_WITH_IMM, 5));
        assert_eq!((raw.flags, raw.num_sge), (uapi::SEND_INLINE, 0));
        assert_eq!(raw.inline_len as usize, len);
        let data = &raw.as_bytes()[48..];
        assert_eq!(data[..len], bytes[..len]);
        assert!(data[len..].iter().all(|byte| *byte == 0));
    }
    let refused = Payload::inline(&bytes).err();
    assert_eq!(refused, Some(Error::InlineTooLong(81)));
}

#[test]
fn an_atomic_request_has_its_operands() {
    let wr = SendWr::compare_swap(slices(1)[0], REMOTE, 10, 11);
    let raw = wr.as_raw();
    assert_eq!((raw.opcode, raw.operands()), (5, (10, 11)));
    let wr = SendWr::fetch_add(slices(1)[0], REMOTE, 10);
    let raw = wr.as_raw();
    assert_eq!((raw.opcode, raw.operands()), (6, (10, 0)));
}

#[test]
fn a_receive_buffer_has_its_pieces() {
    let all = slices(MAX_RECV_SGE as u32 + 1);
    let raw = *RecvWr::scattered(&all[..3]).unwrap().wr_id(8).as_raw();
    assert_eq!((raw.wr_id, raw.num_sge), (8, 3));
    assert_eq!(raw.sges, [sge(0), sge(1), sge(2)]);
    let (given, max) = (MAX_RECV_SGE + 1, MAX_RECV_SGE);
    let refused = RecvWr::scattered(&all).err();
    assert_eq!(refused, Some(Error::TooManyElements { given, max }));
    assert_eq!(RecvWr::new(all[0]).as_raw().num_sge, 1);
    assert_eq!(*RecvWr::empty().as_raw(), Pod::zeroed());
}
