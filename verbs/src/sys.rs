// SPDX-License-Identifier: MIT OR Apache-2.0

//! The raw bindings that `build.rs` makes from the installed headers.

#![expect(
    non_camel_case_types,
    dead_code,
    clippy::undocumented_unsafe_blocks,
    reason = "generated from C headers, which name and use things as C does"
)]

include!(concat!(env!("OUT_DIR"), "/sys.rs"));
