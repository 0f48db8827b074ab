// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The atomics that `core` uses, behind one module so that the model checker
//! can put its own in their place (`--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
