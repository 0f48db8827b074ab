// SPDX-License-Identifier: GPL-2.0

//! The `pool` parameter.

use kernel::prelude::*;
use weft_core::pool::Mode;

use crate::bindings;
use crate::rc::MAX_WANTS;

fn text() -> &'static [u8] {
    // SAFETY: the parameter is a C string that no longer changes.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    text.to_bytes().trim_ascii_end()
}

fn parse(text: &[u8]) -> Option<Mode> {
    match text {
        b"auto" => Some(Mode::Auto),
        b"dc" => Some(Mode::Pinned),
        b"rc" => Some(Mode::All),
        _ => None,
    }
}

/// How the pool decides.
pub(super) fn mode() -> Mode {
    parse(text()).unwrap_or(Mode::Pinned)
}

/// Queue pairs that the pool may ask for.
pub(super) fn budget() -> usize {
    MAX_WANTS
}

/// Whether who connects waits for an RC queue pair (`pool=rc`), as with LITE (krcore §2.3).
pub(crate) fn waits_for_queues() -> bool {
    mode() == Mode::All
}

/// Judges the parameter.
///
/// # Errors
///
/// `EINVAL`: it is none of `auto`, `dc` and `rc`.
pub(crate) fn check_parameter() -> Result {
    if parse(text()).is_some() {
        return Ok(());
    }
    // SAFETY: as above.
    let given = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    pr_err!("pool={given:?}: it has to be auto, dc or rc\n");
    Err(EINVAL)
}
