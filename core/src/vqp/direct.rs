// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The request of a virtual queue pair whose process waits for it in the call that
//! posts it. There is one at a time: its end is told here, and not by a completion.

use crate::sync::{AtomicU32, Ordering};
use crate::uapi::WcStatus;

/// There is none.
const IDLE: u32 = 0;
/// It is on its way, and waited for.
const AWAITED: u32 = 1;
/// It is on its way, and nobody waits for it any more.
const LEFT: u32 = 2;
/// It has ended, with the status in the low bits, and its waiter has not looked.
const ENDED: u32 = 1 << 8;

/// Where the waiter and whoever ends the request meet.
pub struct Direct(AtomicU32);

impl Direct {
    /// No request.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// One begins, that the caller will wait for. `false`: there is one.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> bool {
        self.change(IDLE, AWAITED)
    }

    /// It has ended. For whoever ends it; once.
    #[inline]
    pub fn end(&self, status: WcStatus) {
        if !self.change(AWAITED, ENDED | status as u32) {
            self.0.store(IDLE, Ordering::Release);
        }
    }

    /// How it has ended, if it has. For its waiter.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Option<WcStatus> {
        let state = self.0.load(Ordering::Acquire);
        if state & ENDED == 0 {
            return None;
        }
        WcStatus::from_number(state & !ENDED)
    }

    /// Its waiter has seen how it ended, or did not post it after all.
    #[inline]
    pub fn finish(&self) {
        self.0.store(IDLE, Ordering::Release);
    }

    /// Its waiter leaves; the place is free when it ends, or is now if it has.
    pub fn leave(&self) {
        if !self.change(AWAITED, LEFT) {
            self.finish();
        }
    }

    /// Whether one has begun and not ended.
    #[inline]
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), AWAITED | LEFT)
    }

    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
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
    fn one_that_was_left_ends_for_nobody() {
        let direct = Direct::new();
        assert!(direct.begin());
        direct.leave();
        assert!(direct.is_under_way());
        assert!(!direct.begin());
        direct.end(WcStatus::Success);
        assert!(direct.begin(), "the place is free");
        assert_eq!(direct.outcome(), None);
    }

    #[test]
    fn one_that_is_left_too_late_has_ended() {
        let direct = Direct::new();
        assert!(direct.begin());
        direct.end(WcStatus::RetryExcErr);
        direct.leave();
        assert!(direct.begin());
    }
}
