// SPDX-License-Identifier: MIT OR Apache-2.0

//! A file, directory or link as it travels, and the check of its path: nothing
//! that comes from the wire may name anything outside of the place for it.

use std::ffi::{OsStr, OsString};
use std::fs::{FileTimes, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};

/// Longest path, and longest target of a link: the system's.
const MAX_PATH_BYTES: usize = 4095;
/// Longest name: the system's.
const MAX_NAME_BYTES: usize = 255;

/// A file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Names from the root on, with `/` between; none for the root itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its permissions; a link's say nothing.
    pub mode: u32,
    /// When it was modified.
    pub modified: Modified,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Comes before what is in it.
    Directory,
    /// Its bytes follow, and their hash.
    File {
        /// How many they are.
        bytes: u64,
    },
    /// A symbolic link.
    Link {
        /// What it says.
        target: Vec<u8>,
    },
}

/// A time since 1970, or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    seconds: i64,
    nanoseconds: u32,
}

impl Entry {
    /// From what the system says of it.
    pub fn new(path: &Path, kind: Kind, metadata: &Metadata) -> Result<Self> {
        let entry = Self {
            path: path.as_os_str().as_bytes().to_vec(),
            kind,
            mode: metadata.mode() & 0o777,
            modified: Modified {
                seconds: metadata.mtime(),
                nanoseconds: u32::try_from(metadata.mtime_nsec())?,
            },
        };
        entry.check()?;
        Ok(entry)
    }

    /// Its path below the root, if it is one.
    pub fn relative(&self) -> Result<PathBuf> {
        if self.path.is_empty() {
            return Ok(PathBuf::new());
        }
        ensure!(
            self.path.len() <= MAX_PATH_BYTES,
            "a path has {} bytes: at most {MAX_PATH_BYTES} are possible",
            self.path.len()
        );
        for name in self.path.split(|&byte| byte == b'/') {
            name_of(name)
                .with_context(|| format!("the path {:?}", OsStr::from_bytes(&self.path)))?;
        }
        Ok(PathBuf::from(OsString::from_vec(self.path.clone())))
    }

    /// Bytes of a link's path and target; 0 if it is no link.
    pub fn link_bytes(&self) -> usize {
        match &self.kind {
            Kind::Link { target } => self.path.len() + target.len(),
            _ => 0,
        }
    }

    /// Whether it may be written.
    pub fn check(&self) -> Result<()> {
        self.relative()?;
        ensure!(self.mode & !0o777 == 0, "permissions {:o}", self.mode);
        self.modified.time()?;
        if let Kind::Link { target } = &self.kind {
            let fits = (1..=MAX_PATH_BYTES).contains(&target.len()) && !target.contains(&0);
            ensure!(fits, "a link with a target that no link can have");
        }
        Ok(())
    }

    /// Its times, for a file that is open.
    pub fn times(&self) -> Result<FileTimes> {
        Ok(FileTimes::new().set_modified(self.modified.time()?))
    }
}

impl Modified {
    fn time(self) -> Result<SystemTime> {
        ensure!(self.nanoseconds < 1_000_000_000, "a time that is none");
        let seconds = Duration::from_secs(self.seconds.unsigned_abs());
        let second = match self.seconds < 0 {
            true => UNIX_EPOCH.checked_sub(seconds),
            false => UNIX_EPOCH.checked_add(seconds),
        };
        let rest = Duration::from_nanos(self.nanoseconds.into());
        let time = second.and_then(|second| second.checked_add(rest));
        time.context("a time that cannot be told")
    }
}

/// One name, as part of a path.
pub fn name_of(name: &[u8]) -> Result<&OsStr> {
    match name {
        b"" => bail!("a name is empty"),
        b"." | b".." => bail!("it leads elsewhere"),
        _ if name.len() > MAX_NAME_BYTES => {
            bail!(
                "a name has {} bytes: at most {MAX_NAME_BYTES} are possible",
                name.len()
            )
        }
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => bail!("a name has / or NUL in it"),
        _ => Ok(OsStr::from_bytes(name)),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An entry with nothing special.
    pub fn entry(path: &[u8], kind: Kind) -> Entry {
        Entry {
            path: path.to_vec(),
            kind,
            mode: 0o755,
            modified: Modified {
                seconds: 1_000_000_000,
                nanoseconds: 5,
            },
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let long = [&b"a/".repeat(2047)[..], b"bc"].concat();
        let bad: [&[u8]; 12] = [
            b"/etc/passwd",
            b"..",
            b"../x",
            b"a/../b",
            b"a/..",
            b".",
            b"./a",
            b"a//b",
            b"a/",
            b"a\0b",
            &long,
            &[b'n'; 256],
        ];
        for path in bad {
            let entry = entry(path, Kind::Directory);
            assert!(entry.check().is_err(), "{}", path.escape_ascii());
        }
        for path in [&b""[..], b"a", b"a/b/c", b"...", b"..a/b..", b"\xFF/\n"] {
            let entry = entry(path, Kind::Directory);
            assert!(entry.check().is_ok(), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn links_modes_and_times_that_cannot_be_are_refused() {
        for target in [&b""[..], b"a\0", &[b'a'; 4096]] {
            let target = target.to_vec();
            assert!(entry(b"l", Kind::Link { target }).check().is_err());
        }
        let good = entry(b"d", Kind::Directory);
        let with = |mode, seconds, nanoseconds| Entry {
            mode,
            modified: Modified {
                seconds,
                nanoseconds,
            },
            ..good.clone()
        };
        assert!(with(0o777, -5, 999_999_999).check().is_ok());
        assert!(with(0o4755, 0, 0).check().is_err());
        assert!(with(0o755, 0, 1_000_000_000).check().is_err());
    }
}
