// SPDX-License-Identifier: GPL-2.0

//! The clock that the protocols are fed with. It goes on while the host sleeps: peers do not
//! sleep with it, and forget what they have kept for as long as they have said.

use crate::bindings;

/// Nanoseconds since boot. Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: no requirement.
    unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_BOOT) }.unsigned_abs()
}

/// Nanoseconds since boot, behind by a tick or, if the host is slow, a few. Not to be
/// compared with [`now_ns`]. A few loads, where that asks the processor's clock. Any context.
pub(crate) fn coarse_ns() -> u64 {
    // SAFETY: no requirement.
    unsafe { bindings::weft_coarse_ns() }
}
