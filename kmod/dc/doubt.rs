// SPDX-License-Identifier: GPL-2.0

//! What is known of peers may be outdated.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kernel::prelude::*;
use kernel::sync::Arc;

/// Times that something was doubted or replaced that was known of any peer.
static DOUBTS: AtomicU64 = AtomicU64::new(0);

/// A number that is another one as soon as something is doubted or replaced that
/// was known of any peer. To be read before what is known is looked at.
pub(crate) fn doubts() -> u64 {
    DOUBTS.load(Ordering::Acquire)
}

/// Something was replaced.
pub(crate) fn doubt() {
    DOUBTS.fetch_add(1, Ordering::Release);
}

/// Set when a peer did not know us, or did not answer: its record may be
/// outdated. Shared by the streams to it.
pub(crate) struct Suspicion(AtomicBool);

impl Suspicion {
    /// None yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(AtomicBool::new(false)), GFP_KERNEL)?)
    }

    /// Whether there is any.
    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn raise(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            doubt();
        }
    }
}
