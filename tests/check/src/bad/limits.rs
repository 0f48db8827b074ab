// SPDX-License-Identifier: MIT OR Apache-2.0

//! Too much, too little, and memory that cannot be had.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use nix::sys::mman::ProtFlags;
use weft_core::uapi::{self, Pod, MAX_MRS_PER_SESSION, MAX_MR_BYTES};

use super::{expect, refused};
use crate::raw::{vqp_on, Memory, Session, MANY_VQPS};
use crate::world::{counter, gid};
use weft_testkit::report::Report;

const PAGE: usize = 4096;

/// All checks of limits and regions.
pub fn run(report: &mut Report) -> Result<()> {
    report.check("a handle of a VQP that has gone names nothing", vqps);
    report.check(
        "a VQP on rings of others, of other sessions, of none",
        shared,
    );
    regions(report)?;
    ranges(report)?;
    report.check(
        "a receive ring that nobody shares any more is free",
        shared_before,
    );
    Ok(())
}

fn vqps() -> Result<()> {
    let session = Session::open(0)?;
    let rings = session.create_rings(8, 0)?;
    let vqps = (0..MANY_VQPS).map(|_| session.light_vqp(&rings));
    let mut vqps = vqps.collect::<Result<Vec<_>, _>>()?;
    let gone = vqps.swap_remove(100);
    session.destroy_vqp(gone)?;
    let next = session.light_vqp(&rings)?;
    ensure!(
        !vqps.contains(&next) && next != gone,
        "a handle was given twice"
    );
    expect(Errno::EBADF, || session.destroy_vqp(gone))?;
    expect(Errno::EBUSY, || session.destroy_rings(rings.rings))?;
    vqps.push(next);
    for vqp in vqps {
        session.destroy_vqp(vqp)?;
    }
    session.destroy_rings(rings.rings)?;
    expect(Errno::EBADF, || session.destroy_rings(rings.rings))?;
    expect(Errno::EBADF, || session.light_vqp(&rings))
}

fn shared() -> Result<()> {
    let (session, other) = (Session::open(0)?, Session::open(0)?);
    let make = |arg: uapi::VqpCreate| session.call(uapi::IOC_VQP_CREATE, &mut { arg });
    let foreign = other.create_rings(8, 8)?;
    let none = uapi::RingsCreate {
        rings: foreign.rings.wrapping_add(1),
        ..foreign
    };
    expect(Errno::EBADF, || make(vqp_on(&none)))?;
    let (own, more) = (session.create_rings(8, 8)?, session.create_rings(8, 8)?);
    let arg = vqp_on(&own);
    make(arg)?;
    let is_shared = uapi::VqpCreate {
        flags: uapi::VQP_SHARED_RECEIVE,
        ..arg
    };
    expect(Errno::EBUSY, || make(arg))?;
    expect(Errno::EBUSY, || make(is_shared))?;
    let elsewhere = uapi::VqpCreate {
        rq: more.rings,
        ..arg
    };
    expect(Errno::EINVAL, || make(elsewhere))?;
    let shares = uapi::VqpCreate {
        flags: uapi::VQP_SHARED_RECEIVE,
        ..elsewhere
    };
    make(shares)?;
    make(shares)?;
    expect(Errno::EBUSY, || make(vqp_on(&more)))?;
    let deaf = session.create_rings(8, 0)?;
    expect(Errno::EINVAL, || {
        make(uapi::VqpCreate {
            cq: deaf.rings,
            rq: deaf.rings,
            ..shares
        })
    })?;
    let mute = uapi::RingsCreate {
        max_recv_wr: 8,
        ..Pod::zeroed()
    };
    let mut mute = { mute };
    session.call(uapi::IOC_RINGS_CREATE, &mut mute)?;
    expect(Errno::EINVAL, || {
        make(uapi::VqpCreate {
            cq: mute.rings,
            rq: uapi::RINGS_NONE,
            ..arg
        })
    })?;
    for odd in [
        uapi::VqpCreate { flags: 4, ..arg },
        uapi::VqpCreate { port: 1, ..arg },
        uapi::VqpCreate {
            flags: uapi::VQP_UNCONNECTED,
            ..arg
        },
        uapi::VqpCreate {
            flags: uapi::VQP_UNCONNECTED,
            rq: uapi::RINGS_NONE,
            gid: gid(1),
            ..arg
        },
        uapi::VqpCreate {
            flags: uapi::VQP_SHARED_RECEIVE,
            rq: uapi::RINGS_NONE,
            ..arg
        },
    ] {
        expect(Errno::EINVAL, || make(odd))?;
    }
    Ok(())
}

fn shared_before() -> Result<()> {
    let session = Session::open(0)?;
    let rings = session.create_rings(8, 8)?;
    let own = vqp_on(&rings);
    let shares = uapi::VqpCreate {
        flags: uapi::VQP_SHARED_RECEIVE,
        ..own
    };
    for _ in 0..2 {
        let two = [session.make_vqp(shares)?, session.make_vqp(shares)?];
        for vqp in two {
            expect(Errno::EBUSY, || session.make_vqp(own))?;
            session.destroy_vqp(vqp)?;
        }
        let alone = session.make_vqp(own)?;
        expect(Errno::EBUSY, || session.make_vqp(shares))?;
        session.destroy_vqp(alone)?;
    }
    Ok(session.destroy_rings(rings.rings)?)
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
