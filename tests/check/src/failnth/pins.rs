// SPDX-License-Identifier: MIT OR Apache-2.0

//! Page pins: a registration meets a page that cannot be pinned at each of its pages
//! in turn, so that pinning stops after any number of pages.

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use crate::raw::{Memory, Session};
use crate::world::{counter, Baseline};
use weft_testkit::report::Report;

const PAGE: usize = 4096;
/// More than the module pins in one go.
const PAGES: usize = 1200;
/// Pages between two holes that are tried, away from the first and the last.
const STRIDE: usize = 37;

/// All checks.
pub fn run(report: &mut Report) {
    let mut points = 0;
    report.check_within("register, pins", super::LONGEST, || {
        let baseline = Baseline::take(2)?;
        let session = Session::open(0)?;
        let memory = Memory::map(PAGES * PAGE)?;
        let near_an_end = |page: &usize| *page < 4 || PAGES - page < 4;
        for hole in (0..PAGES).filter(|page| near_an_end(page) || page % STRIDE == 0) {
            with_hole(&session, &memory, hole).with_context(|| format!("page {hole}"))?;
            points += 1;
        }
        drop(session);
        baseline.is_back()
    });
    println!("# register, pins: {points} points");
}

fn with_hole(session: &Session, memory: &Memory, hole: usize) -> Result<()> {
    let (len, before) = ((PAGES * PAGE) as u64, counter("pinned_pages")?);
    memory.protect(hole * PAGE, PAGE, ProtFlags::PROT_NONE)?;
    let refused = session.register(memory, 0, len, 1);
    ensure!(
        matches!(refused, Err(Errno::EFAULT)),
        "got {refused:?}, wanted EFAULT"
    );
    let pinned = counter("pinned_pages")?;
    ensure!(pinned == before, "{} pages stay pinned", pinned - before);
    memory.protect(
        hole * PAGE,
        PAGE,
        ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
    )?;
    let made = session.register(memory, 0, len, 1).context("next try")?;
    Ok(session.deregister(made.lkey)?)
}
