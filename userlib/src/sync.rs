// SPDX-License-Identifier: MIT OR Apache-2.0

//! The atomics of what a model checker looks at: the machine's, or loom's.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
