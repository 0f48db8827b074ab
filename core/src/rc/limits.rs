// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a device takes in one request. More of it would break the queue pair that
//! many virtual ones share, so such a request goes by DC.

use crate::dc::OpKind;

/// The limits of a device's port, as ib_core tells them (`ib_device_attr`,
/// `ib_port_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pieces of local memory (`max_send_sge`).
    pub pieces: u32,
    /// The same of READs (`max_sge_rd`).
    pub read_pieces: u32,
    /// Bytes (`max_msg_sz`).
    pub bytes: u32,
}

impl Limits {
    /// Whether the device takes a request of so many bytes in so many pieces.
    #[inline]
    #[must_use]
    pub const fn allow(&self, kind: OpKind, pieces: u32, len: u32) -> bool {
        let most = match kind {
            OpKind::Read => self.read_pieces,
            _ => self.pieces,
        };
        pieces <= most && len <= self.bytes
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An adapter of iWARP's kind: READs have one piece.
    const NARROW: Limits = Limits {
        pieces: 4,
        read_pieces: 1,
        bytes: 1 << 20,
    };

    #[test]
    fn a_read_of_more_pieces_than_reads_may_have_is_not_posted() {
        assert!(NARROW.allow(OpKind::Read, 1, 64));
        assert!(!NARROW.allow(OpKind::Read, 2, 64));
        assert!(NARROW.allow(OpKind::Write, 4, 64));
        assert!(!NARROW.allow(OpKind::Write, 5, 64));
    }

    #[test]
    fn a_request_longer_than_a_message_may_be_is_not_posted() {
        for kind in [OpKind::Read, OpKind::Write] {
            assert!(NARROW.allow(kind, 1, 1 << 20));
            assert!(!NARROW.allow(kind, 1, (1 << 20) + 1));
        }
    }

    #[test]
    fn an_atomic_operation_has_one_piece_of_eight_bytes() {
        assert!(NARROW.allow(OpKind::FetchAdd, 1, 8));
        assert!(NARROW.allow(OpKind::CompareSwap, 1, 8));
    }
}
