// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How requests end.

/// How a work request ended, with the numbers of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// Longer than a request may be; of a receive buffer: shorter than the message.
    LocLenErr = 1,
    /// Unknown opcode, flag or element count.
    LocQpOpErr = 2,
    /// The local key, range or access was wrong.
    LocProtErr = 4,
    /// An earlier request on this VQP failed, or the VQP was torn down.
    WrFlushErr = 5,
    /// The peer did not understand the request.
    RemInvReqErr = 9,
    /// The remote key, range or access was wrong.
    RemAccessErr = 10,
    /// The peer could not carry the request out.
    RemOpErr = 11,
    /// The peer did not answer, is down or out of reach, or the queue pair to it broke,
    /// which others use too; or nobody receives where the message was sent.
    RetryExcErr = 12,
    /// The receiver had no buffer for too long.
    RnrRetryExcErr = 13,
    /// The peer was restarted since its metadata was looked up: connect again. Of a
    /// receive buffer: the sender went away in the middle of its message.
    RemAbortErr = 16,
    /// The local node went away.
    FatalErr = 19,
}

impl WcStatus {
    /// The status with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::LocLenErr,
            2 => Self::LocQpOpErr,
            4 => Self::LocProtErr,
            5 => Self::WrFlushErr,
            9 => Self::RemInvReqErr,
            10 => Self::RemAccessErr,
            11 => Self::RemOpErr,
            12 => Self::RetryExcErr,
            13 => Self::RnrRetryExcErr,
            16 => Self::RemAbortErr,
            19 => Self::FatalErr,
            _ => return None,
        })
    }
}
