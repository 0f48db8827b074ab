// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pointers to nothing, to too little, to what may not be written.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use nix::sys::mman::ProtFlags;
use weft_core::uapi::{self, Pod};

use super::arguments::REQUESTS;
use super::expect;
use crate::raw::{vqp_on, Memory, Session};
use crate::world::{counter, gid};
use weft_testkit::report::Report;

const PAGE: usize = 4096;
/// Null, odd, never mapped, the last user page, the kernel's, no address at all.
const WILD: [u64; 7] = [
    0,
    1,
    0x1000,
    0x7fff_ffff_f000,
    0xffff_8000_0000_0000,
    0xffff_ffff_ffff_f000,
    0x0123_4567_89ab_cdef,
];

/// All checks of pointers.
pub fn run(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    let mut edge = Memory::map(2 * PAGE)?;
    edge.truncate(PAGE)?;
    for (name, request) in REQUESTS {
        if request == uapi::IOC_DCCACHE_FLUSH {
            continue;
        }
        report.check(&format!("{name} of pointers to nothing: EFAULT"), || {
            every_pointer(&session, request, &edge)
        });
    }
    report.check(
        "HELLO of pointers to nothing: EFAULT, and then it works",
        || {
            let bare = Session::bare()?;
            every_pointer(&bare, uapi::IOC_HELLO, &edge)?;
            Ok(bare.hello(0)?)
        },
    );
    report.check(
        "answers to memory that is read-only: EFAULT, and nothing is made",
        read_only,
    );
    Ok(())
}

fn every_pointer(session: &Session, request: u32, edge: &Memory) -> Result<()> {
    let size = u64::from((request >> 16) & 0x3fff);
    // One byte too few, half of it, all but one byte.
    let end = edge.addr() + PAGE as u64;
    let short = [end - size + 1, end - size / 2, end - 1];
    for address in WILD.into_iter().chain(short) {
        expect(Errno::EFAULT, || session.call_at(request, address))
            .map_err(|error| error.context(format!("at {address:#x}")))?;
    }
    Ok(())
}

fn read_only() -> Result<()> {
    let (session, bare) = (Session::open(0)?, Session::bare()?);
    let memory = Memory::map(PAGE)?;
    let region = session.register(&memory, 0, PAGE as u64, uapi::ACCESS_LOCAL_READ)?;
    let (vqps, mrs, sessions) = (counter("vqps")?, counter("mrs")?, counter("sessions")?);
    let hello = uapi::Hello {
        abi_version: uapi::ABI_VERSION,
        ..Pod::zeroed()
    };
    let create = vqp_on(&session.create_rings(4, 0)?);
    let rings = uapi::RingsCreate {
        max_wc: 4,
        ..Pod::zeroed()
    };
    let open = uapi::PeerOpen {
        gid: gid(1),
        ..Pod::zeroed()
    };
    let reg = uapi::MrReg {
        addr: memory.addr(),
        len: 8,
        ..Pod::zeroed()
    };
    let window = uapi::MwBind {
        addr: region.addr,
        len: 8,
        lkey: region.lkey,
        access: uapi::ACCESS_REMOTE_READ,
        ..Pod::zeroed()
    };
    let node = uapi::NodeInfo::zeroed();
    let lookup = uapi::Lookup {
        gid: gid(1),
        ..Pod::zeroed()
    };
    let tries: [(&Session, u32, &[u8]); 8] = [
        (&session, uapi::IOC_RINGS_CREATE, rings.as_bytes()),
        (&session, uapi::IOC_PEER_OPEN, open.as_bytes()),
        (&bare, uapi::IOC_HELLO, hello.as_bytes()),
        (&session, uapi::IOC_VQP_CREATE, create.as_bytes()),
        (&session, uapi::IOC_MR_REG, reg.as_bytes()),
        (&session, uapi::IOC_MW_BIND, window.as_bytes()),
        (&session, uapi::IOC_NODE, node.as_bytes()),
        (&session, uapi::IOC_LOOKUP, lookup.as_bytes()),
    ];
    for (session, request, bytes) in tries {
        memory.protect(0, PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        memory.fill(0, bytes);
        memory.protect(0, PAGE, ProtFlags::PROT_READ)?;
        expect(Errno::EFAULT, || session.call_at(request, memory.addr()))
            .map_err(|error| error.context(format!("request {request:#x}")))?;
    }
    let now = (counter("vqps")?, counter("mrs")?, counter("sessions")?);
    ensure!(now == (vqps, mrs, sessions), "something was made: {now:?}");
    Ok(bare.hello(0)?)
}
