// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Streams that have ended, as a target remembers them. The network may have made a copy of a
//! stream's first request that comes after the farewell: it would open another context and be
//! carried out again.

use super::wire::Request;
use super::Context;

/// Streams that are remembered; the oldest is forgotten first.
const REMEMBERED: usize = 4;

/// The last streams that have said farewell, of those that share a lock.
pub struct Farewells {
    /// Their first requests; 0 is none.
    streams: [u64; REMEMBERED],
    next: usize,
}

impl Farewells {
    /// None yet.
    pub const NONE: Self = Self {
        streams: [0; REMEMBERED],
        next: 0,
    };

    /// A stream ends, and with it this context.
    pub fn note(&mut self, context: &Context) {
        self.streams[self.next] = context.first();
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Whether this is a copy of the first request of a stream that has ended.
    #[must_use]
    pub fn has(&self, request: &Request) -> bool {
        let first = identity(request);
        first != 0 && self.streams.contains(&first)
    }
}

/// Tells first requests apart. A token alone may come again: half of it follows from the other
/// half, the stream's number and the peer, and both of these are used again soon. Flows are
/// counted up.
pub(super) const fn identity(request: &Request) -> u64 {
    request.token ^ ((request.flow as u64) << 32)
}
