// SPDX-License-Identifier: GPL-2.0

//! Raw bindings to what the kernel crate does not wrap: ib_core, rdma_cm, UDP
//! tunnels, page pinning, and the helpers of `helpers.h`. Made by bindgen at
//! each build; `bindgen_parameters` is the list of what is in them.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::cast_lossless,
    clippy::as_ptr_cast_mut,
    clippy::as_underscore,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    improper_ctypes,
    reason = "generated code"
)]

use kernel::ffi;
use pin_init::MaybeZeroable;

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

include!(env!("WEFT_BINDINGS"));
