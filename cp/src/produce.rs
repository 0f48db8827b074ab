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
use crate::scan::{Listed, Listing, Stamp};
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
    for listed in &listing.entries {
        sink.put(&encode(&Record::Entry(listed.entry.clone()))?)?;
        if let Kind::File { bytes } = listed.entry.kind {
            send_file(listed, bytes, sink, progress)?;
        }
    }
    Ok(())
}

/// Sends a file, if it is what was listed from before the first byte is read until after the last.
fn send_file(listed: &Listed, bytes: u64, sink: &mut impl Sink, progress: &Progress) -> Result<()> {
    let source = &listed.source;
    let name = || source.display().to_string();
    // The root may be a link that the user has named; no other is followed.
    let is_root = listed.entry.path.is_empty();
    let mut file = open(source, is_root).with_context(name)?;
    let is_as_listed = |file: &File| {
        let now = file.metadata().with_context(name)?;
        ensure!(Stamp::new(&now) == listed.stamp, changed(source));
        Ok(())
    };
    is_as_listed(&file)?;
    read_file(&mut file, source, bytes, sink, progress)?;
    is_as_listed(&file)
}

fn changed(path: &Path) -> String {
    format!("{} was changed while it was sent", path.display())
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
    let mut hasher = blake3::Hasher::new();
    let mut left = bytes;
    while left > 0 {
        let space = sink.space()?;
        let most = space.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = file.read(&mut space[..most]);
        let count = count.with_context(|| path.display().to_string())?;
        ensure!(count > 0, changed(path));
        hasher.update(&space[..count]);
        sink.advance(count)?;
        progress.add(count);
        left -= count as u64;
    }
    let more = file.read(&mut [0]);
    let more = more.with_context(|| path.display().to_string())?;
    ensure!(more == 0, changed(path));
    sink.put(hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consume::tests::Memory;
    use crate::scan::scan;
    use std::fs;
    use std::time::UNIX_EPOCH;

    /// A stream that goes nowhere. Something happens when the first bytes are put into it.
    struct Meddler<F> {
        memory: Memory,
        meddle: Option<F>,
    }

    impl<F: FnOnce()> Sink for Meddler<F> {
        fn space(&mut self) -> Result<&mut [u8]> {
            self.memory.space()
        }

        fn advance(&mut self, bytes: usize) -> Result<()> {
            self.memory.advance(bytes)?;
            self.meddle.take().into_iter().for_each(|meddle| meddle());
            Ok(())
        }
    }

    /// Sends a file of ten bytes that is old, and has something happen to it before its first byte
    /// is read, or behind that.
    fn send_while(is_open: bool, meddle: impl FnOnce(&Path)) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it");
        fs::write(&path, "0123456789").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        let listing = scan(&path).unwrap();
        let mut sink = Meddler {
            memory: Memory::default(),
            meddle: Some(|| meddle(&path)),
        };
        let progress = Progress::new(true);
        match is_open {
            true => send_file(&listing.entries[0], 10, &mut sink, &progress),
            false => produce(&listing, &mut sink, &progress),
        }
    }

    fn overwrite(path: &Path) {
        fs::write(path, "abcdefghij").unwrap();
    }

    fn replace(path: &Path) {
        let other = path.with_extension("new");
        fs::write(&other, "abcdefghij").unwrap();
        fs::rename(other, path).unwrap();
    }

    #[test]
    fn a_file_that_changes_meanwhile_and_keeps_its_length_is_noticed() {
        for (is_open, meddle) in [
            (true, overwrite as fn(&Path)),
            (false, overwrite),
            (false, replace),
        ] {
            let error = send_while(is_open, meddle).unwrap_err().to_string();
            assert!(
                error.ends_with("it was changed while it was sent"),
                "{error}"
            );
        }
        send_while(true, |_| {}).unwrap();
        send_while(false, |_| {}).unwrap();
    }

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
