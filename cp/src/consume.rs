// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiver's side of the stream: what comes is checked, written to
//! temporaries, and hashed as it is written.

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};

use crate::entry::{name_of, Entry, Kind};
use crate::landing::{Landing, SingleFile, Tree};
use crate::progress::Progress;
use crate::wire::{decode, Begin, Record, HASH_BYTES, MAX_ENTRIES};

/// Takes everything up to where the sender waits for all to have checked it.
pub fn consume(
    stream: &mut impl BufRead,
    dir: &Path,
    force: bool,
    progress: &Progress,
) -> Result<(Begin, Landing)> {
    let Record::Begin(begin) = decode(stream)? else {
        bail!("the stream is corrupt: it does not begin");
    };
    ensure!(
        (1..=MAX_ENTRIES).contains(&begin.entries),
        "the stream is corrupt: {} entries",
        begin.entries
    );
    let name = name_of(&begin.name).context("the name of what is sent")?;
    progress.begin(begin.bytes);
    let mut body = Body {
        stream,
        left: begin.bytes,
        progress,
    };
    let root = body.entry()?;
    ensure!(
        root.path.is_empty(),
        "the stream is corrupt: it has no root"
    );
    let landing = match root.kind {
        Kind::File { bytes } => {
            ensure!(
                begin.entries == 1,
                "the stream is corrupt: a file with entries"
            );
            let mut file = SingleFile::create(dir, name, force)?;
            body.file(bytes, file.writer(), &dir.join(name))?;
            file.finish(&root)?;
            Landing::SingleFile(file)
        }
        Kind::Directory => {
            let mut tree = Tree::create(dir, name, root)?;
            for _ in 1..begin.entries {
                body.entry_into(&mut tree)?;
            }
            tree.make_links()?;
            Landing::Tree(tree)
        }
        Kind::Link { .. } => bail!("the stream is corrupt: its root is a link"),
    };
    ensure!(body.left == 0, "the stream is corrupt: bytes are missing");
    Ok((begin, landing))
}

/// Waits until the sender says that all have everything.
pub fn await_commit(stream: &mut impl BufRead) -> Result<()> {
    match decode(stream)? {
        Record::Commit => Ok(()),
        _ => bail!("the stream is corrupt: it goes on after its end"),
    }
}

/// The entries of a stream.
struct Body<'a, S> {
    stream: &'a mut S,
    /// Bytes of files that are to come.
    left: u64,
    progress: &'a Progress,
}

impl<S: BufRead> Body<'_, S> {
    fn entry(&mut self) -> Result<Entry> {
        let Record::Entry(entry) = decode(self.stream)? else {
            bail!("the stream is corrupt: an entry is missing");
        };
        entry.check()?;
        Ok(entry)
    }

    fn entry_into(&mut self, tree: &mut Tree) -> Result<()> {
        let entry = self.entry()?;
        match entry.kind {
            Kind::Directory => tree.add_directory(entry),
            Kind::Link { .. } => tree.add_link(entry),
            Kind::File { bytes } => {
                let (mut file, name) = tree.create_file(&entry)?;
                self.file(bytes, &mut file, &name)?;
                tree.finish_file(&file, &entry)
            }
        }
    }

    /// A file's bytes, and whether they are those that were sent.
    fn file(&mut self, bytes: u64, to: &mut impl Write, name: &Path) -> Result<()> {
        let fewer = self.left.checked_sub(bytes);
        self.left = fewer.context("the stream is corrupt: it has too many bytes")?;
        let mut hasher = blake3::Hasher::new();
        let mut left = bytes;
        while left > 0 {
            let come = self.stream.fill_buf()?;
            ensure!(!come.is_empty(), "the stream is corrupt: it has ended");
            let count = come.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let written = to.write_all(&come[..count]);
            written.with_context(|| format!("cannot write {}", name.display()))?;
            hasher.update(&come[..count]);
            self.stream.consume(count);
            self.progress.add(count);
            left -= count as u64;
        }
        let mut sent = [0; HASH_BYTES];
        self.stream.read_exact(&mut sent)?;
        ensure!(
            hasher.finalize() == blake3::Hash::from_bytes(sent),
            "{}: what has come is not what was sent (BLAKE3); send it again",
            name.display()
        );
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::entry::tests::entry;
    use crate::produce::{produce, Sink};
    use crate::scan::{scan, Listing};
    use crate::wire::encode;
    use std::fs;

    /// A stream that goes nowhere, in small pieces.
    #[derive(Default)]
    pub struct Memory {
        pub bytes: Vec<u8>,
        room: [u8; 7],
    }

    impl Sink for Memory {
        fn space(&mut self) -> Result<&mut [u8]> {
            Ok(&mut self.room)
        }

        fn advance(&mut self, bytes: usize) -> Result<()> {
            self.bytes.extend_from_slice(&self.room[..bytes]);
            Ok(())
        }
    }

    fn stream_of(path: &Path) -> Vec<u8> {
        let mut sink = Memory::default();
        produce(&scan(path).unwrap(), &mut sink, &Progress::new(true)).unwrap();
        sink.put(&encode(&Record::Commit).unwrap()).unwrap();
        sink.bytes
    }

    fn take(mut stream: &[u8], dir: &Path) -> Result<()> {
        let (_, landing) = consume(&mut stream, dir, false, &Progress::new(true))?;
        await_commit(&mut stream)?;
        landing.commit()
    }

    fn is_empty(dir: &Path) -> bool {
        fs::read_dir(dir).unwrap().next().is_none()
    }

    #[test]
    fn a_byte_that_changes_on_the_way_is_an_error_that_names_the_file() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = from.path().join("tree");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("some file"), "precious bytes").unwrap();
        let mut stream = stream_of(&root);
        let at = stream.windows(8).position(|bytes| bytes == b"precious");
        stream[at.unwrap() + 3] ^= 1;
        let error = format!("{:#}", take(&stream, to.path()).unwrap_err());
        assert!(error.contains("some file: what has come is not"), "{error}");
        assert!(is_empty(to.path()));
        stream[at.unwrap() + 3] ^= 1;
        take(&stream, to.path()).unwrap();
        let come = fs::read(to.path().join("tree/some file")).unwrap();
        assert_eq!(come, b"precious bytes");
    }

    #[test]
    fn a_stream_that_ends_early_leaves_nothing() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("d")).unwrap();
        fs::write(from.path().join("d/f"), "bytes").unwrap();
        let stream = stream_of(from.path());
        for end in 0..stream.len() {
            assert!(take(&stream[..end], to.path()).is_err(), "{end} bytes");
            assert!(is_empty(to.path()), "{end} bytes");
        }
    }

    /// The records of a tree with these entries below its root.
    fn crafted(name: &[u8], entries: Vec<Entry>) -> Vec<u8> {
        let begin = Begin {
            name: name.to_vec(),
            entries: entries.len() as u64 + 1,
            bytes: 0,
        };
        let root = entry(b"", Kind::Directory);
        let records = [Record::Begin(begin), Record::Entry(root)];
        let rest = entries.into_iter().map(Record::Entry);
        let all = records.into_iter().chain(rest).chain([Record::Commit]);
        all.flat_map(|record| encode(&record).unwrap()).collect()
    }

    #[test]
    fn nothing_is_written_outside_of_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        let dir = outside.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let whole = outside.path().join("absolute");
        let whole = std::os::unix::ffi::OsStrExt::as_bytes(whole.as_os_str());
        for path in [&b"../escaped"[..], b"a/../../escaped", whole, b"", b"./x"] {
            let stream = crafted(b"name", vec![entry(path, Kind::Directory)]);
            assert!(take(&stream, &dir).is_err(), "{}", path.escape_ascii());
        }
        for name in [&b".."[..], b"", b"a/b", b"/a", b"."] {
            assert!(take(&crafted(name, vec![]), &dir).is_err());
        }
        assert!(is_empty(&dir));
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_written_through_a_link_that_came_along() {
        let outside = tempfile::tempdir().unwrap();
        let dir = outside.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let link = |path: &[u8]| {
            let target = b"../..".to_vec();
            entry(path, Kind::Link { target })
        };
        let file = Kind::File { bytes: 0 };
        let beside = [
            entry(b"l/d", Kind::Directory),
            entry(b"l", Kind::Directory),
            entry(b"l/f", file),
            link(b"l"),
            link(b"l/x"),
            link(b"l/x/y"),
            link(b"l/"),
            link(b""),
        ];
        for entry in beside {
            for entries in [vec![link(b"l"), entry.clone()], vec![entry, link(b"l")]] {
                let paths: Vec<_> = entries.iter().map(|entry| entry.path.clone()).collect();
                assert!(take(&crafted(b"n", entries), &dir).is_err(), "{paths:?}");
            }
        }
        assert!(is_empty(&dir));
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        take(&crafted(b"n", vec![link(b"l")]), &dir).unwrap();
        assert_eq!(fs::read_link(dir.join("n/l")).unwrap(), Path::new("../.."));
    }

    #[test]
    fn counts_that_lie_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("f"), "12345").unwrap();
        let Listing { begin, entries } = scan(from.path()).unwrap();
        for (count, bytes) in [(0, 5), (u64::MAX, 5), (1, 5), (3, 5), (2, 4), (2, 6)] {
            let begin = Begin {
                entries: count,
                bytes,
                ..begin.clone()
            };
            let lie = Listing {
                begin,
                entries: Vec::new(),
            };
            let mut sink = Memory::default();
            produce(&lie, &mut sink, &Progress::new(true)).unwrap();
            let start = encode(&Record::Begin(scan(from.path()).unwrap().begin))
                .unwrap()
                .len();
            let stream = [&sink.bytes, &stream_of(from.path())[start..]].concat();
            assert!(
                take(&stream, dir.path()).is_err(),
                "{count} entries, {bytes} bytes"
            );
            assert!(is_empty(dir.path()));
        }
        assert_eq!(entries.len(), 2);
    }
}
