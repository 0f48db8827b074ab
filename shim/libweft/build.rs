// SPDX-License-Identifier: MIT OR Apache-2.0

//! Gives `libweft.so` its soname. The number is `WEFT_ABI_VERSION` of `weft.h`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweft.so.0");
}
