// SPDX-License-Identifier: GPL-2.0

//! An RC queue pair's records of its outstanding requests.

use core::cell::UnsafeCell;

use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::OpKind;
use weft_core::rc::{Claim, Window, DEPTH};
use weft_core::uapi::WcStatus;

use crate::dc::Requester;
use crate::mem::RegionUse;
use crate::rc::chain::SGES;
use crate::rc::long::Whole;

/// Where the end of a request is told.
pub(super) enum CompletionTarget<R> {
    /// Nowhere: the slot is empty, or the request was a probe.
    None,
    /// A requester; the request has these `SEND_*` flags.
    Requester { requester: Arc<R>, flags: u8 },
    /// A requester that waits for this request itself, without a completion.
    Direct(Arc<R>),
    /// A piece of a request that was cut.
    Piece { whole: Arc<Whole<R>>, is_last: bool },
    /// The thread that holds the queue's `control` lock.
    Control,
}

impl<R: Requester> CompletionTarget<R> {
    /// The user who has posted the request, if one has.
    pub(super) fn user(&self) -> Option<u32> {
        match self {
            Self::Requester { requester, .. } | Self::Direct(requester) => Some(requester.user()),
            Self::Piece { whole, .. } => Some(whole.requester.user()),
            Self::None | Self::Control => None,
        }
    }

    /// Whether a user has posted the request.
    pub(super) fn is_users(&self) -> bool {
        !matches!(self, Self::None | Self::Control)
    }
}

/// One outstanding request.
pub(super) struct Slot<R> {
    pub(super) target: CompletionTarget<R>,
    pub(super) cookie: u64,
    pub(super) kind: OpKind,
    pub(super) len: u32,
    /// It was not posted, because it must fail so.
    pub(super) refused: Option<WcStatus>,
    /// The memory that it uses, from the first place on.
    pub(super) uses: [Option<RegionUse>; SGES],
}

impl<R> Slot<R> {
    pub(super) const EMPTY: Self = Self {
        target: CompletionTarget::None,
        cookie: 0,
        kind: OpKind::Read,
        len: 0,
        refused: None,
        uses: [const { None }; SGES],
    };
}

/// A request that has ended, for its completion to be reported.
pub(super) struct Ended<R> {
    pub(super) target: CompletionTarget<R>,
    pub(super) cookie: u64,
    pub(super) kind: OpKind,
    pub(super) len: u32,
}

/// The places of a [`Window`]. Those that hold no request hold [`Slot::EMPTY`], but
/// for what is plain numbers.
pub(super) struct Slots<R>(KVVec<UnsafeCell<Slot<R>>>);

// SAFETY: the two ways to a place, below, are each for one thread at a time, by
// the window's protocol. A slot may be moved to another thread if its requester
// may be shared with it.
unsafe impl<R: Send + Sync> Sync for Slots<R> {}
// SAFETY: as above.
unsafe impl<R: Send + Sync> Send for Slots<R> {}

impl<R> Slots<R> {
    pub(super) fn new() -> Result<Self> {
        let mut slots = KVVec::with_capacity(DEPTH as usize, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            slots.push(UnsafeCell::new(Slot::EMPTY), GFP_KERNEL)?;
        }
        Ok(Self(slots))
    }

    /// Fills a claimed place.
    ///
    /// # Safety
    ///
    /// The claim was not published yet, and the caller holds the poster's lock.
    pub(super) unsafe fn fill(&self, claim: Claim, slot: Slot<R>) {
        if let Some(cell) = self.0.get(claim.place) {
            // SAFETY: between claim and publication a place is the poster's own
            // (`weft_core::rc::Window`), and its lock makes that one thread.
            // The place is empty: there is nothing to drop.
            unsafe { cell.get().write(slot) };
        }
    }

    /// Looks at the oldest request.
    ///
    /// # Safety
    ///
    /// `seq` is outstanding and the caller holds the reaper's lock.
    pub(super) unsafe fn refused(&self, window: &Window, seq: u32) -> Option<WcStatus> {
        let cell = self.0.get(window.place(seq))?;
        // SAFETY: between publication and retirement a place is the reaper's own,
        // and its lock makes that one thread.
        unsafe { (*cell.get()).refused }
    }

    /// Takes the oldest request out of its place, and lets go of its memory.
    ///
    /// # Safety
    ///
    /// As for [`Slots::refused`].
    pub(super) unsafe fn take(&self, window: &Window, seq: u32) -> Option<Ended<R>> {
        let cell = self.0.get(window.place(seq))?;
        // SAFETY: as above.
        let slot = unsafe { &mut *cell.get() };
        // Used from the first on.
        for used in &mut slot.uses {
            if used.take().is_none() {
                break;
            }
        }
        Some(Ended {
            target: core::mem::replace(&mut slot.target, CompletionTarget::None),
            cookie: slot.cookie,
            kind: slot.kind,
            len: slot.len,
        })
    }
}
