// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The initiator's clocks: how long it waits, and for what.
//!
//! ```text
//! the oldest request waits     8 ms, doubling: it is sent again; 8 tries: the stream breaks
//! a receiver has no buffer     1 ms: it is tried again; 2 s: the operation fails
//! nothing was heard            5 s: the stream breaks; if it is idle it starts over
//! the target hears nothing     10 s: it may forget the context
//! ```
//!
//! The third line is for a clock that comes late: between it and the fourth are 5 s in which
//! what was sent last may still be on its way.

use crate::dc::rtt::RoundTrip;
use crate::dc::{MAX_TRIES, RNR_DELAY_NS, RNR_PATIENCE_NS, STREAM_IDLE_NS};

/// The times that matter of a stream.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Timeouts in a row.
    tries: u32,
    /// Timeouts since an answer last told how long the peer takes: each has doubled the next
    /// (Karn's rule). An answer to a request that was sent again does not tell.
    doublings: u32,
    round_trip: RoundTrip,
    /// Since when the oldest chunk has been waiting.
    waiting_since_ns: u64,
    /// Since when a receiver has had no buffer for what is next, and until when
    /// nothing is sent for that reason; 0: that is not so.
    not_ready_since_ns: Option<u64>,
    not_ready_until_ns: u64,
    /// When the target was last heard while it had something to answer, or was sent something
    /// after it had nothing.
    heard_ns: u64,
    /// When something was last sent or heard.
    last_used_ns: u64,
}

/// The stream does this at the look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// The oldest chunks are to be sent again.
    Probe,
    /// The stream breaks.
    Break,
}

impl Patience {
    pub(super) const NEW: Self = Self {
        tries: 0,
        doublings: 0,
        round_trip: RoundTrip::UNKNOWN,
        waiting_since_ns: 0,
        not_ready_since_ns: None,
        not_ready_until_ns: 0,
        heard_ns: 0,
        last_used_ns: 0,
    };

    /// Forgets all timeouts, and that a receiver has no buffer.
    pub(super) fn calm(&mut self) {
        self.doublings = 0;
        self.answered();
    }

    /// The target is there: no timeout in a row, and no receiver without a buffer.
    fn answered(&mut self) {
        self.tries = 0;
        self.ready();
    }

    /// A request is sent.
    pub(super) fn sent(&mut self, is_oldest: bool, is_repeat: bool, now_ns: u64) {
        if is_oldest {
            self.waiting_since_ns = now_ns;
            if !is_repeat {
                self.heard_ns = now_ns;
            }
        }
        self.last_used_ns = now_ns;
    }

    /// The target has answered something.
    pub(super) fn heard(&mut self, now_ns: u64) {
        self.last_used_ns = now_ns;
        self.heard_ns = now_ns;
    }

    /// A chunk is done. `sent_ns`: when it was sent, if that was once.
    pub(super) fn chunk_done(&mut self, sent_ns: Option<u64>, now_ns: u64) {
        if let Some(sent_ns) = sent_ns {
            self.round_trip.learn(now_ns.saturating_sub(sent_ns));
            self.doublings = 0;
        }
        self.answered();
    }

    /// Another chunk is the oldest.
    pub(super) fn moved_on(&mut self, now_ns: u64) {
        self.waiting_since_ns = now_ns;
    }

    /// A receiver has no buffer. Answers whether it may have one later.
    pub(super) fn not_ready(&mut self, now_ns: u64) -> bool {
        self.tries = 0;
        let since_ns = *self.not_ready_since_ns.get_or_insert(now_ns);
        let may_wait = now_ns.saturating_sub(since_ns) < RNR_PATIENCE_NS;
        if may_wait {
            self.not_ready_until_ns = now_ns + RNR_DELAY_NS;
        } else {
            self.ready();
        }
        may_wait
    }

    fn ready(&mut self) {
        self.not_ready_since_ns = None;
        self.not_ready_until_ns = 0;
    }

    /// Whether a receiver is given time.
    pub(super) const fn is_not_ready(&self) -> bool {
        self.not_ready_until_ns != 0
    }

    /// Whether nothing may be sent now.
    pub(super) const fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.not_ready_until_ns
    }

    /// Timeouts in a row.
    pub(super) const fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether the target may have forgotten an idle stream.
    pub(super) const fn may_be_forgotten(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_used_ns) > STREAM_IDLE_NS
    }

    /// Looks at the clock while something is on its way.
    pub(super) fn look(&mut self, now_ns: u64) -> Due {
        // Ticks may come late. The target may have dropped its context by now: the stream's first
        // request would open another one, and be carried out again.
        if now_ns.saturating_sub(self.heard_ns) > STREAM_IDLE_NS {
            return Due::Break;
        }
        if self.holds(now_ns) {
            return Due::Nothing;
        }
        if self.is_not_ready() {
            self.not_ready_until_ns = 0;
        } else {
            let timeout_ns = self.round_trip.timeout_ns(self.doublings);
            if now_ns.saturating_sub(self.waiting_since_ns) < timeout_ns {
                return Due::Nothing;
            }
            self.tries += 1;
            self.doublings = self.doublings.saturating_add(1);
            if self.tries >= MAX_TRIES {
                return Due::Break;
            }
        }
        self.waiting_since_ns = now_ns;
        Due::Probe
    }
}
