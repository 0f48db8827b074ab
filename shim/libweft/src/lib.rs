// SPDX-License-Identifier: MIT OR Apache-2.0

//! `libweft.so`: the functions of `include/weft.h`, and no other symbol.
//!
//! They are written in `weft_shim::capi`. This crate exists because the library
//! has another name, and another way of linking, than the Rust crate.

pub use weft_shim::capi::*;
