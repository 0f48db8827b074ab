// SPDX-License-Identifier: GPL-2.0

//! The cached records of peers may be outdated.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Counts the times that what is known of a peer was replaced or became suspect.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// A number that changes as soon as what is known of any peer is replaced or becomes
/// suspect. To be read before what is known is looked at.
pub(crate) fn peer_changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// Counts a cached record of a peer that was replaced.
pub(crate) fn count_peer_change() {
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Set when a peer did not know us, or did not answer: its record may be
/// outdated. Shared by the streams to it.
pub(crate) struct Suspicion(AtomicBool);

impl Suspicion {
    /// None yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(AtomicBool::new(false)), GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether there is any.
    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn raise(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            count_peer_change();
        }
    }
}
