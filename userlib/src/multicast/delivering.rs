// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether this thread is in the middle of a delivery: then it must not wait for what
//! comes only after it.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in a delivery.
pub(super) fn is_delivering() -> bool {
    DEPTH.get() > 0
}

/// A delivery on this thread, until it is dropped.
#[derive(Debug)]
pub(super) struct Delivering(());

impl Delivering {
    pub(super) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
