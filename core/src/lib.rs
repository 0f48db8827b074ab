// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Everything in Weft that can be thought through without a kernel.
//!
//! The protocols here are state machines: they are fed bytes and clock
//! readings and answer with the next thing to do. They allocate nothing, block
//! on nothing and know nothing of Linux, so that the code which runs in ring 0
//! is the code that property tests and model checkers run on the host. cargo
//! and Kbuild compile the same files.

#![cfg_attr(not(any(test, loom)), no_std)]
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod dc;
pub mod gid;
pub mod kv;
pub mod meta;
pub mod mr;
pub mod pace;
pub mod pool;
pub mod rc;
pub mod sync;
pub mod transfer;
pub mod uapi;
pub mod vqp;
