// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the status of a completion means.

use weft_core::uapi::WcStatus;

/// How a work request failed, and what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request failed: {}", self.explain())]
pub struct CompletionError {
    /// The completion's status; `None` if it is of a newer module.
    pub status: Option<WcStatus>,
}

impl CompletionError {
    fn explain(self) -> &'static str {
        match self.status {
            Some(WcStatus::Success) => "it did not fail",
            Some(WcStatus::LocLenErr) => {
                "it moves more bytes than a request may, or the message is longer than the receive buffer"
            }
            Some(WcStatus::LocQpOpErr) => "its opcode, flags or number of elements are unknown",
            Some(WcStatus::LocProtErr) => {
                "its local memory is not registered, or a READ or a message goes to a region without Access::LOCAL_WRITE"
            }
            Some(WcStatus::WrFlushErr) => {
                "an earlier request on the VQP failed: see that one's completion, then create another VQP"
            }
            Some(WcStatus::RemInvReqErr) => "the peer did not understand it",
            Some(WcStatus::RemAccessErr) => {
                "the peer has no memory there under this rkey, or does not allow this access to it"
            }
            Some(WcStatus::RemOpErr) => {
                "the peer could not carry it out; of a receive buffer: the WRITE whose immediate it was to take was refused"
            }
            Some(WcStatus::RetryExcErr) => {
                "the peer did not answer: it is down or out of reach, or the connection to it broke, or nobody is bound to the port; create another VQP and connect"
            }
            Some(WcStatus::RnrRetryExcErr) => {
                "the receiver had no buffer for too long: it has to post more of them"
            }
            Some(WcStatus::RemAbortErr) => {
                "the peer was restarted: create another VQP, connect, and ask it for its new rkeys; of a receive buffer: the sender went away in the middle of its message"
            }
            Some(WcStatus::FatalErr) => "the local node went away: open the device again",
            None => "its status is unknown: take module and programs from the same release",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_explanation() {
        let mut seen = std::collections::HashSet::new();
        for status in (0..32)
            .filter_map(WcStatus::from_number)
            .map(Some)
            .chain([None])
        {
            assert!(seen.insert(CompletionError { status }.to_string()));
        }
    }
}
