// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where what arrives is kept until it gets its name: at once, and only if all is
//! well. Dropped before, it removes itself.

mod single;
mod tree;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
pub use single::SingleFile;
pub use tree::Tree;

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

/// The final place, if it may be taken; looked at again when it is.
fn target(dir: &Path, name: &OsStr, may_replace: bool) -> Result<PathBuf> {
    let target = dir.join(name);
    match target.symlink_metadata() {
        Ok(there) if there.is_dir() => bail!("{}", exists(&target, false)),
        Ok(_) if !may_replace => bail!("{}", exists(&target, true)),
        _ => Ok(target),
    }
}

fn exists(target: &Path, can_be_forced: bool) -> String {
    let what = match can_be_forced {
        true => "remove it, or replace a file with --force",
        false => "a directory is never replaced; remove it",
    };
    format!("{} exists: {what}", target.display())
}
