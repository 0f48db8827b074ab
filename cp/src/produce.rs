// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sender's side of the stream: files are read once, straight into the memory
//! that they are sent from, and hashed there.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{ensure, Context, Result};

use crate::entry::Kind;
use crate::progress::Progress;
use crate::scan::{Listed, Listing};
use crate::wire::{encode, Record};

/// Where the stream goes.
pub trait Sink {
    /// Room for the next bytes; at least one.
    fn space(&mut self) -> Result<&mut [u8]>;

    /// So many bytes were put there.
    fn advance(&mut self, bytes: usize) -> Result<()>;

    /// Appends these bytes.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let space = self.space()?;
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.advance(count)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

/// Puts everything into the stream, up to where receivers are to check it.
pub fn produce(listing: &Listing, sink: &mut impl Sink, progress: &Progress) -> Result<()> {
    sink.put(&encode(&Record::Begin(listing.begin.clone()))?)?;
    for Listed { entry, source } in &listing.entries {
        sink.put(&encode(&Record::Entry(entry.clone()))?)?;
        if let Kind::File { bytes } = entry.kind {
            // The root may be a link that the user has named; no other is followed.
            let is_root = entry.path.is_empty();
            let mut file = open(source, is_root).with_context(|| source.display().to_string())?;
            read_file(&mut file, source, bytes, sink, progress)?;
        }
    }
    Ok(())
}

fn open(path: &Path, follow: bool) -> Result<File> {
    // What was a file may be a pipe by now, which would be waited for.
    let follow = if follow { 0 } else { libc::O_NOFOLLOW };
    let flags = follow | libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    ensure!(file.metadata()?.is_file(), "it is no file any more");
    Ok(file)
}

/// Sends a file that was so long when it was listed.
fn read_file(
    file: &mut impl Read,
    path: &Path,
    bytes: u64,
    sink: &mut impl Sink,
    progress: &Progress,
) -> Result<()> {
    let changed = || format!("{} was changed while it was sent", path.display());
    let mut hasher = blake3::Hasher::new();
    let mut left = bytes;
    while left > 0 {
        let space = sink.space()?;
        let most = space.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = file.read(&mut space[..most]);
        let count = count.with_context(|| path.display().to_string())?;
        ensure!(count > 0, changed());
        hasher.update(&space[..count]);
        sink.advance(count)?;
        progress.add(count);
        left -= count as u64;
    }
    let more = file.read(&mut [0]);
    let more = more.with_context(|| path.display().to_string())?;
    ensure!(more == 0, changed());
    sink.put(hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consume::tests::Memory;

    #[test]
    fn a_file_that_grows_or_shrinks_meanwhile_is_noticed() {
        for bytes in [4, 6] {
            let sent = read_file(
                &mut &b"12345"[..],
                Path::new("it"),
                bytes,
                &mut Memory::default(),
                &Progress::new(true),
            );
            let error = sent.unwrap_err().to_string();
            assert_eq!(error, "it was changed while it was sent");
        }
    }
}
