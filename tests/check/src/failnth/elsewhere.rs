// SPDX-License-Identifier: MIT OR Apache-2.0

//! Allocations that fail in softirqs, work items and timers: they are not the calling
//! thread's, so that its `fail-nth` does not reach them.
//!
//! The kernel fails an allocation with the module's code on the stack, whoever makes it
//! (`require-start`), after so many bytes or pages have been had (`space`). A sweep gives
//! a little more in each round. An allocation smaller than that is passed over in some
//! sweeps, and met in others.

use std::fmt::Display;

use anyhow::{ensure, Context, Result};

use super::inject::DEBUGFS;

/// As far as the kernel looks up a stack.
pub const DEPTH: u32 = 32;

/// What fails.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Objects; space is in bytes.
    Slab,
    /// Pages; space is in pages.
    Pages,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Slab, Self::Pages];

    /// Its folder in debugfs.
    const fn folder(self) -> &'static str {
        match self {
            Self::Slab => "failslab",
            Self::Pages => "fail_page_alloc",
        }
    }

    /// The least that a round gives more than the one before.
    pub const fn stride(self) -> u32 {
        match self {
            Self::Slab => 128,
            Self::Pages => 1,
        }
    }

    /// What space counts.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Slab => "bytes",
            Self::Pages => "pages",
        }
    }

    pub fn set(self, name: &str, value: impl Display) -> Result<()> {
        let path = format!("{DEBUGFS}/{}/{name}", self.folder());
        std::fs::write(&path, value.to_string()).with_context(|| format!("writing {path}"))
    }

    fn get(self, name: &str) -> Result<i64> {
        let path = format!("{DEBUGFS}/{}/{name}", self.folder());
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        Ok(text.trim().parse()?)
    }
}

/// The next failure of one kind.
pub struct Elsewhere {
    kind: Kind,
    space: u32,
}

/// What a round came to.
pub struct Outcome {
    /// An allocation has failed.
    pub failed: bool,
    /// So many bytes or pages were had before.
    pub had: u32,
}

impl Elsewhere {
    /// More than all of a call's allocations: nothing fails.
    pub const ENDLESS: u32 = 1 << 30;

    /// From now on the first allocation fails that is not among the first `space` bytes
    /// or pages, and no other one.
    pub fn arm(kind: Kind, space: u32) -> Result<Self> {
        let (start, end) = module_range()?;
        kind.set("stacktrace-depth", DEPTH)?;
        kind.set("require-start", format_args!("{start:#x}"))?;
        kind.set("require-end", format_args!("{end:#x}"))?;
        kind.set("space", space)?;
        kind.set("times", 1)?;
        kind.set("probability", 100)?;
        Ok(Self { kind, space })
    }

    /// Nothing fails any more. A thread's own fail-nth is not bound to the module's code.
    pub fn disarm(self) -> Result<Outcome> {
        self.kind.set("probability", 0)?;
        let (times, left) = (self.kind.get("times")?, self.kind.get("space")?);
        self.kind.set("times", -1)?;
        self.kind.set("require-start", 0)?;
        self.kind
            .set("require-end", format_args!("{:#x}", u64::MAX))?;
        self.kind.set("stacktrace-depth", 0)?;
        Ok(Outcome {
            failed: times == 0,
            had: self.space.saturating_sub(u32::try_from(left)?),
        })
    }
}

/// Where the module's code lies. The checked kernel has no other module.
fn module_range() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/modules")?;
    let line = text.lines().find(|line| line.starts_with("weft "));
    let mut words = line.context("weft is not loaded")?.split_whitespace();
    let size: u64 = words.nth(1).context("no size")?.parse()?;
    let address = words.nth(3).context("no address")?;
    let start = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
    ensure!(start != 0, "/proc/modules hides addresses");
    Ok((start, start + size))
}
