// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the application's threads and the polling thread tell one another of views.

use super::View;
use crate::gate::Gate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The current view, and the wish to leave.
#[derive(Debug, Default)]
pub(in super::super) struct Board {
    state: Mutex<State>,
    wants_to_leave: AtomicBool,
    /// Opened when the member is in, and when it is out.
    changed: Gate,
    /// Of the state behind the last step, for models.
    #[cfg(test)]
    fingerprint: std::sync::atomic::AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// None before a newcomer is in.
    view: Option<View>,
    /// It has left, and nobody needs it any more.
    has_left: bool,
    /// It is out, because it has failed or too few are left.
    has_stopped: bool,
}

impl Board {
    pub(in super::super) fn view(&self) -> Option<View> {
        self.lock().view.clone()
    }

    /// The next change is to take this member out.
    pub(in super::super) fn ask_to_leave(&self) {
        self.wants_to_leave.store(true, Ordering::Release);
    }

    pub(super) fn wants_to_leave(&self) -> bool {
        self.wants_to_leave.load(Ordering::Acquire)
    }

    /// Whether the member has left, or is out some other way.
    pub(in super::super) fn is_out(&self) -> bool {
        let state = self.lock();
        state.has_left || state.has_stopped
    }

    /// Waits until [`Self::is_out`].
    pub(in super::super) fn wait_until_out(&self, end: Instant) {
        self.changed.wait_until(Some(end), || self.is_out());
    }

    pub(super) fn install(&self, view: View) {
        let before = self.lock().view.replace(view);
        if before.is_none() {
            self.changed.open();
        }
    }

    /// Waits until a newcomer is in, or out.
    pub(in super::super) fn wait_until_in(&self, end: Instant) {
        self.changed
            .wait_until(Some(end), || self.view().is_some() || self.is_out());
    }

    pub(super) fn leave(&self) {
        self.lock().has_left = true;
        self.changed.open();
    }

    pub(super) fn stop(&self) {
        self.lock().has_stopped = true;
        self.changed.open();
    }

    #[cfg(test)]
    pub(super) fn note_fingerprint(&self, fingerprint: u64) {
        self.fingerprint.store(fingerprint, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(in super::super) fn fingerprint(&self) -> u64 {
        let state = self.fingerprint.load(Ordering::Relaxed);
        state ^ u64::from(self.wants_to_leave())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one store: a panic leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
