// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions: how work requests and receive buffers ended.

use crate::error::CompletionError;
use weft_core::uapi::{self, Pod, WcStatus, SRC_NONE};

/// A completion, of a work request or of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Wc {
    raw: uapi::Wc,
}

/// What a completion is of. (`ibv_wc_opcode`)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "those of the requests say what they are")]
pub enum Opcode {
    Write,
    WriteWithImm,
    Send,
    SendWithImm,
    Read,
    CompareSwap,
    FetchAdd,
    /// A message has arrived in a receive buffer.
    Recv,
    /// A WRITE with an immediate has arrived, and has used up a receive buffer.
    RecvWriteWithImm,
}

/// Who sent a message, for a [`crate::Listener`] to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sender(pub(crate) u32);

impl Default for Wc {
    /// A place for a completion.
    #[inline]
    fn default() -> Self {
        Self {
            raw: uapi::Wc {
                src: SRC_NONE,
                ..Pod::zeroed()
            },
        }
    }
}

impl Wc {
    #[inline]
    pub(crate) const fn from_raw(raw: uapi::Wc) -> Self {
        Self { raw }
    }

    /// From the work request or the receive buffer.
    #[inline]
    #[must_use]
    pub const fn wr_id(&self) -> u64 {
        self.raw.wr_id
    }

    /// How it ended. `None`: a status of a newer module.
    #[inline]
    #[must_use]
    pub fn status(&self) -> Option<WcStatus> {
        WcStatus::from_number(self.raw.status.into())
    }

    /// Bytes that were moved.
    ///
    /// # Errors
    ///
    /// It failed.
    #[inline]
    pub fn result(&self) -> Result<u32, CompletionError> {
        match self.status() {
            Some(WcStatus::Success) => Ok(self.raw.byte_len),
            status => Err(CompletionError { status }),
        }
    }

    /// What it is of. `None`: an opcode that was none.
    #[must_use]
    pub fn opcode(&self) -> Option<Opcode> {
        const WRITE: u16 = uapi::OP_WRITE as u16;
        const WRITE_WITH_IMM: u16 = uapi::OP_WRITE_WITH_IMM as u16;
        const SEND: u16 = uapi::OP_SEND as u16;
        const SEND_WITH_IMM: u16 = uapi::OP_SEND_WITH_IMM as u16;
        const READ: u16 = uapi::OP_READ as u16;
        const CAS: u16 = uapi::OP_CAS as u16;
        const FAA: u16 = uapi::OP_FAA as u16;
        Some(match self.raw.opcode {
            WRITE => Opcode::Write,
            WRITE_WITH_IMM => Opcode::WriteWithImm,
            SEND => Opcode::Send,
            SEND_WITH_IMM => Opcode::SendWithImm,
            READ => Opcode::Read,
            CAS => Opcode::CompareSwap,
            FAA => Opcode::FetchAdd,
            uapi::WC_RECV => Opcode::Recv,
            uapi::WC_RECV_RDMA_WITH_IMM => Opcode::RecvWriteWithImm,
            _ => return None,
        })
    }

    /// Whether it is of a receive buffer.
    #[must_use]
    pub fn is_recv(&self) -> bool {
        matches!(self.opcode(), Some(Opcode::Recv | Opcode::RecvWriteWithImm))
    }

    /// The number of its VQP ([`crate::Qp::number`]), which may have been dropped since.
    #[must_use]
    pub const fn vqp(&self) -> u32 {
        self.raw.vqp
    }

    /// Of a request of an unconnected queue pair: the number of its peer
    /// ([`crate::PeerHandle::number`]). Else as [`Self::sender`], or nobody.
    #[must_use]
    pub const fn peer(&self) -> Option<u32> {
        match self.raw.src {
            SRC_NONE => None,
            src => Some(src),
        }
    }

    /// Whether it is of a request that this library has posted for itself.
    #[inline]
    pub(crate) const fn is_private(&self) -> bool {
        self.raw.flags & uapi::WC_PRIVATE != 0
    }

    /// Whether the VQP's requests went by RC.
    #[inline]
    pub(crate) const fn is_by_rc(&self) -> bool {
        self.raw.flags & uapi::WC_BY_RC != 0
    }

    /// The immediate that came with a message.
    #[must_use]
    pub const fn imm(&self) -> Option<u32> {
        if self.raw.flags & uapi::WC_WITH_IMM == 0 {
            return None;
        }
        Some(self.raw.imm)
    }

    /// Who sent it, if it is a message to a [`crate::Listener`] and its sender can
    /// be reached.
    #[must_use]
    pub const fn sender(&self) -> Option<Sender> {
        match self.raw.src {
            SRC_NONE => None,
            src => Some(Sender(src)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wc(change: impl FnOnce(&mut uapi::Wc)) -> Wc {
        let mut raw = uapi::Wc::zeroed();
        change(&mut raw);
        Wc::from_raw(raw)
    }

    #[test]
    fn a_completion_is_a_length_or_an_error() {
        let status = Some(WcStatus::RemAccessErr);
        assert_eq!(wc(|raw| raw.byte_len = 8).result(), Ok(8));
        assert_eq!(
            wc(|raw| raw.status = WcStatus::RemAccessErr as u16).result(),
            Err(CompletionError { status })
        );
        assert_eq!(
            wc(|raw| raw.status = 999).result(),
            Err(CompletionError { status: None })
        );
    }

    #[test]
    fn an_immediate_is_there_only_if_it_is_said_so() {
        assert_eq!(wc(|raw| raw.imm = 5).imm(), None);
        let with = wc(|raw| (raw.imm, raw.flags) = (5, uapi::WC_WITH_IMM));
        assert_eq!(with.imm(), Some(5));
    }

    #[test]
    fn every_opcode_is_known_and_two_of_them_receive() {
        let known: Vec<Wc> = (0..256)
            .map(|opcode| wc(|raw| raw.opcode = opcode))
            .filter(|wc| wc.opcode().is_some())
            .collect();
        assert_eq!(known.len(), 9);
        assert_eq!(known.iter().filter(|wc| wc.is_recv()).count(), 2);
    }

    #[test]
    fn a_completion_without_a_sender_has_none() {
        assert_eq!(wc(|raw| raw.src = SRC_NONE).sender(), None);
        assert_eq!(wc(|raw| raw.src = 3).sender(), Some(Sender(3)));
    }
}
