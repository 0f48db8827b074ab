// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pointers to nothing, to too little, to what may not be written.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use nix::sys::mman::ProtFlags;
use weft_core::uapi::{self, Pod, SendWr, Wc, OP_WRITE, SEND_SIGNALED};

use super::arguments::REQUESTS;
use super::expect;
use crate::raw::{Memory, Session};
use crate::report::Report;
use crate::world::{counter, gid};

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
    wrs(report)?;
    wcs(report)
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
    let (vqps, mrs, sessions) = (counter("vqps")?, counter("mrs")?, counter("sessions")?);
    let hello = uapi::Hello {
        abi_version: uapi::ABI_VERSION,
        ..Pod::zeroed()
    };
    let create = uapi::VqpCreate {
        max_send_wr: 4,
        ..Pod::zeroed()
    };
    let reg = uapi::MrReg {
        addr: memory.addr(),
        len: 8,
        ..Pod::zeroed()
    };
    let node = uapi::NodeInfo::zeroed();
    let lookup = uapi::Lookup {
        gid: gid(1),
        ..Pod::zeroed()
    };
    let tries: [(&Session, u32, &[u8]); 5] = [
        (&bare, uapi::IOC_HELLO, hello.as_bytes()),
        (&session, uapi::IOC_VQP_CREATE, create.as_bytes()),
        (&session, uapi::IOC_MR_REG, reg.as_bytes()),
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

/// A connected VQP with memory on both sides.
struct Fixture {
    near: Session,
    _far: Session,
    _memory: [Memory; 2],
    vqp: u32,
    wr: SendWr,
}

fn fixture() -> Result<Fixture> {
    let (near, far) = (Session::open(0)?, Session::open(1)?);
    let memory = [Memory::map(PAGE)?, Memory::map(PAGE)?];
    let lkey = near.register(&memory[0], 0, PAGE as u64, 7)?.lkey;
    let rkey = far.register(&memory[1], 0, PAGE as u64, 7)?.rkey;
    let vqp = near.create_vqp(64)?;
    near.qconnect(vqp, gid(1))?;
    let wr = SendWr {
        opcode: OP_WRITE,
        flags: SEND_SIGNALED,
        num_sge: 1,
        len: 8,
        lkey,
        rkey,
        local_addr: memory[0].addr(),
        remote_addr: memory[1].addr(),
        ..Pod::zeroed()
    };
    Ok(Fixture {
        near,
        _far: far,
        _memory: memory,
        vqp,
        wr,
    })
}

fn wrs(report: &mut Report) -> Result<()> {
    let Fixture { near, vqp, wr, .. } = &fixture()?;
    let enter = |wrs: u64, wr_count| {
        let mut arg = uapi::Enter {
            vqp: *vqp,
            wrs,
            wr_count,
            ..Pod::zeroed()
        };
        near.call(uapi::IOC_ENTER, &mut arg).map(|()| arg.submitted)
    };
    report.check("work requests at pointers to nothing: EFAULT", || {
        for wrs in WILD
            .into_iter()
            .chain([u64::MAX - 63, u64::MAX - 64 * 1024])
        {
            expect(Errno::EFAULT, || enter(wrs, 2))?;
        }
        Ok(())
    });
    report.check(
        "work requests that end in a hole: those before it are taken, or none",
        || {
            let mut edge = Memory::map(2 * PAGE)?;
            edge.truncate(PAGE)?;
            for i in 0..PAGE / 64 {
                edge.fill(i * 64, wr.as_bytes());
            }
            let whole = 20;
            let submitted = match enter(edge.addr() + (PAGE - whole * 64) as u64, 40) {
                Ok(submitted) => submitted as usize,
                Err(Errno::EFAULT) => 0,
                Err(errno) => return Err(errno.into()),
            };
            ensure!(
                submitted <= whole,
                "{submitted} were taken of {whole} that are there"
            );
            let mut wcs = [Wc::zeroed(); 64];
            let (_, completed) =
                near.enter(*vqp, &[], &mut wcs, submitted as u32, 5_000_000_000)?;
            ensure!(
                completed == submitted,
                "{completed} completions of {submitted} requests"
            );
            Ok(())
        },
    );
    Ok(())
}

fn wcs(report: &mut Report) -> Result<()> {
    let Fixture { near, vqp, wr, .. } = &fixture()?;
    let mut edge = Memory::map(2 * PAGE)?;
    edge.truncate(PAGE)?;
    report.check("completions for a wild pointer are not lost", || {
        let batch: Vec<SendWr> = (0..40).map(|wr_id| SendWr { wr_id, ..*wr }).collect();
        near.enter(*vqp, &batch, &mut [], 0, 0)?;
        let mut ids = Vec::new();
        let wild = |wcs| {
            let mut arg = uapi::Enter {
                vqp: *vqp,
                wcs,
                wc_max: 40,
                wc_min: 40,
                timeout_ns: 5_000_000_000,
                ..Pod::zeroed()
            };
            near.call(uapi::IOC_ENTER, &mut arg).map(|()| arg.completed)
        };
        for wcs in WILD {
            expect(Errno::EFAULT, || wild(wcs))?;
        }
        // Room for 20 and a half: what is reported is there, the rest comes later.
        let start = PAGE - 20 * 32 - 16;
        let reported = match wild(edge.addr() + start as u64) {
            Ok(completed) => completed as usize,
            Err(Errno::EFAULT) => 0,
            Err(errno) => return Err(errno.into()),
        };
        ensure!(
            reported <= 20,
            "{reported} completions were written to room for 20"
        );
        for i in 0..reported {
            let mut wc = Wc::zeroed();
            wc.as_bytes_mut()
                .copy_from_slice(&edge.bytes(start + i * 32, 32));
            ids.push(wc.wr_id);
        }
        let mut wcs = [Wc::zeroed(); 64];
        let rest = 40 - reported;
        let (_, completed) = near.enter(*vqp, &[], &mut wcs, rest as u32, 5_000_000_000)?;
        ids.extend(wcs[..completed].iter().map(|wc| wc.wr_id));
        ensure!(ids.iter().copied().eq(0..40), "the completions are {ids:?}");
        Ok(())
    });
    Ok(())
}
