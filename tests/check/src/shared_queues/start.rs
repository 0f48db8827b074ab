// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions that begin with queues and registered memory, and what becomes of either when
//! the other goes.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::mman::ProtFlags;
use weft_core::uapi::{self, Hello, Pod, RingsCreate, MAX_RING_MEMORY};
use weft_shim::{
    Access, MemoryRegion, Qp, QpConfig, Queues, QueuesConfig, SendWr, Start, StartConfig, Wc,
    WcStatus,
};
use weft_testkit::pace::patient;

use crate::raw::{Memory, Session};
use crate::rng::Rng;
use crate::world::{counter, full_access, gid};

/// Bytes of memory: more than one page, and not a whole number of them.
const BYTES: usize = 9000;
/// So often is memory given back and taken.
const STALE_ROUNDS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);

fn start(node: u32) -> Result<Start> {
    Ok(Start::new(&StartConfig {
        node: Some(node),
        memory: BYTES,
        access: full_access() | Access::RELAXED_ORDERING,
        ..StartConfig::default()
    })?)
}

fn connect(queues: &Queues) -> Result<Qp> {
    Ok(queues.connect(gid(1), 0, &QpConfig::default())?)
}

/// Carries a request out; answers how it ended.
fn run(queues: &mut Queues, wr: SendWr<'_>) -> Result<WcStatus> {
    let mut wc = [Wc::default()];
    let progress = queues.enter(&[wr.signaled()], &mut wc, 1, patient(PATIENCE))?;
    ensure!(progress.completed == 1, "a request does not end");
    match wc[0].result() {
        Ok(_) => Ok(WcStatus::Success),
        Err(error) => error.status.context("no status that is known"),
    }
}

fn succeeds(queues: &mut Queues, wr: SendWr<'_>) -> Result<()> {
    let status = run(queues, wr)?;
    ensure!(status == WcStatus::Success, "it ends with {status:?}");
    Ok(())
}

fn bytes_of(region: &MemoryRegion) -> Result<Vec<u8>> {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes)?;
    Ok(bytes)
}

/// WRITEs, READs and atomic operations reach such memory, at both ends, and at its ends.
pub fn reached(seed: u64) -> Result<()> {
    let (mut here, there) = (start(0)?, start(1)?);
    ensure!(there.memory.len() == BYTES && there.memory.addr() == 0);
    ensure!(bytes_of(&there.memory)?.iter().all(|&byte| byte == 0));
    let qp = connect(&here.queues)?;
    let mut text = Rng::new(seed).bytes(BYTES);
    here.memory.copy_in(0, &text)?;
    let remote = there.memory.remote();
    let all = here.memory.slice(0..BYTES)?;
    succeeds(&mut here.queues, SendWr::write(all, remote).on(&qp))?;
    ensure!(bytes_of(&there.memory)? == text, "other bytes have come");
    let other: Vec<u8> = text.iter().map(|byte| !byte).collect();
    there.memory.copy_in(0, &other)?;
    let end = here.memory.slice(BYTES - 100..BYTES)?;
    let far_end = remote.offset((BYTES - 100) as u64);
    succeeds(&mut here.queues, SendWr::read(end, far_end).on(&qp))?;
    text[BYTES - 100..].copy_from_slice(&other[BYTES - 100..]);
    ensure!(bytes_of(&here.memory)? == text, "other bytes were READ");
    there.memory.store_u64(16, 40)?;
    let before = here.memory.slice(0..8)?;
    let add = SendWr::fetch_add(before, remote.offset(16), 2);
    succeeds(&mut here.queues, add.on(&qp))?;
    let (was, is) = (here.memory.load_u64(0)?, there.memory.load_u64(16)?);
    ensure!((was, is) == (40, 42), "a word was {was} and is {is}");
    past_the_end(here, &there, &qp)
}

/// The last page is not all of the region.
fn past_the_end(mut here: Start, there: &Start, qp: &Qp) -> Result<()> {
    let word = here.memory.slice(0..8)?;
    let past = there.memory.remote().offset(BYTES as u64 - 7);
    let status = run(&mut here.queues, SendWr::write(word, past).on(qp))?;
    ensure!(status == WcStatus::RemAccessErr, "it ends with {status:?}");
    Ok(())
}

/// Peers reach memory whose queues are gone; the session's next queues are elsewhere.
pub fn without_queues() -> Result<()> {
    let (mut here, there) = (start(0)?, start(1)?);
    let qp = connect(&here.queues)?;
    let Start {
        device,
        queues,
        memory,
    } = there;
    let (send, done) = (
        QueuesConfig::default().max_send_wr,
        QueuesConfig::default().max_wc,
    );
    drop(queues);
    // As long as the mapping that has gone, so that they would fit there.
    let others: Vec<_> = (1..8)
        .map(|pages| {
            let max_wc = done + pages * 128;
            Queues::create(
                &device,
                &QueuesConfig {
                    max_send_wr: send,
                    max_wc,
                    max_recv_wr: 0,
                },
            )
        })
        .collect::<Result<_, _>>()?;
    here.memory.copy_in(0, &[0xa5; BYTES])?;
    let all = here.memory.slice(0..BYTES)?;
    succeeds(
        &mut here.queues,
        SendWr::write(all, memory.remote()).on(&qp),
    )?;
    ensure!(bytes_of(&memory)? == [0xa5; BYTES], "other bytes have come");
    for mut queues in others {
        let mut wcs = [Wc::default(); 16];
        ensure!(queues.poll_cq(&mut wcs) == 0, "bytes are completions");
        let qp = queues.connect(gid(0), 0, &QpConfig::default())?;
        let nothing = SendWr::write(memory.slice(0..0)?, here.memory.remote());
        succeeds(&mut queues, nothing.on(&qp))?;
    }
    Ok(())
}

/// Queues go on whose memory is gone; peers do not reach it any more.
pub fn without_memory() -> Result<()> {
    let (mut here, mut there) = (start(0)?, start(1)?);
    let qp = connect(&here.queues)?;
    let remote = there.memory.remote();
    drop(there.memory);
    let word = here.memory.slice(0..8)?;
    let status = run(&mut here.queues, SendWr::write(word, remote).on(&qp))?;
    ensure!(status == WcStatus::RemAccessErr, "it ends with {status:?}");
    let own = MemoryRegion::allocate(&there.device, 64, full_access())?;
    let qp = there.queues.connect(gid(0), 0, &QpConfig::default())?;
    own.store_u64(0, 7)?;
    let write = SendWr::write(own.slice(0..8)?, here.memory.remote());
    succeeds(&mut there.queues, write.on(&qp))?;
    ensure!(here.memory.load_u64(0)? == 7);
    Ok(())
}

/// Memory that sessions have left full of bytes comes to the next ones without them. Of
/// these lengths the module takes some in one piece and some page by page.
pub fn never_stale() -> Result<()> {
    for round in 0..STALE_ROUNDS {
        for bytes in [4096, 20_000, 64 << 10, 120 << 10, 300 << 10] {
            let config = StartConfig {
                node: Some(0),
                memory: bytes,
                access: full_access(),
                ..StartConfig::default()
            };
            let some = [Start::new(&config)?, Start::new(&config)?];
            for Start { memory, .. } in &some {
                let clean = bytes_of(memory)?.iter().all(|&byte| byte == 0);
                ensure!(clean, "round {round}: bytes of before in {bytes}");
                memory.copy_in(0, &vec![0xa5; bytes])?;
            }
        }
    }
    Ok(())
}

/// What cannot be had leaves neither a session nor anything else.
pub fn refused() -> Result<()> {
    let good = RingsCreate {
        max_send_wr: 8,
        max_wc: 8,
        memory_bytes: 4096,
        memory_access: uapi::ACCESS_ALL,
        ..Pod::zeroed()
    };
    let bad = [
        RingsCreate {
            max_wc: uapi::MAX_WC + 1,
            ..good
        },
        RingsCreate {
            memory_bytes: MAX_RING_MEMORY + 1,
            ..good
        },
        RingsCreate {
            memory_bytes: u32::MAX,
            ..good
        },
        RingsCreate {
            memory_bytes: 0,
            ..good
        },
        RingsCreate {
            memory_bytes: 0,
            memory_access: 0,
            memory_addr: 4096,
            ..good
        },
        RingsCreate {
            memory_addr: 8,
            ..good
        },
        RingsCreate {
            memory_addr: u64::MAX - 4095,
            ..good
        },
        RingsCreate {
            memory_access: uapi::ACCESS_REMOTE_WRITE,
            ..good
        },
        RingsCreate {
            memory_access: uapi::ACCESS_ALL + 1,
            ..good
        },
        RingsCreate {
            reserved: 1,
            ..good
        },
        RingsCreate {
            rings: 1,
            max_send_wr: 0,
            max_wc: 0,
            memory_bytes: 0,
            memory_access: 0,
            ..good
        },
    ];
    let (bare, session) = (Session::bare()?, Session::open(0)?);
    let sessions = counter("sessions")?;
    let hello = |rings| {
        let mut hello = Hello {
            abi_version: uapi::ABI_VERSION,
            node: 0,
            rings,
            ..Pod::zeroed()
        };
        bare.call(uapi::IOC_HELLO, &mut hello)
    };
    for (at, rings) in bad.into_iter().enumerate() {
        let both = [
            hello(rings),
            session.call(uapi::IOC_RINGS_CREATE, &mut { rings }),
        ];
        ensure!(both == [Err(Errno::EINVAL); 2], "{at}: {both:?}");
    }
    ensure!(counter("sessions")? == sessions, "a session was made");
    hello(good).context("it works after all that")?;
    Ok(())
}

/// An answer that cannot be written takes rings and memory back.
pub fn unheard() -> Result<()> {
    let page = Memory::map(4096)?;
    let hello = Hello {
        abi_version: uapi::ABI_VERSION,
        node: 0,
        rings: RingsCreate {
            max_wc: 8,
            memory_bytes: 4096,
            memory_access: uapi::ACCESS_ALL,
            ..Pod::zeroed()
        },
        ..Pod::zeroed()
    };
    page.put(0, &hello);
    page.protect(0, 4096, ProtFlags::PROT_READ)?;
    let gauges = || -> Result<_> { Ok((counter("sessions")?, counter("mrs")?)) };
    let before = gauges()?;
    let bare = Session::bare()?;
    let said = bare.call_at(uapi::IOC_HELLO, page.addr());
    ensure!(said == Err(Errno::EFAULT), "HELLO answers {said:?}");
    ensure!(gauges()? == before, "it has left something");
    Ok(bare.hello(0)?)
}
