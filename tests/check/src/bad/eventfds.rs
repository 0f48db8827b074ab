// SPDX-License-Identifier: MIT OR Apache-2.0

//! Eventfds of completion rings: descriptors that are none, and moderation that cannot be.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use weft_core::uapi::{
    CqNotify, Pod, EVENTFD_NONE, IOC_CQ_NOTIFY, MAX_NOTIFY_COUNT, MAX_NOTIFY_US,
};

use super::refused;
use crate::raw::Session;
use weft_testkit::report::Report;

/// All checks of them.
pub fn run(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    let rings = session.create_rings(8, 0)?.rings;
    let without_cq = session.make_rings(8, 0, 8)?.rings;
    let eventfd = EventFd::new()?;
    let good = CqNotify {
        rings,
        eventfd: eventfd.as_fd().as_raw_fd() as u32,
        count: 1,
        ..Pod::zeroed()
    };
    let set = |arg: CqNotify| session.call(IOC_CQ_NOTIFY, &mut { arg });
    let with = |eventfd| CqNotify { eventfd, ..good };
    let moderate = |count, period_us| CqNotify {
        count,
        period_us,
        ..good
    };
    let (badf, inval) = (Errno::EBADF, Errno::EINVAL);
    let none = CqNotify {
        eventfd: EVENTFD_NONE,
        count: 0,
        ..good
    };
    let cases = [
        (
            "of rings that are not there",
            badf,
            CqNotify {
                rings: rings.wrapping_add(1 << 20),
                ..good
            },
        ),
        (
            "of rings without completions",
            inval,
            CqNotify {
                rings: without_cq,
                ..good
            },
        ),
        ("without a descriptor", badf, with(9999)),
        ("with a descriptor below 0", badf, with(u32::MAX - 1)),
        (
            "with the device",
            inval,
            with(session.as_fd().as_raw_fd() as u32),
        ),
        ("of no completions", inval, moderate(0, 0)),
        ("of too many", inval, moderate(MAX_NOTIFY_COUNT + 1, 1)),
        ("too late", inval, moderate(1, MAX_NOTIFY_US + 1)),
        ("of several, whenever they come", inval, moderate(2, 0)),
        ("of none, moderated", inval, CqNotify { count: 1, ..none }),
        (
            "with a reserved field",
            inval,
            CqNotify {
                reserved: 1,
                ..good
            },
        ),
    ];
    for (name, wanted, arg) in cases {
        refused(report, &format!("CQ_NOTIFY {name}"), wanted, || set(arg));
    }
    report.check("CQ_NOTIFY at its limits, and of none", || {
        set(moderate(MAX_NOTIFY_COUNT, MAX_NOTIFY_US))?;
        set(good)?;
        set(none)?;
        Ok(set(none)?)
    });
    Ok(())
}
