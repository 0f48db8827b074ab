// SPDX-License-Identifier: GPL-2.0

//! The clock that the protocols are fed with.

use crate::bindings;

/// Nanoseconds since boot, without the time asleep. Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: no requirement.
    unsafe { bindings::ktime_get() }.unsigned_abs()
}
