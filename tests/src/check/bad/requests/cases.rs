// SPDX-License-Identifier: MIT OR Apache-2.0

//! Everything that can be wrong with a work request, and the status that says so.

use weft_core::uapi::{SendWr, WcStatus, MAX_MSG_BYTES, OP_READ, OP_WRITE};

use super::{Fixture, LEN};

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
        let (wr, bad) = (self.good(OP_WRITE), WcStatus::LocQpOpErr);
        vec![
            ("an unknown opcode", SendWr { opcode: 77, ..wr }, bad),
            ("opcode 255", SendWr { opcode: 255, ..wr }, bad),
            ("unknown flags", SendWr { flags: 0x80, ..wr }, bad),
            ("all flags", SendWr { flags: 0xff, ..wr }, bad),
            ("no element", SendWr { num_sge: 0, ..wr }, bad),
            ("two elements", SendWr { num_sge: 2, ..wr }, bad),
            ("a reserved field", SendWr { reserved: 1, ..wr }, bad),
            ("an operand for a WRITE", SendWr { swap: 1, ..wr }, bad),
            (
                "one byte too many",
                SendWr {
                    len: MAX_MSG_BYTES + 1,
                    ..wr
                },
                WcStatus::LocLenErr,
            ),
            (
                "4 GiB",
                SendWr {
                    len: u32::MAX,
                    ..wr
                },
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
        let start = write.local_addr;
        let long = SendWr {
            len: LEN as u32,
            ..write
        };
        vec![
            (
                "an unknown lkey",
                SendWr {
                    lkey: write.lkey ^ 1,
                    ..write
                },
                bad,
            ),
            ("the zero lkey", SendWr { lkey: 0, ..write }, bad),
            (
                "another session's lkey",
                SendWr {
                    lkey: self.lkey_foreign,
                    ..write
                },
                bad,
            ),
            (
                "the peer's key as lkey",
                SendWr {
                    lkey: self.rkey,
                    ..write
                },
                bad,
            ),
            (
                "a READ into a read-only region",
                SendWr {
                    lkey: self.lkey_read_only,
                    ..read
                },
                bad,
            ),
            (
                "bytes before the region",
                SendWr {
                    local_addr: start - 1,
                    ..write
                },
                bad,
            ),
            (
                "bytes behind the region",
                SendWr {
                    local_addr: start + LEN - 7,
                    ..write
                },
                bad,
            ),
            (
                "a READ to behind the region",
                SendWr {
                    local_addr: start + LEN - 7,
                    ..read
                },
                bad,
            ),
            (
                "a long WRITE that ends outside",
                SendWr {
                    local_addr: start + 8,
                    ..long
                },
                bad,
            ),
            (
                "more bytes than the region has",
                SendWr {
                    len: MAX_MSG_BYTES,
                    ..write
                },
                bad,
            ),
            (
                "local bytes that wrap",
                SendWr {
                    local_addr: u64::MAX - 3,
                    ..write
                },
                bad,
            ),
        ]
    }

    fn remote(&self) -> Vec<Case> {
        let (write, read, bad) = (
            self.good(OP_WRITE),
            self.good(OP_READ),
            WcStatus::RemAccessErr,
        );
        let start = write.remote_addr;
        let (long, long_read) = (
            SendWr {
                len: LEN as u32,
                ..write
            },
            SendWr {
                len: LEN as u32,
                ..read
            },
        );
        vec![
            (
                "an unknown rkey",
                SendWr {
                    rkey: write.rkey ^ 1,
                    ..write
                },
                bad,
            ),
            ("the zero rkey", SendWr { rkey: 0, ..read }, bad),
            (
                "our own lkey as rkey",
                SendWr {
                    rkey: self.lkey,
                    ..write
                },
                bad,
            ),
            (
                "an rkey that has gone",
                SendWr {
                    rkey: self.rkey_gone,
                    ..read
                },
                bad,
            ),
            (
                "a WRITE to what is for READs",
                SendWr {
                    rkey: self.rkey_read_only,
                    ..write
                },
                bad,
            ),
            (
                "a WRITE to what is for nobody",
                SendWr {
                    rkey: self.rkey_local_only,
                    ..write
                },
                bad,
            ),
            (
                "a READ of what is for nobody",
                SendWr {
                    rkey: self.rkey_local_only,
                    ..read
                },
                bad,
            ),
            (
                "remote bytes before the region",
                SendWr {
                    remote_addr: start - 1,
                    ..write
                },
                bad,
            ),
            (
                "remote bytes behind the region",
                SendWr {
                    remote_addr: start + LEN - 7,
                    ..write
                },
                bad,
            ),
            (
                "a READ of bytes behind the region",
                SendWr {
                    remote_addr: start + LEN - 7,
                    ..read
                },
                bad,
            ),
            (
                "a long WRITE that ends outside there",
                SendWr {
                    remote_addr: start + 8,
                    ..long
                },
                bad,
            ),
            (
                "a long READ that ends outside there",
                SendWr {
                    remote_addr: start + 8,
                    ..long_read
                },
                bad,
            ),
            (
                "remote bytes that wrap",
                SendWr {
                    remote_addr: u64::MAX - 3,
                    ..write
                },
                bad,
            ),
        ]
    }
}
