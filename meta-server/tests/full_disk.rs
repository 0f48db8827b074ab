// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-meta` on a full disk ends as elsewhere, although it cannot say why.

use std::fs::File;
use std::io;
use std::process::Command;

fn full_disk() -> io::Result<File> {
    File::options().write(true).open("/dev/full")
}

#[test]
fn an_error_that_cannot_be_written_has_its_status() -> io::Result<()> {
    let status = Command::new(env!("CARGO_BIN_EXE_weft-meta"))
        .args(["--capacity", "4000000000"])
        .stdout(full_disk()?)
        .stderr(full_disk()?)
        .status()?;
    assert_eq!(status.code(), Some(1));
    Ok(())
}
