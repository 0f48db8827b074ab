// SPDX-License-Identifier: MIT OR Apache-2.0

//! Keeping what one thread writes out of the cache lines that others read.

use std::ops::Deref;

/// A value with its cache line, and the one that the processor fetches with it,
/// to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
