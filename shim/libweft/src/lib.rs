// SPDX-License-Identifier: MIT OR Apache-2.0

//! `libweft.so`: the functions of `include/weft.h`, and no other symbol.
//!
//! They are written in `weft_shim::capi`. This crate is a static library, of which
//! `scripts/build` links `libweft.so`: `libweft.map` gives the symbols their versions, and
//! rustc allows no such file beside its own.

pub use weft_shim::capi::*;
