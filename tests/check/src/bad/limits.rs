// SPDX-License-Identifier: MIT OR Apache-2.0

//! Too much, too little, and memory that cannot be had.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use nix::sys::mman::ProtFlags;
use weft_core::uapi::{MAX_MRS_PER_SESSION, MAX_MR_BYTES, MAX_VQPS_PER_SESSION};

use super::{expect, refused};
use crate::raw::{Memory, Session};
use crate::world::counter;
use weft_testkit::report::Report;

const PAGE: usize = 4096;

/// All checks of limits and regions.
pub fn run(report: &mut Report) -> Result<()> {
    report.check("256 VQPs, not one more, until one goes: EMFILE", vqps);
    regions(report)?;
    ranges(report)
}

fn vqps() -> Result<()> {
    let session = Session::open(0)?;
    for _ in 0..MAX_VQPS_PER_SESSION {
        session.create_vqp(8)?;
    }
    expect(Errno::EMFILE, || session.create_vqp(8))?;
    session.destroy_vqp(100)?;
    ensure!(
        session.create_vqp(8)? == 100,
        "the free handle was not taken"
    );
    expect(Errno::EMFILE, || session.create_vqp(8))
}

fn mrs() -> Result<()> {
    let session = Session::open(0)?;
    let page = Memory::map(PAGE)?;
    let mut keys = Vec::new();
    for _ in 0..MAX_MRS_PER_SESSION {
        keys.push(session.register(&page, 0, 8, 1)?.lkey);
    }
    expect(Errno::EMFILE, || session.register(&page, 0, 8, 1))?;
    session.deregister(keys[7])?;
    session.register(&page, 0, 8, 1)?;
    keys.sort_unstable();
    keys.dedup();
    ensure!(
        keys.len() == MAX_MRS_PER_SESSION,
        "two regions have one key"
    );
    expect(Errno::EMFILE, || session.register(&page, 0, 8, 1))
}

fn regions(report: &mut Report) -> Result<()> {
    report.check("256 regions, not one more, until one goes: EMFILE", mrs);
    let session = Session::open(0)?;
    let page = Memory::map(PAGE)?;
    let mut bad = |name: &str, len: u64, access: u32| {
        refused(report, name, Errno::EINVAL, || {
            session.register(&page, 0, len, access)
        });
    };
    bad("a region of 0 bytes", 0, 1);
    bad("a region that is too long", MAX_MR_BYTES + 1, 1);
    bad("a region of all addresses", u64::MAX, 1);
    bad("unknown access", 8, 8);
    bad("all access bits", 8, u32::MAX);
    bad("remote write without local write", 8, 2);
    Ok(())
}

fn ranges(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    let pinned = counter("pinned_pages")?;
    for addr in [
        0,
        0x1000,
        0x7fff_ffff_f000,
        0xffff_8000_0000_0000,
        0x0123_4567_89ab_cdef,
    ] {
        refused(
            report,
            &format!("a region at {addr:#x}"),
            Errno::EFAULT,
            || session.register_at(addr, 8192, 1),
        );
    }
    let mut edge = Memory::map(8 * PAGE)?;
    edge.truncate(4 * PAGE)?;
    refused(
        report,
        "a region that ends in a hole",
        Errno::EFAULT,
        || session.register(&edge, PAGE as u64, 4 * PAGE as u64, 1),
    );
    refused(
        report,
        "a gigabyte that ends in a hole",
        Errno::EFAULT,
        || session.register(&edge, 0, MAX_MR_BYTES, 1),
    );
    edge.protect(2 * PAGE, PAGE, ProtFlags::PROT_READ)?;
    refused(
        report,
        "LOCAL_WRITE of a read-only mapping",
        Errno::EFAULT,
        || session.register(&edge, 0, 4 * PAGE as u64, 1),
    );
    report.check("a read-only mapping without LOCAL_WRITE is fine", || {
        let reg = session.register(&edge, 0, 4 * PAGE as u64, 4)?;
        Ok(session.deregister(reg.lkey)?)
    });
    edge.protect(2 * PAGE, PAGE, ProtFlags::PROT_NONE)?;
    refused(
        report,
        "a mapping that may not be read",
        Errno::EFAULT,
        || session.register(&edge, 0, 4 * PAGE as u64, 0),
    );
    report.check("refused regions pin nothing", || {
        ensure!(
            counter("pinned_pages")? == pinned,
            "{} pages",
            counter("pinned_pages")?
        );
        Ok(())
    });
    Ok(())
}
