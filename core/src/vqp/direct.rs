// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The request of a virtual queue pair whose process waits for it in the call that
//! posts it. There is one at a time: its end is told here, and not by a completion.

use crate::sync::{AtomicU32, Ordering};
use crate::uapi::WcStatus;

/// No bit: there is none. The low bits are the status of one that has ended.
const IDLE: u32 = 0;
/// One has begun, and its place is taken.
const BEGUN: u32 = 1 << 16;
/// With [`BEGUN`]: it has ended.
const ENDED: u32 = 1 << 17;
/// With [`BEGUN`]: its waiter has left.
const LEFT: u32 = 1 << 18;
const STATUS: u32 = 0xff;

/// Where the waiter and whoever ends the request meet.
pub struct Direct(AtomicU32);

impl Direct {
    /// No request.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// One begins, that the caller will wait for. `false`: one is on its way, or is
    /// waited for. How one ended that was left is forgotten.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> bool {
        self.change(IDLE) || self.replace_left()
    }

    #[cold]
    fn replace_left(&self) -> bool {
        let state = self.0.load(Ordering::Acquire);
        state & ENDED != 0 && state & LEFT != 0 && self.change(state)
    }

    #[inline]
    fn change(&self, from: u32) -> bool {
        self.0
            .compare_exchange(from, BEGUN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// It has ended. For whoever ends it; once.
    #[inline]
    pub fn end(&self, status: WcStatus) {
        self.0
            .fetch_or(ENDED | (status as u32 & STATUS), Ordering::AcqRel);
    }

    /// How it has ended, if it has. For its waiter.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Option<WcStatus> {
        let state = self.0.load(Ordering::Acquire);
        if state & ENDED == 0 {
            return None;
        }
        WcStatus::from_number(state & STATUS)
    }

    /// Its waiter has seen how it ended, or did not post it after all.
    #[inline]
    pub fn finish(&self) {
        self.0.store(IDLE, Ordering::Release);
    }

    /// Its waiter leaves. It may come back ([`Self::resume`]) until another request has
    /// taken the place, which is free once this one has ended.
    pub fn leave(&self) {
        self.0.fetch_or(LEFT, Ordering::AcqRel);
    }

    /// The caller waits for the one that was left. `false`: none was.
    #[must_use]
    pub fn resume(&self) -> bool {
        self.0.fetch_and(!LEFT, Ordering::AcqRel) & LEFT != 0
    }

    /// Whether one has begun and not ended.
    #[inline]
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        let state = self.0.load(Ordering::Acquire);
        state & BEGUN != 0 && state & ENDED == 0
    }
}

impl Default for Direct {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_learns_how_its_request_ended() {
        let direct = Direct::new();
        for status in [WcStatus::Success, WcStatus::FatalErr] {
            assert!(!direct.is_under_way());
            assert!(direct.begin());
            assert!(!direct.begin(), "one at a time");
            assert!(direct.is_under_way());
            assert_eq!(direct.outcome(), None);
            direct.end(status);
            assert!(!direct.is_under_way());
            assert!(!direct.begin(), "its waiter has not looked yet");
            assert_eq!(direct.outcome(), Some(status));
            direct.finish();
        }
    }

    #[test]
    fn one_that_was_left_makes_way_when_it_has_ended() {
        let direct = Direct::new();
        assert!(direct.begin());
        direct.leave();
        assert!(direct.is_under_way());
        assert!(!direct.begin());
        direct.end(WcStatus::Success);
        assert!(!direct.is_under_way());
        assert!(direct.begin(), "the place is free");
        assert_eq!(direct.outcome(), None);
        assert!(!direct.resume(), "it is another's");
    }

    #[test]
    fn a_waiter_that_left_may_come_back() {
        let direct = Direct::new();
        assert!(!direct.resume(), "there is none");
        for ends_first in [true, false] {
            assert!(direct.begin());
            assert!(!direct.resume(), "it was not left");
            direct.leave();
            if ends_first {
                direct.end(WcStatus::RetryExcErr);
            }
            assert!(direct.resume());
            assert!(!direct.resume(), "once");
            assert!(!direct.begin(), "it is waited for");
            if !ends_first {
                assert_eq!(direct.outcome(), None);
                direct.end(WcStatus::RetryExcErr);
            }
            assert_eq!(direct.outcome(), Some(WcStatus::RetryExcErr));
            direct.finish();
            assert!(!direct.resume());
        }
    }

    #[test]
    fn one_that_is_left_too_late_has_ended() {
        let direct = Direct::new();
        assert!(direct.begin());
        direct.end(WcStatus::RetryExcErr);
        direct.leave();
        assert!(direct.resume());
        assert_eq!(direct.outcome(), Some(WcStatus::RetryExcErr));
        direct.leave();
        assert!(direct.begin());
    }
}
