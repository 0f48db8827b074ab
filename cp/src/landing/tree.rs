// SPDX-License-Identifier: MIT OR Apache-2.0

//! A tree that arrives in a directory of its own, beside its final place.
//!
//! Nobody else can enter that directory, and links are made last: until then all
//! names in it are those of directories and files that were made here, so that no
//! path leads out of it. For the same reason directories get their permissions
//! only at the end.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{symlink, DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::fcntl::{renameat2, RenameFlags, AT_FDCWD};
use tempfile::TempDir;

use super::{exists, finish, target, Advice, PREFIX};
use crate::entry::{Entry, Kind};
use crate::wire::MAX_LINK_BYTES;

/// A tree on its way to its name.
#[derive(Debug)]
pub struct Tree {
    temporary: TempDir,
    target: PathBuf,
    /// Each behind the one that it is in; the root is the first.
    directories: Vec<Entry>,
    links: Vec<Entry>,
    /// Bytes that further links may have.
    link_bytes_left: usize,
    has_name: bool,
}

impl Tree {
    /// A new one with nothing but its root.
    pub fn create(dir: &Path, name: &OsStr, root: Entry) -> Result<Self> {
        let target = target(dir, name, Some(Advice::Tree))?;
        let mut temporary = tempfile::Builder::new();
        let private = Permissions::from_mode(0o700);
        let temporary = temporary
            .prefix(PREFIX)
            .permissions(private)
            .tempdir_in(dir);
        let cannot = || format!("cannot make a directory in {}", dir.display());
        Ok(Self {
            temporary: temporary.with_context(cannot)?,
            target,
            directories: vec![root],
            links: Vec::new(),
            link_bytes_left: MAX_LINK_BYTES,
            has_name: false,
        })
    }

    /// Makes a directory.
    pub fn add_directory(&mut self, entry: Entry) -> Result<()> {
        let made = DirBuilder::new().mode(0o700).create(self.place(&entry)?);
        made.with_context(|| self.cannot_make(&entry))?;
        self.directories.push(entry);
        Ok(())
    }

    /// Remembers a link. It must be in a directory that is there already: a link that is made
    /// before it must not lead it elsewhere.
    pub fn add_link(&mut self, entry: Entry) -> Result<()> {
        let place = self.place(&entry)?;
        // No link is made yet, so that no part of this path can be one.
        let parent = place.parent().map(Path::symlink_metadata);
        let is_in_directory = matches!(parent, Some(Ok(parent)) if parent.is_dir());
        ensure!(
            is_in_directory,
            "{}: it is in no directory that came before it",
            self.cannot_make(&entry)
        );
        let left = self.link_bytes_left.checked_sub(entry.link_bytes());
        self.link_bytes_left = left.context("the stream is corrupt: its links are too long")?;
        self.links.push(entry);
        Ok(())
    }

    /// Makes a file, and says what it will be called.
    pub fn create_file(&self, entry: &Entry) -> Result<(File, PathBuf)> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.place(entry)?);
        let file = file.with_context(|| self.cannot_make(entry))?;
        Ok((file, self.target.join(entry.relative()?)))
    }

    /// All bytes of a file are there.
    pub fn finish_file(&self, file: &File, entry: &Entry) -> Result<()> {
        finish(file, entry).with_context(|| self.cannot_make(entry))
    }

    /// All directories and files are there: makes the links.
    pub fn make_links(&mut self) -> Result<()> {
        for entry in &self.links {
            if let Kind::Link { target } = &entry.kind {
                let target = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(target);
                let made = symlink(target, self.place(entry)?);
                made.with_context(|| self.cannot_make(entry))?;
            }
        }
        Ok(())
    }

    /// Gives it its name, at once.
    pub fn commit(mut self) -> Result<()> {
        // From the innermost on: no longer to be entered, perhaps, but finished.
        for entry in self.directories.iter().rev() {
            let times = entry.times()?;
            let directory = File::open(self.place(entry)?);
            let set = directory.and_then(|directory| {
                directory.set_times(times)?;
                directory.set_permissions(Permissions::from_mode(entry.mode))
            });
            set.with_context(|| self.cannot_make(entry))?;
        }
        name_directory(self.temporary.path(), &self.target)?;
        self.has_name = true;
        Ok(())
    }

    /// Where an entry, not the root, is made.
    fn place(&self, entry: &Entry) -> Result<PathBuf> {
        Ok(self.temporary.path().join(entry.relative()?))
    }

    /// Removes one directory after the other, from the innermost on: to remove all at once takes
    /// a descriptor for each level.
    fn remove(&self) -> io::Result<()> {
        let mut removed = Ok(());
        for entry in self.directories.iter().rev() {
            if let Ok(place) = self.place(entry) {
                removed = fs::remove_dir_all(place);
            }
        }
        // The last was the root's, which fails if anything is left.
        removed
    }

    fn cannot_make(&self, entry: &Entry) -> String {
        let path = entry.relative().unwrap_or_default();
        format!("cannot make {}", self.target.join(path).display())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.has_name {
            self.temporary.disable_cleanup(true);
            return;
        }
        // Without permission to write to a directory, what is in it cannot be
        // removed. From the outermost on, so that each can be reached.
        for entry in &self.directories {
            if let Ok(place) = self.place(entry) {
                // If it cannot be, the next call says so.
                let _ = fs::set_permissions(place, Permissions::from_mode(0o700));
            }
        }
        if let Err(error) = self.remove() {
            let path = self.temporary.path().display();
            tracing::warn!(%error, "{path} could not be removed: remove it by hand");
        }
        self.temporary.disable_cleanup(true);
    }
}

/// The advice on a name that something else has taken meanwhile.
fn advice_on(name: &Path) -> Advice {
    match name.symlink_metadata() {
        Ok(there) if there.is_dir() => Advice::Directory,
        _ => Advice::Tree,
    }
}

/// Renames a directory to a name that nothing has.
fn name_directory(from: &Path, to: &Path) -> Result<()> {
    let cannot = || format!("cannot make {}", to.display());
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EEXIST) => bail!("{}", exists(to, advice_on(to))),
        // Some filesystems have only the plain renaming, which replaces nothing
        // but an empty directory.
        Err(Errno::EINVAL) if to.symlink_metadata().is_err() => {
            fs::rename(from, to).with_context(cannot)
        }
        Err(errno) => Err(io::Error::from(errno)).with_context(cannot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::entry;
    use std::process::Command;

    /// Runs the test of this name in a process of its own, which has umask 0 and few descriptors.
    /// Says whether this is that process: only that one is to test anything.
    fn is_alone(test: &str) -> bool {
        const ALONE: &str = "WEFT_CP_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return true;
        }
        let mut child = Command::new("sh");
        child.args(["-c", "umask 0; ulimit -n 64; exec \"$@\"", "sh"]);
        child.arg(std::env::current_exe().unwrap());
        child.args(["--exact", "--nocapture"]);
        child.arg(format!("landing::tree::tests::{test}"));
        let output = child.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        false
    }

    #[test]
    fn others_cannot_enter_a_tree_before_it_has_its_name() {
        if is_alone("others_cannot_enter_a_tree_before_it_has_its_name") {
            let dir = tempfile::tempdir().unwrap();
            let tree = tree_in(dir.path());
            let there = tree.temporary.path().metadata().unwrap();
            assert_eq!(there.permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_tree_that_is_deeper_than_there_are_descriptors_is_removed() {
        if is_alone("a_tree_that_is_deeper_than_there_are_descriptors_is_removed") {
            let dir = tempfile::tempdir().unwrap();
            let mut tree = tree_in(dir.path());
            for depth in 2..1100 {
                let path = vec!["d"; depth].join("/").into_bytes();
                let mut inner = entry(&path, Kind::Directory);
                inner.mode = 0o555;
                tree.add_directory(inner).unwrap();
            }
            drop(tree);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    fn tree_in(dir: &Path) -> Tree {
        let mut root = entry(b"", Kind::Directory);
        root.mode = 0o555;
        let mut tree = Tree::create(dir, OsStr::new("tree"), root).unwrap();
        let mut inner = entry(b"d", Kind::Directory);
        inner.mode = 0o555;
        tree.add_directory(inner).unwrap();
        let file = entry(b"d/f", Kind::File { bytes: 0 });
        let (made, _) = tree.create_file(&file).unwrap();
        tree.finish_file(&made, &file).unwrap();
        tree
    }

    #[test]
    fn a_tree_that_may_not_be_written_to_gets_its_name() {
        let dir = tempfile::tempdir().unwrap();
        tree_in(dir.path()).commit().unwrap();
        let made = dir.path().join("tree/d");
        let there = made.metadata().unwrap();
        assert_eq!(there.permissions().mode() & 0o777, 0o555);
        for path in [dir.path().join("tree"), made] {
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree_in(dir.path());
        fs::create_dir(dir.path().join("tree")).unwrap();
        let error = tree.commit().unwrap_err().to_string();
        assert!(error.contains("never replaced"), "{error}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(fs::read_dir(dir.path().join("tree")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_has_taken_the_name_is_left_alone_too() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree_in(dir.path());
        fs::write(dir.path().join("tree"), "new").unwrap();
        let error = tree.commit().unwrap_err().to_string();
        assert!(error.contains("replaces nothing"), "{error}");
        assert_eq!(fs::read(dir.path().join("tree")).unwrap(), b"new");
    }

    #[test]
    fn links_that_are_too_long_together_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = tree_in(dir.path());
        tree.link_bytes_left = 10;
        let link = |path| {
            let target = b"abcde".to_vec();
            entry(path, Kind::Link { target })
        };
        tree.add_link(link(b"d/l")).unwrap();
        let error = tree.add_link(link(b"d/m")).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
        assert_eq!(tree.links.len(), 1);
    }

    #[test]
    fn a_tree_replaces_no_file_and_does_not_say_that_it_could() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tree"), "old").unwrap();
        let root = entry(b"", Kind::Directory);
        let error = Tree::create(dir.path(), OsStr::new("tree"), root).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("replaces nothing") && !error.contains("--force"),
            "{error}"
        );
    }

    #[test]
    fn what_is_there_already_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = tree_in(dir.path());
        assert!(tree
            .create_file(&entry(b"d/f", Kind::File { bytes: 0 }))
            .is_err());
        assert!(tree
            .create_file(&entry(b"", Kind::File { bytes: 0 }))
            .is_err());
        assert!(tree
            .add_directory(entry(b"d/f/g", Kind::Directory))
            .is_err());
    }
}
