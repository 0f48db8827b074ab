// SPDX-License-Identifier: GPL-2.0

//! Lets the kernel's printing macros show what `weft_core` can show.

use kernel::fmt;

/// Shows its content.
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: core::fmt::Display> fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
