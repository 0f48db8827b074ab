// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Whether a queue pair still makes progress. A device ends the requests of a
//! dead peer itself, by its timer; one that loses its timer, as soft-RoCE was seen
//! to on a busy host, would let them wait for ever.

use super::Window;

/// How long no request may end while there are any.
pub const STALL_NS: u64 = 10_000_000_000;
/// On top of that, for each byte outstanding: one long request takes its time.
const NS_PER_BYTE: u64 = 1_000;

/// What was seen of a queue pair's requests.
pub struct Stall {
    ended: u32,
    since_ns: u64,
}

impl Stall {
    /// Nothing was seen.
    pub const NEW: Self = Self {
        ended: 0,
        since_ns: 0,
    };

    /// Looks now, as should be done every second or so. Answers whether requests
    /// wait, and none has ended for too long.
    #[must_use]
    pub fn look(&mut self, window: &Window, now_ns: u64) -> bool {
        let ended = window.ended();
        if ended != self.ended || window.outstanding() == 0 || self.since_ns == 0 {
            *self = Self {
                ended,
                since_ns: now_ns,
            };
            return false;
        }
        let bound_ns = STALL_NS.saturating_add(window.bytes().saturating_mul(NS_PER_BYTE));
        now_ns.saturating_sub(self.since_ns) >= bound_ns
    }
}
