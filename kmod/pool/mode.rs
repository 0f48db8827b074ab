// SPDX-License-Identifier: GPL-2.0

//! The `pool` parameter.

use kernel::prelude::*;
use weft_core::pool::Mode;

use crate::bindings;

fn text() -> &'static [u8] {
    // SAFETY: the parameter is a C string that no longer changes.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    text.to_bytes().trim_ascii_end()
}

/// `Some(None)`: none is given.
fn parse(text: &[u8]) -> Option<Option<Mode>> {
    match text {
        b"" => Some(None),
        b"auto" => Some(Some(Mode::Auto)),
        b"dc" => Some(Some(Mode::Pinned)),
        b"rc" => Some(Some(Mode::All)),
        _ => None,
    }
}

fn given() -> Option<Mode> {
    parse(text()).flatten()
}

/// How the pool of a device decides. soft-RoCE may break a queue pair, with a warning in the
/// kernel's log, if packets get lost (`rxe_completer`): it is tried only if that is asked
/// for.
pub(super) fn mode(is_software: bool) -> Mode {
    given().unwrap_or(match is_software {
        true => Mode::Pinned,
        false => Mode::Auto,
    })
}

/// Whether who connects waits for an RC queue pair (`pool=rc`), as with LITE (krcore §2.3).
pub(crate) fn waits_for_queues() -> bool {
    given() == Some(Mode::All)
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
