// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is to be sent, looked through before anything is.

use std::fs::{self, FileType, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use walkdir::{DirEntry, WalkDir};

use crate::entry::{Entry, Kind};
use crate::wire::{Begin, MAX_ENTRIES, MAX_LINK_BYTES};

/// A file or a tree, in the order in which it is sent: a directory before what
/// is in it.
#[derive(Debug)]
pub struct Listing {
    pub begin: Begin,
    pub entries: Vec<Listed>,
}

/// An entry, and where it is.
#[derive(Debug)]
pub struct Listed {
    pub entry: Entry,
    pub source: PathBuf,
    /// The file that was there, in the state that it had.
    pub stamp: Stamp,
}

/// Tells whether a file is still the same and was not changed. The time of the last change of its
/// inode is part of it, because a program can set the time of modification back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// From what the system says of it.
    pub fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Lists all that is at `root`.
pub fn scan(root: &Path) -> Result<Listing> {
    scan_until(root, || false)
}

/// Lists all that is at `root`, and fails as soon as the user has interrupted it.
pub fn scan_until(root: &Path, is_interrupted: impl Fn() -> bool) -> Result<Listing> {
    scan_within(MAX_LINK_BYTES, root, is_interrupted)
}

/// Lists what may have so many bytes of links.
fn scan_within(
    max_link_bytes: usize,
    root: &Path,
    is_interrupted: impl Fn() -> bool,
) -> Result<Listing> {
    let mut link_bytes = 0;
    let mut entries = Vec::new();
    for found in WalkDir::new(root).sort_by_file_name() {
        ensure!(!is_interrupted(), "interrupted");
        let found = found.map_err(|error| plain(&error, root))?;
        let source = found.path();
        ensure!(
            (entries.len() as u64) < MAX_ENTRIES,
            "{} has more than {MAX_ENTRIES} files and directories: send its parts, or an archive",
            root.display()
        );
        let listed = list(&found, root).with_context(|| source.display().to_string())?;
        link_bytes += listed.entry.link_bytes();
        ensure!(
            link_bytes <= max_link_bytes,
            "{}: the paths and targets of symbolic links have more than {max_link_bytes} bytes: send its parts, or an archive",
            root.display()
        );
        entries.push(listed);
    }
    let bytes = entries
        .iter()
        .try_fold(0_u64, |sum, listed| match listed.entry.kind {
            Kind::File { bytes } => sum.checked_add(bytes),
            _ => Some(sum),
        });
    let begin = Begin {
        name: name_at(root)?,
        entries: entries.len() as u64,
        bytes: bytes.context("the files have more bytes than can be counted")?,
    };
    Ok(Listing { begin, entries })
}

/// The name that it has; that of `.` is known to the system.
fn name_at(root: &Path) -> Result<Vec<u8>> {
    let whole = match root.file_name() {
        Some(_) => root.to_owned(),
        None => fs::canonicalize(root).with_context(|| root.display().to_string())?,
    };
    let name = whole.file_name();
    let name = name.with_context(|| format!("{}: it has no name to send it by", root.display()))?;
    Ok(name.as_bytes().to_vec())
}

fn list(found: &DirEntry, root: &Path) -> Result<Listed> {
    // walkdir enters the root if it is a link, but shows the link.
    let metadata = match found.depth() {
        0 => fs::metadata(root)?,
        _ => found.metadata()?,
    };
    let kind = metadata.file_type();
    let kind = if kind.is_dir() {
        Kind::Directory
    } else if kind.is_file() {
        Kind::File {
            bytes: metadata.len(),
        }
    } else if kind.is_symlink() {
        Kind::Link {
            target: fs::read_link(found.path())?.into_os_string().into_vec(),
        }
    } else {
        bail!(
            "this is a {}: only files, directories and symbolic links can be sent; move it elsewhere first",
            special(kind)
        );
    };
    Ok(Listed {
        entry: Entry::new(found.path().strip_prefix(root)?, kind, &metadata)?,
        source: found.path().to_owned(),
        stamp: Stamp::new(&metadata),
    })
}

fn special(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_socket() => "socket",
        _ if kind.is_fifo() => "pipe",
        _ if kind.is_block_device() || kind.is_char_device() => "device",
        _ => "file of a kind that is unknown",
    }
}

/// What went wrong, without the words that walkdir puts around it.
fn plain(error: &walkdir::Error, root: &Path) -> anyhow::Error {
    let path = error.path().unwrap_or(root).display().to_string();
    match error.io_error().and_then(std::io::Error::raw_os_error) {
        Some(number) => anyhow::Error::new(std::io::Error::from_raw_os_error(number)).context(path),
        None => anyhow::anyhow!("{error}").context(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_no_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = UnixListener::bind(dir.path().join("it")).unwrap();
        let error = format!("{:#}", scan(dir.path()).unwrap_err());
        assert!(error.contains("/it: this is a socket"), "{error}");
    }

    #[test]
    fn a_link_is_followed_if_it_is_what_the_user_has_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), "12345").unwrap();
        for (target, entries) in [("d", 2), ("d/f", 1)] {
            let link = dir.path().join("link");
            symlink(target, &link).unwrap();
            let Begin {
                name,
                entries: found,
                bytes,
            } = scan(&link).unwrap().begin;
            assert_eq!((&name[..], found, bytes), (&b"link"[..], entries, 5));
            fs::remove_file(link).unwrap();
        }
    }

    #[test]
    fn links_that_no_receiver_could_remember_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        symlink("1234567", dir.path().join("abc")).unwrap();
        assert!(scan_within(10, dir.path(), || false).is_ok());
        let error = scan_within(9, dir.path(), || false).unwrap_err();
        assert!(error.to_string().contains("more than 9 bytes"), "{error}");
    }

    #[test]
    fn a_look_that_takes_long_can_be_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let error = scan_until(dir.path(), || true).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::write(dir.path().join("b/c/file"), "12345").unwrap();
        fs::write(dir.path().join("a"), "12").unwrap();
        let listing = scan(dir.path()).unwrap();
        let paths: Vec<_> = listing
            .entries
            .iter()
            .map(|listed| &listed.entry.path[..])
            .collect();
        assert_eq!(paths, [&b""[..], b"a", b"b", b"b/c", b"b/c/file"]);
        assert_eq!((listing.begin.entries, listing.begin.bytes), (5, 7));
    }
}
