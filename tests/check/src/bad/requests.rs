// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests that make no sense: the documented completion on their VQP,
//! later ones flushed, and nobody else notices.

mod cases;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use weft_core::uapi::{Pod, SendWr, Sge, Wc, WcStatus, OP_WRITE, SEND_SIGNALED};
use weft_shim::{Device, MemoryRegion};

use crate::isolation::users::ROOT;
use crate::raw::{request, with_sge, Memory, Queue, Session};
use crate::traffic::{Neighbour, Traffic, SLICE};
use crate::world::{full_access, gid, Transport};
use weft_testkit::report::Report;

/// Bytes of each region; as many lie before it and behind it.
const LEN: u64 = 64 << 10;
const GUARD: u8 = 0xee;
const WAIT_NS: u64 = 3_000_000_000;
/// How long a region that has gone may be written to until the test gives up.
const WRITES_AT_MOST: Duration = Duration::from_secs(60);

/// Two nodes' memory and all kinds of keys to it.
struct Fixture {
    near: Session,
    far: Session,
    here: Memory,
    there: Memory,
    lkey: u32,
    lkey_read_only: u32,
    lkey_foreign: u32,
    rkey: u32,
    rkey_read_only: u32,
    rkey_local_only: u32,
    rkey_gone: u32,
    _other: Session,
}

impl Fixture {
    fn new() -> Result<Self> {
        let (near, other, far) = (Session::open(0)?, Session::open(0)?, Session::open(1)?);
        let (here, there) = (
            Memory::map(3 * LEN as usize)?,
            Memory::map(3 * LEN as usize)?,
        );
        there.fill(0, &vec![GUARD; 3 * LEN as usize]);
        let rkey_gone = far.register(&there, LEN, LEN, 7)?.rkey;
        far.deregister(rkey_gone)?;
        Ok(Self {
            lkey: near.register(&here, LEN, LEN, 7)?.lkey,
            lkey_read_only: near.register(&here, LEN, LEN, 0)?.lkey,
            lkey_foreign: other.register(&here, LEN, LEN, 7)?.lkey,
            rkey: far.register(&there, LEN, LEN, 7)?.rkey,
            rkey_read_only: far.register(&there, LEN, LEN, 4)?.rkey,
            rkey_local_only: far.register(&there, LEN, LEN, 1)?.rkey,
            rkey_gone,
            near,
            far,
            here,
            there,
            _other: other,
        })
    }

    /// A request that is all right.
    fn good(&self, opcode: u8) -> SendWr {
        let local = Sge {
            addr: self.here.addr() + LEN,
            len: 8,
            lkey: self.lkey,
        };
        request(opcode, local, self.there.addr() + LEN, self.rkey)
    }

    /// A VQP that does one thing right, one wrong, and then more right.
    fn try_one(&self, bad: SendWr, status: WcStatus) -> Result<()> {
        let queue = self.near.queue(16, 0)?;
        self.near.qconnect(queue.vqp, gid(1))?;
        let good = self.good(OP_WRITE);
        let batch = [
            SendWr {
                wr_id: 1,
                flags: SEND_SIGNALED,
                ..good
            },
            SendWr { wr_id: 2, ..bad },
            SendWr {
                wr_id: 3,
                flags: SEND_SIGNALED,
                ..good
            },
            SendWr { wr_id: 4, ..good },
        ];
        let mut wcs = [Wc::zeroed(); 8];
        let (submitted, completed) = queue.enter(&self.near, &batch, &mut wcs, 4, WAIT_NS)?;
        ensure!(submitted == 4, "{submitted} of 4 were taken");
        let after = [SendWr { wr_id: 5, ..good }];
        let (_, more) = queue.enter(&self.near, &after, &mut wcs[completed..], 1, WAIT_NS)?;
        let got: Vec<_> = wcs[..completed + more]
            .iter()
            .map(|wc| (wc.wr_id, wc.status))
            .collect();
        let flushed = WcStatus::WrFlushErr as u16;
        let wanted = [
            (1, 0),
            (2, status as u16),
            (3, flushed),
            (4, flushed),
            (5, flushed),
        ];
        ensure!(got == wanted, "(wr_id, status) are {got:?}, not {wanted:?}");
        let empty = wcs.iter().all(|wc| wc.status == 0 || wc.byte_len == 0);
        ensure!(empty, "a failed request moved bytes");
        Ok(self.near.destroy_vqp(queue.vqp)?)
    }

    fn guards_hold(&self) -> Result<()> {
        let len = LEN as usize;
        let clean = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte == GUARD);
        ensure!(
            clean(self.there.bytes(0, len)),
            "bytes before the region were written"
        );
        ensure!(
            clean(self.there.bytes(2 * len, len)),
            "bytes behind the region were written"
        );
        let before = self.here.bytes(0, len).iter().all(|byte| *byte == 0);
        let behind = self.here.bytes(2 * len, len).iter().all(|byte| *byte == 0);
        ensure!(
            before && behind,
            "local bytes outside of the region were written"
        );
        Ok(())
    }
}

/// All cases, with bystanders.
pub fn run(report: &mut Report) -> Result<()> {
    let fixture = Fixture::new()?;
    let device = [Device::open_on(0)?, Device::open_on(1)?];
    let region = MemoryRegion::allocate(&device[1], 2 * SLICE, full_access())?;
    let remote = region.remote();
    // The same user, so that they share streams.
    let mut neighbour = Neighbour::start(remote, 1, ROOT)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            let mut traffic = Traffic::new(&device[0], 1, remote.offset(SLICE as u64), 2)?;
            traffic.until(&stop, Duration::ZERO)
        });
        for (name, wr, status) in fixture.cases() {
            report.check(&format!("{name}: {status:?}"), || {
                fixture.try_one(wr, status)
            });
        }
        stop.store(true, Ordering::Relaxed);
        report.check("another VQP of the process noticed nothing", || {
            bystander.join().map_err(|_| anyhow!("it panicked"))?
        });
    });
    report.check("another process noticed nothing", || neighbour.works());
    drop(neighbour);
    report.check("nothing outside of the regions was written", || {
        fixture.guards_hold()
    });
    report.check("a region that goes while it is used: RemAccessErr", || {
        gone(&fixture)
    });
    Ok(())
}

/// All cases, while nobody else sends: each VQP's requests go by RC.
pub fn go_by_rc() -> Result<()> {
    let fixture = Fixture::new()?;
    for (name, wr, status) in fixture.cases() {
        let outcome = Transport::Rc.observe(|| fixture.try_one(wr, status));
        outcome.context(name)?;
    }
    Ok(())
}

/// Deregistered under long WRITEs, one behind the other: those that it meets fail, and
/// then nothing is written any more.
fn gone(fixture: &Fixture) -> Result<()> {
    let near = &fixture.near;
    let queue = near.queue(64, 0)?;
    near.qconnect(queue.vqp, gid(1))?;
    let long = with_sge(fixture.good(OP_WRITE), |sge| sge.len = LEN as u32);
    let wr = SendWr {
        flags: SEND_SIGNALED,
        ..long
    };
    fixture.here.fill(LEN as usize, &[1; 16]);
    let rounds = AtomicUsize::new(0);
    let statuses = thread::scope(|scope| {
        let writer = scope.spawn(|| write_until_it_fails(near, queue, &wr, &rounds));
        while rounds.load(Ordering::Relaxed) == 0 && !writer.is_finished() {
            thread::yield_now();
        }
        fixture.far.deregister(fixture.rkey)?;
        fixture.there.fill(LEN as usize, &[9; 16]);
        writer.join().map_err(|_| anyhow!("the writer panicked"))?
    })?;
    let rest: Vec<u16> = statuses
        .into_iter()
        .skip_while(|status| *status == 0)
        .collect();
    let flushed = rest
        .iter()
        .skip(1)
        .all(|status| *status == WcStatus::WrFlushErr as u16);
    ensure!(
        rest.first() == Some(&(WcStatus::RemAccessErr as u16)) && flushed,
        "statuses are {rest:?}"
    );
    ensure!(
        fixture.there.bytes(LEN as usize, 16) == [9; 16],
        "it was written after it had gone"
    );
    Ok(())
}

/// Posts 40 such requests at a time; answers how those ended of which one failed.
fn write_until_it_fails(
    session: &Session,
    queue: Queue,
    wr: &SendWr,
    rounds: &AtomicUsize,
) -> Result<Vec<u16>> {
    let start = Instant::now();
    while start.elapsed() < WRITES_AT_MOST {
        let mut wcs = [Wc::zeroed(); 40];
        let (_, completed) = queue.enter(session, &[*wr; 40], &mut wcs, 40, WAIT_NS)?;
        ensure!(completed == 40, "{completed} completions of 40");
        if wcs.iter().any(|wc| wc.status != 0) {
            return Ok(wcs.iter().map(|wc| wc.status).collect());
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    bail!("none fails")
}
