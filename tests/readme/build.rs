// SPDX-License-Identifier: MIT OR Apache-2.0

//! Takes the Rust code out of README.md: a file for each piece, a block that `lib.rs`
//! includes.

use std::path::Path;
use std::{env, fs};

/// Pieces that README.md has and `lib.rs` includes.
const PIECES: usize = 8;

fn main() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    println!("cargo::rerun-if-changed={}", readme.display());
    let text = fs::read_to_string(&readme).expect("README.md can be read");
    let pieces: Vec<_> = text
        .split("\n```rust\n")
        .skip(1)
        .map(|rest| rest.split("\n```").next().expect("split has a first part"))
        .collect();
    assert_eq!(
        pieces.len(),
        PIECES,
        "README.md has another number of pieces of Rust: include each of them in tests/readme/src/lib.rs"
    );
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    for (n, piece) in (1..).zip(pieces) {
        let path = Path::new(&out).join(format!("{n}.rs"));
        fs::write(path, format!("{{\n{piece}\n}}\n")).expect("the piece can be written");
    }
}
