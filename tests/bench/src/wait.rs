// SPDX-License-Identifier: MIT OR Apache-2.0

//! How clients learn that their requests are done.

/// How a client learns that its request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It polls its completion queue, or its memory, without a pause.
    Poll,
    /// It sleeps until the completion channel tells of an event.
    Event,
    /// In the system call that posts the request.
    Call,
}

impl Wait {
    /// The ways of verbs. Clients that sleep may be faster, because they leave the processor to
    /// others or to the driver. So both are measured, and the better one is what Weft is compared
    /// with.
    pub const OF_VERBS: [Self; 2] = [Self::Poll, Self::Event];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Event => "event",
            Self::Call => "call",
        }
    }
}
