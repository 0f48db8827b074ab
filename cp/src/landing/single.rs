// SPDX-License-Identifier: MIT OR Apache-2.0

//! A file that is sent by itself. Where the filesystem can, it has no name at all
//! until the end, so that not even SIGKILL leaves anything.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, Context, Error, Result};
use nix::fcntl::{AtFlags, AT_FDCWD};
use nix::unistd::linkat;
use tempfile::NamedTempFile;

use super::{exists, finish, target, Advice, PREFIX};
use crate::entry::Entry;

/// A file on its way to its name.
#[derive(Debug)]
pub struct SingleFile {
    temporary: Temporary,
    target: PathBuf,
    may_replace: bool,
}

#[derive(Debug)]
enum Temporary {
    /// Gone as soon as it is closed.
    Unnamed(File),
    /// Removed on drop.
    Named(NamedTempFile),
}

impl SingleFile {
    /// A new one, in the directory where it is to be.
    pub fn create(dir: &Path, name: &OsStr, may_replace: bool) -> Result<Self> {
        let target = target(dir, name, (!may_replace).then_some(Advice::Force))?;
        let temporary = Temporary::create(dir);
        let cannot = || format!("cannot make a file in {}", dir.display());
        Ok(Self {
            temporary: temporary.with_context(cannot)?,
            target,
            may_replace,
        })
    }

    /// Where its bytes go.
    pub fn writer(&mut self) -> &mut File {
        match &mut self.temporary {
            Temporary::Unnamed(file) => file,
            Temporary::Named(file) => file.as_file_mut(),
        }
    }

    /// All bytes are there.
    pub fn finish(&mut self, entry: &Entry) -> Result<()> {
        let finished = finish(self.writer(), entry);
        finished.with_context(|| format!("cannot finish {}", self.target.display()))
    }

    /// Gives it its name, at once.
    pub fn commit(self) -> Result<()> {
        let target = &self.target;
        let named = match (self.temporary, self.may_replace) {
            (Temporary::Unnamed(file), false) => link(&file, target),
            (Temporary::Unnamed(file), true) => replace(&file, target),
            (Temporary::Named(file), false) => file
                .persist_noclobber(target)
                .map(drop)
                .map_err(io::Error::from),
            (Temporary::Named(file), true) => {
                file.persist(target).map(drop).map_err(io::Error::from)
            }
        };
        named.map_err(|error| match is_taken(error.kind()) {
            true if self.may_replace => anyhow!("{}", exists(target, Advice::Directory)),
            true => anyhow!("{}", exists(target, Advice::Force)),
            false => Error::new(error).context(format!("cannot make {}", target.display())),
        })
    }
}

/// Whether a file cannot have its name because something else has it.
fn is_taken(kind: ErrorKind) -> bool {
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory};
    matches!(kind, AlreadyExists | IsADirectory | DirectoryNotEmpty)
}

impl Temporary {
    fn create(dir: &Path) -> io::Result<Self> {
        match Self::unnamed(dir) {
            Ok(file) => Ok(file),
            // No such files here, or no way to name them. What else may be
            // wrong is wrong with a named one too.
            Err(_) => Self::named(dir),
        }
    }

    fn unnamed(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE);
        let file = options.open(dir)?;
        through_proc(&file).symlink_metadata()?;
        Ok(Self::Unnamed(file))
    }

    fn named(dir: &Path) -> io::Result<Self> {
        let mut named = tempfile::Builder::new();
        named.prefix(PREFIX).tempfile_in(dir).map(Self::Named)
    }
}

/// The only way to name such a file without a capability: open(2).
fn through_proc(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    Ok(linkat(
        AT_FDCWD,
        &through_proc(file),
        AT_FDCWD,
        name,
        follow,
    )?)
}

/// A link does not replace, a renaming does.
fn replace(file: &File, name: &Path) -> io::Result<()> {
    let dir = name.parent().unwrap_or(Path::new("."));
    let mut named = tempfile::Builder::new();
    let named = named.prefix(PREFIX).make_in(dir, |path| link(file, path))?;
    Ok(named.into_temp_path().persist(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    /// Both ways, where there are both.
    const WAYS: [fn(&Path) -> io::Result<Temporary>; 2] = [Temporary::unnamed, Temporary::named];

    fn with(temporary: Temporary, target: &Path, may_replace: bool) -> SingleFile {
        let target = target.to_owned();
        let mut file = SingleFile {
            temporary,
            target,
            may_replace,
        };
        file.writer().write_all(b"new").unwrap();
        file
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_replaced_only_if_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        for temporary in WAYS.into_iter().filter_map(|way| way(dir.path()).ok()) {
            fs::write(&target, "old").unwrap();
            let error = with(temporary, &target, false).commit().unwrap_err();
            assert!(format!("{error:#}").contains("file exists"), "{error:#}");
            assert_eq!(fs::read(&target).unwrap(), b"old");
        }
        for temporary in WAYS.into_iter().filter_map(|way| way(dir.path()).ok()) {
            fs::write(&target, "old").unwrap();
            with(temporary, &target, true).commit().unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"new");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_a_name_that_is_taken_is_said_to_exist() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        // No file can be made there, whoever asks.
        let other = Path::new("/proc/version");
        for (target, is_taken) in [(taken.as_path(), true), (other, false)] {
            for temporary in WAYS.into_iter().filter_map(|way| way(dir.path()).ok()) {
                let error = with(temporary, target, true).commit().unwrap_err();
                let error = format!("{error:#}");
                assert_eq!(error.contains("exists: a directory"), is_taken, "{error}");
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_committed_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        for temporary in WAYS.into_iter().filter_map(|way| way(dir.path()).ok()) {
            drop(with(temporary, &dir.path().join("file"), false));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_directory_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let error = SingleFile::create(dir.path(), OsStr::new("d"), true).unwrap_err();
        assert!(error.to_string().contains("never replaced"), "{error}");
    }
}
