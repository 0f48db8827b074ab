// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a completion names its request by: a number, never a pointer.

/// The meaning of a `wr_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrId {
    /// The request of this sequence number in the queue pair's window.
    Request(u32),
    /// A receive buffer.
    Receive,
}

const REQUEST: u64 = 0x5752 << 32;
const RECEIVE: u64 = 0x5752_0001 << 32;
const KIND: u64 = 0xffff_ffff << 32;

impl WrId {
    /// As a number.
    #[must_use]
    pub const fn encode(self) -> u64 {
        match self {
            Self::Request(seq) => REQUEST | seq as u64,
            Self::Receive => RECEIVE,
        }
    }

    /// From a number. `None`: it is none of ours.
    #[must_use]
    pub const fn decode(number: u64) -> Option<Self> {
        match number & KIND {
            REQUEST => Some(Self::Request(number as u32)),
            RECEIVE if number == RECEIVE => Some(Self::Receive),
            _ => None,
        }
    }
}
