// SPDX-License-Identifier: MIT OR Apache-2.0

//! Everything that can be wrong with a work request, and the status that says so.

use weft_core::uapi::{
    SendWr, Sge, WcStatus, MAX_INLINE, MAX_MSG_BYTES, OP_READ, OP_SEND, OP_WRITE, SEND_INLINE,
};

use super::{Fixture, LEN};
use crate::raw::with_sge;

/// What is wrong, where, and how it ends.
type Case = (&'static str, SendWr, WcStatus);

impl Fixture {
    /// What is wrong, and how it ends.
    pub(super) fn cases(&self) -> Vec<Case> {
        let mut cases = self.malformed();
        cases.extend(self.local());
        cases.extend(self.remote());
        cases
    }

    fn malformed(&self) -> Vec<Case> {
        let (write, read, bad) = (
            self.good(OP_WRITE),
            self.good(OP_READ),
            WcStatus::LocQpOpErr,
        );
        let wr = write;
        let inline = SendWr {
            flags: SEND_INLINE,
            num_sge: 0,
            inline_len: 8,
            ..wr
        };
        let many = |wr, num_sge| SendWr { num_sge, ..wr };
        vec![
            ("an unknown opcode", SendWr { opcode: 77, ..wr }, bad),
            ("opcode 255", SendWr { opcode: 255, ..wr }, bad),
            ("unknown flags", SendWr { flags: 0x40, ..wr }, bad),
            ("all flags", SendWr { flags: 0xff, ..wr }, bad),
            ("six elements", many(wr, 6), bad),
            ("65,535 elements", many(read, u16::MAX), bad),
            ("a reserved field", SendWr { reserved: 1, ..wr }, bad),
            ("an immediate for a WRITE", SendWr { imm: 1, ..wr }, bad),
            (
                "inline bytes that are not",
                SendWr {
                    inline_len: 8,
                    ..wr
                },
                bad,
            ),
            (
                "an inline READ",
                SendWr {
                    opcode: OP_READ,
                    ..inline
                },
                bad,
            ),
            ("inline bytes and elements", many(inline, 1), bad),
            ("a message from a VQP for none", message(OP_SEND, wr), bad),
            (
                "too many inline bytes",
                SendWr {
                    inline_len: MAX_INLINE + 1,
                    ..inline
                },
                bad,
            ),
            (
                "one byte too many",
                with_sge(wr, |sge| sge.len = MAX_MSG_BYTES + 1),
                WcStatus::LocLenErr,
            ),
            (
                "4 GiB",
                with_sge(wr, |sge| sge.len = u32::MAX),
                WcStatus::LocLenErr,
            ),
            (
                "five times 1 GiB",
                five_of(MAX_MSG_BYTES, wr),
                WcStatus::LocLenErr,
            ),
        ]
    }

    fn local(&self) -> Vec<Case> {
        let (write, read, bad) = (
            self.good(OP_WRITE),
            self.good(OP_READ),
            WcStatus::LocProtErr,
        );
        let start = write.sge(0).addr;
        let key = |wr, lkey| with_sge(wr, |sge| sge.lkey = lkey);
        let at = |wr, addr| with_sge(wr, |sge| sge.addr = addr);
        let last = |wr: SendWr, sge: Sge| {
            let mut wr = SendWr { num_sge: 5, ..wr };
            (1..4).for_each(|at| wr.set_sge(at, wr.sge(0)));
            wr.set_sge(4, sge);
            wr
        };
        let wild = Sge {
            lkey: write.sge(0).lkey ^ 1,
            ..write.sge(0)
        };
        let long = with_sge(write, |sge| sge.len = LEN as u32);
        vec![
            ("an unknown lkey", key(write, wild.lkey), bad),
            ("the zero lkey", key(write, 0), bad),
            ("another session's lkey", key(write, self.lkey_foreign), bad),
            ("the peer's key as lkey", key(write, self.rkey), bad),
            (
                "a READ into a read-only region",
                key(read, self.lkey_read_only),
                bad,
            ),
            ("a wrong lkey in the last of five", last(write, wild), bad),
            ("the same for a READ", last(read, wild), bad),
            ("bytes before the region", at(write, start - 1), bad),
            ("bytes behind the region", at(write, start + LEN - 7), bad),
            (
                "a READ to behind the region",
                at(read, start + LEN - 7),
                bad,
            ),
            ("a long WRITE that ends outside", at(long, start + 8), bad),
            (
                "more bytes than the region has",
                with_sge(write, |sge| sge.len = MAX_MSG_BYTES),
                bad,
            ),
            ("local bytes that wrap", at(write, u64::MAX - 3), bad),
        ]
    }

    fn remote(&self) -> Vec<Case> {
        let (write, read, bad) = (
            self.good(OP_WRITE),
            self.good(OP_READ),
            WcStatus::RemAccessErr,
        );
        let start = write.remote_addr;
        let key = |wr, rkey| SendWr { rkey, ..wr };
        let at = |wr, remote_addr| SendWr { remote_addr, ..wr };
        let long = |wr| with_sge(wr, |sge| sge.len = LEN as u32);
        vec![
            ("an unknown rkey", key(write, write.rkey ^ 1), bad),
            ("the zero rkey", key(read, 0), bad),
            ("our own lkey as rkey", key(write, self.lkey), bad),
            ("an rkey that has gone", key(read, self.rkey_gone), bad),
            (
                "a WRITE to what is for READs",
                key(write, self.rkey_read_only),
                bad,
            ),
            (
                "a WRITE to what is for nobody",
                key(write, self.rkey_local_only),
                bad,
            ),
            (
                "a READ of what is for nobody",
                key(read, self.rkey_local_only),
                bad,
            ),
            ("remote bytes before the region", at(write, start - 1), bad),
            (
                "remote bytes behind the region",
                at(write, start + LEN - 7),
                bad,
            ),
            (
                "a READ of bytes behind the region",
                at(read, start + LEN - 7),
                bad,
            ),
            (
                "a long WRITE that ends outside there",
                at(long(write), start + 8),
                bad,
            ),
            (
                "a long READ that ends outside there",
                at(long(read), start + 8),
                bad,
            ),
            ("remote bytes that wrap", at(write, u64::MAX - 3), bad),
        ]
    }
}

/// The same bytes as a message.
fn message(opcode: u8, wr: SendWr) -> SendWr {
    SendWr {
        opcode,
        remote_addr: 0,
        rkey: 0,
        ..wr
    }
}

/// Five elements of so many bytes each.
fn five_of(len: u32, wr: SendWr) -> SendWr {
    let mut wr = SendWr {
        num_sge: 5,
        ..with_sge(wr, |sge| sge.len = len)
    };
    (1..5).for_each(|at| wr.set_sge(at, wr.sge(0)));
    wr
}
