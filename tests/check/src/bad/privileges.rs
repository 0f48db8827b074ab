// SPDX-License-Identifier: MIT OR Apache-2.0

//! What takes privileges, tried without them.

use anyhow::Result;
use nix::errno::Errno;
use nix::libc::setresuid;
use nix::sys::resource::{setrlimit, Resource};
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, MAX_META_SERVERS};

use super::{expect, refused};
use crate::raw::{Memory, Session};
use crate::world::{gid, worker};
use weft_testkit::report::Report;

const NOBODY: u32 = 65534;
const LOCKED: u64 = 64 << 10;

/// As root, and then as nobody in another process.
pub fn run(report: &mut Report) -> Result<()> {
    meta_servers(report)?;
    if !worker(&["unprivileged"])?.status()?.success() {
        report.add_failure();
    }
    Ok(())
}

fn meta_servers(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    let call = |request, addr, port| {
        session.call(
            request,
            &mut uapi::MetaServer {
                addr,
                port,
                ..Pod::zeroed()
            },
        )
    };
    let (add, remove) = (uapi::IOC_META_ADD, uapi::IOC_META_REMOVE);
    refused(
        report,
        "a meta server without address",
        Errno::EINVAL,
        || call(add, Gid([0; 16]), 7471),
    );
    refused(report, "a meta server without port", Errno::EINVAL, || {
        call(add, gid(0), 0)
    });
    refused(report, "a meta server twice", Errno::EEXIST, || {
        call(add, gid(0), 7471)
    });
    refused(
        report,
        "removing an unknown meta server",
        Errno::ENOENT,
        || call(remove, gid(0), 7472),
    );
    report.check("too many meta servers: ENOSPC", || {
        let others = 1..MAX_META_SERVERS as u16;
        for n in others.clone() {
            call(add, gid(0), 9000 + n)?;
        }
        let outcome = expect(Errno::ENOSPC, || call(add, gid(0), 9999));
        for n in others {
            call(remove, gid(0), 9000 + n)?;
        }
        outcome
    });
    Ok(())
}

/// Is nobody.
pub fn unprivileged(report: &mut Report) {
    if let Err(error) = as_nobody(report) {
        report.check("nobody's checks could be tried", || Err(error));
    }
}

fn as_nobody(report: &mut Report) -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, LOCKED, LOCKED)?;
    // SAFETY: no memory is involved.
    Errno::result(unsafe { setresuid(NOBODY, NOBODY, NOBODY) })?;
    let (one, two) = (Session::open(0)?, Session::open(0)?);
    let bare = Session::bare()?;
    refused(
        report,
        "nobody opens a node of another network namespace",
        Errno::ENODEV,
        || bare.hello(1),
    );
    refused(
        report,
        "nobody learns of a node of another network namespace",
        Errno::ENODEV,
        || {
            let mut info = uapi::NodeInfo {
                index: 1,
                ..Pod::zeroed()
            };
            one.call(uapi::IOC_NODE, &mut info)
        },
    );
    let server = uapi::MetaServer {
        addr: gid(5),
        port: 7,
        ..Pod::zeroed()
    };
    refused(report, "nobody adds a meta server", Errno::EPERM, || {
        one.call(uapi::IOC_META_ADD, &mut { server })
    });
    refused(report, "nobody removes a meta server", Errno::EPERM, || {
        let server = uapi::MetaServer {
            addr: gid(0),
            port: 7471,
            ..server
        };
        one.call(uapi::IOC_META_REMOVE, &mut { server })
    });
    refused(report, "nobody empties the DCCache", Errno::EPERM, || {
        one.call_at(uapi::IOC_DCCACHE_FLUSH, 0)
    });

    let memory = Memory::map(4 * LOCKED as usize)?;
    refused(report, "more than RLIMIT_MEMLOCK", Errno::ENOMEM, || {
        one.register(&memory, 0, 2 * LOCKED, 1)
    });
    let reg = one.register(&memory, 0, LOCKED / 2, 1)?;
    refused(
        report,
        "more than RLIMIT_MEMLOCK in two sessions",
        Errno::ENOMEM,
        || two.register(&memory, LOCKED, LOCKED / 2 + 1, 1),
    );
    report.check("what is deregistered can be registered again", || {
        two.register(&memory, LOCKED, LOCKED / 2, 1)?;
        one.deregister(reg.lkey)?;
        one.register(&memory, 0, LOCKED / 2, 1)?;
        Ok(())
    });
    report.check("closing a session gives back what it was charged", || {
        drop((one, two));
        Session::open(0)?.register(&memory, 0, LOCKED, 1)?;
        Ok(())
    });
    Ok(())
}
