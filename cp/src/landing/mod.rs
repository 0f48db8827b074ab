// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where what arrives is kept until it gets its name: at once, and only if all is
//! well. Dropped before, it removes itself.

mod single;
mod tree;

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use nix::unistd::close;
pub use single::SingleFile;
pub use tree::Tree;

use crate::entry::Entry;

/// How temporary names begin.
pub const PREFIX: &str = ".weft-cp-";

/// Everything, checked, without its name.
pub enum Landing {
    SingleFile(SingleFile),
    Tree(Tree),
}

impl Landing {
    /// Gives it its name.
    pub fn commit(self) -> Result<()> {
        match self {
            Self::SingleFile(file) => file.commit(),
            Self::Tree(tree) => tree.commit(),
        }
    }
}

/// All bytes of a file are there: sets its times and permissions.
fn finish(file: &File, entry: &Entry) -> Result<()> {
    file.set_times(entry.times()?)?;
    file.set_permissions(Permissions::from_mode(entry.mode))?;
    // Some filesystems, such as NFS, say only now that they have no room for the bytes.
    Ok(close(file.try_clone()?)?)
}

/// The advice for a user who finds something that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    /// It is a file or a link, and so is what arrives.
    Force,
    /// It is a directory.
    Directory,
    /// It is a file or a link, and a directory arrives.
    Tree,
}

/// The final place, if it may be taken; looked at again when it is. `refusal`: why a file or a
/// link may not be replaced.
fn target(dir: &Path, name: &OsStr, refusal: Option<Advice>) -> Result<PathBuf> {
    let target = dir.join(name);
    match (target.symlink_metadata(), refusal) {
        (Ok(there), _) if there.is_dir() => bail!("{}", exists(&target, Advice::Directory)),
        (Ok(_), Some(advice)) => bail!("{}", exists(&target, advice)),
        _ => Ok(target),
    }
}

fn exists(target: &Path, advice: Advice) -> String {
    let what = match advice {
        Advice::Force => "remove it, or replace a file with --force",
        Advice::Directory => "a directory is never replaced; remove it",
        Advice::Tree => "a directory replaces nothing; remove it",
    };
    format!("{} exists: {what}", target.display())
}
