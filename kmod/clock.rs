// SPDX-License-Identifier: GPL-2.0

//! The clock that the protocols are fed with.

use crate::bindings;

/// Nanoseconds since boot, without the time asleep. Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: no requirement.
    unsafe { bindings::ktime_get() }.unsigned_abs()
}

/// Nanoseconds since some time before boot, behind by a tick or, if the host is
/// slow, a few. Not to be compared with [`now_ns`]. A load, where that asks the
/// processor's clock. Any context.
pub(crate) fn coarse_ns() -> u64 {
    // SAFETY: no requirement.
    unsafe { bindings::weft_coarse_ns() }
}
