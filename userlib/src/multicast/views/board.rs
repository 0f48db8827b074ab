// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the application's threads and the polling thread tell one another of views.

use super::View;
use crate::fabric::NodeSet;
use crate::gate::Gate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The current view, and what the application wishes of the next one.
#[derive(Debug, Default)]
pub(in super::super) struct Board {
    state: Mutex<State>,
    wants_to_leave: AtomicBool,
    /// Whether there are any accusations: the polling thread looks at each step.
    has_accused: AtomicBool,
    accusations: Mutex<Accusations>,
    /// Opened when the application was told of the first view, and when the member is out.
    changed: Gate,
    /// Of the state behind the last step, for models.
    #[cfg(test)]
    fingerprint: std::sync::atomic::AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// None before a newcomer is in.
    view: Option<View>,
    /// The application was told of a view.
    is_told: bool,
    /// It has left, and nobody needs it any more.
    has_left: bool,
    /// It is out, because it has failed or too few are left.
    has_stopped: bool,
}

/// Members of a view that the application suspects.
#[derive(Clone, Copy, Debug, Default)]
struct Accusations {
    view: u64,
    members: NodeSet,
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

    /// The application suspects a member of this view.
    pub(in super::super) fn accuse(&self, member: usize, view: u64) {
        let mut accusations = self.accusations();
        if view > accusations.view {
            *accusations = Accusations {
                view,
                members: NodeSet::EMPTY,
            };
        }
        if view == accusations.view {
            accusations.members = accusations.members.with(member);
            self.has_accused.store(true, Ordering::Release);
        }
    }

    /// Takes out whom the application suspects, if this is the view that they were in: the
    /// members of another one may be others.
    pub(super) fn take_accused(&self, view: u64) -> NodeSet {
        if !self.has_accused.load(Ordering::Acquire) {
            return NodeSet::EMPTY;
        }
        let mut accusations = self.accusations();
        self.has_accused.store(false, Ordering::Relaxed);
        let members = std::mem::take(&mut accusations.members);
        match accusations.view == view {
            true => members,
            false => NodeSet::EMPTY,
        }
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
        self.lock().view = Some(view);
    }

    /// The application was told of the view.
    pub(super) fn note_told(&self) {
        let was_told = std::mem::replace(&mut self.lock().is_told, true);
        if !was_told {
            self.changed.open();
        }
    }

    /// Waits until the application was told of the first view, or the member is out. Answers
    /// whether it was told.
    pub(in super::super) fn wait_until_in(&self, end: Instant) -> bool {
        self.changed
            .wait_until(Some(end), || self.is_told() || self.is_out());
        self.is_told()
    }

    fn is_told(&self) -> bool {
        self.lock().is_told
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
        let accused = self.accusations().members;
        state ^ u64::from(self.wants_to_leave()) ^ accused.bits().rotate_left(1)
    }

    fn accusations(&self) -> MutexGuard<'_, Accusations> {
        // As below.
        self.accusations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one store: a panic leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(member: usize) -> NodeSet {
        NodeSet::EMPTY.with(member)
    }

    #[test]
    fn who_is_accused_in_a_view_is_accused_once_and_in_no_other_view() {
        let board = Board::default();
        assert_eq!(board.take_accused(1), NodeSet::EMPTY);
        board.accuse(2, 1);
        board.accuse(3, 1);
        assert_eq!(board.take_accused(1), one(2).with(3));
        assert_eq!(board.take_accused(1), NodeSet::EMPTY);
        // The view ends before anybody looks: the seat may be another's.
        board.accuse(2, 1);
        assert_eq!(board.take_accused(2), NodeSet::EMPTY);
        assert_eq!(board.take_accused(1), NodeSet::EMPTY);
        // One that comes late, and is of an earlier view.
        board.accuse(4, 2);
        board.accuse(3, 1);
        assert_eq!(board.take_accused(2), one(4));
    }
}
