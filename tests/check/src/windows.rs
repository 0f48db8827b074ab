// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows: further keys to a region, each with rights and an end of its own. All of it
//! by DC, then by RC. Two nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context as _, Result};
use nix::errno::Errno;
use weft_core::uapi::{self, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ};
use weft_shim::{Access, Device, Error, MemoryRegion, MemoryWindow, Remote, SendWr, WcStatus};

use crate::raw::{Memory, Session};
use crate::rc::{with_rc, BLOCK};
use crate::rng::Rng;
use crate::world::{connect, counter, wait_for, Baseline, Transport};
use weft_testkit::report::Report;
use WcStatus::{RemAccessErr, Success};

const BYTES: usize = 64 << 10;
/// Windows of one region.
const MANY: usize = 64;
/// Time in which the threads of a check get to work, on the slowest machine.
const BOUND: Duration = Duration::from_secs(60);

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(2)) else {
        return;
    };
    refusals(report);
    report.check("windows pin and charge no page again", || pins(&baseline));
    report.check("a session that ends with windows leaves nothing", || {
        abandoned()?;
        baseline.is_back()
    });
    by(report, Transport::Usual, seed);
    report.check("what went by DC leaves nothing behind", || {
        baseline.is_back()
    });
    with_rc(report, 2, |report| by(report, Transport::Rc, seed));
}

fn by(report: &mut Report, transport: Transport, seed: u64) {
    let way = match transport {
        Transport::Usual => "by DC",
        Transport::Rc => "by RC",
    };
    let mut check = |name: &str, body: &dyn Fn() -> Result<()>| {
        transport.check(report, &format!("{name}, {way}"), body);
    };
    check("a window shows what its region does not", &rights);
    check("it has the bytes of its range, and no other", &|| {
        ranges(seed)
    });
    check("one key ends, and the others stay", &one_ends);
    check(
        "it ends under load, and nobody else notices",
        &ends_under_load,
    );
}

/// A region on node 1 that only its session may use.
fn region() -> Result<Arc<MemoryRegion>> {
    let far = Device::open_on(1)?;
    let region = MemoryRegion::allocate(&far, BYTES, Access::LOCAL_WRITE)?;
    Ok(Arc::new(region))
}

/// Memory of a session on node 0.
struct Near {
    device: Device,
    local: MemoryRegion,
}

impl Near {
    fn new(bytes: usize) -> Result<Self> {
        let device = Device::open_on(0)?;
        let local = MemoryRegion::allocate(&device, bytes, Access::LOCAL_WRITE)?;
        Ok(Self { device, local })
    }

    /// How a request ends that is alone on its VQP.
    fn outcome(&self, request: SendWr<'_>) -> Result<WcStatus> {
        match connect(&self.device, 1, 4)?.run(request) {
            Ok(_) => Ok(WcStatus::Success),
            Err(Error::Completion(error)) => error.status.context("an unknown status"),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&self, len: usize, from: Remote) -> Result<WcStatus> {
        self.outcome(SendWr::read(self.local.slice(0..len)?, from))
    }

    fn write(&self, len: usize, to: Remote) -> Result<WcStatus> {
        self.outcome(SendWr::write(self.local.slice(0..len)?, to))
    }
}

fn is(got: WcStatus, wanted: WcStatus, what: &str) -> Result<()> {
    ensure!(got == wanted, "{what}: {got:?}");
    Ok(())
}

/// A window alone decides what peers may do by its key, whatever its region lets them.
fn rights() -> Result<()> {
    let (near, region) = (Near::new(4096)?, region()?);
    let bind = |rights| MemoryWindow::bind(&region, 0..BYTES, rights);
    let (readable, writable) = (bind(Access::REMOTE_READ)?, bind(Access::REMOTE_WRITE)?);
    region.store_u64(8, 77)?;
    is(
        near.read(16, readable.remote())?,
        Success,
        "a READ by the first",
    )?;
    ensure!(near.local.load_u64(8)? == 77, "other bytes came");
    near.local.store_u64(0, 78)?;
    is(
        near.write(8, writable.remote())?,
        Success,
        "a WRITE by the second",
    )?;
    ensure!(region.load_u64(0)? == 78, "the word did not arrive");
    is(
        near.write(8, readable.remote())?,
        RemAccessErr,
        "a WRITE by the first",
    )?;
    is(
        near.read(8, writable.remote())?,
        RemAccessErr,
        "a READ by the second",
    )?;
    is(
        near.read(8, region.remote())?,
        RemAccessErr,
        "a READ by the region's key",
    )?;
    is(
        near.write(8, region.remote())?,
        RemAccessErr,
        "a WRITE by it",
    )?;
    let adds = SendWr::fetch_add(near.local.slice(8..16)?, writable.remote(), 1);
    is(near.outcome(adds)?, RemAccessErr, "an atomic by the second")?;
    let counting = bind(Access::REMOTE_ATOMIC)?;
    let adds = SendWr::fetch_add(near.local.slice(8..16)?, counting.remote(), 1);
    is(near.outcome(adds)?, Success, "an atomic by a third")?;
    ensure!(region.load_u64(0)? == 79, "it was not added to");
    Ok(())
}

/// Windows that begin and end anywhere, across pages and the device's blocks.
fn ranges(seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let bytes = 2 * BLOCK + 9 * 4096;
    let (near, far) = (Near::new(bytes)?, Device::open_on(1)?);
    let region = MemoryRegion::allocate(&far, bytes, Access::LOCAL_WRITE)?;
    let all = rng.bytes(bytes);
    region.copy_in(0, &all)?;
    let region = Arc::new(region);
    for len in [1, 8, 100, 4096, 70_000, BLOCK + 5] {
        let from = 1 + rng.below(bytes - len - 1);
        let window = MemoryWindow::bind(&region, from..from + len, Access::REMOTE_READ)?;
        is(near.read(len, window.remote())?, Success, "all of it")?;
        let mut got = vec![0; len];
        near.local.copy_out(0, &mut got)?;
        ensure!(got == all[from..from + len], "other bytes came, of {len}");
        let before = Remote {
            addr: window.remote().addr - 1,
            ..window.remote()
        };
        is(near.read(1, before)?, RemAccessErr, "the byte before it")?;
        is(
            near.read(len + 1, before)?,
            RemAccessErr,
            "it and the byte before",
        )?;
        let behind = window.remote().offset(len as u64);
        is(near.read(1, behind)?, RemAccessErr, "the byte behind it")?;
        is(
            near.read(len + 1, window.remote())?,
            RemAccessErr,
            "and one more",
        )?;
    }
    Ok(())
}

/// Of many windows each one ends by itself.
fn one_ends() -> Result<()> {
    let (near, region) = (Near::new(4096)?, region()?);
    let mut windows = (0..MANY)
        .map(|_| MemoryWindow::bind(&region, 0..BYTES, Access::REMOTE_READ))
        .collect::<Result<Vec<_>, _>>()?;
    for at in [MANY / 2, 0] {
        let gone = windows.remove(at).remote();
        is(
            near.read(8, gone)?,
            RemAccessErr,
            "a READ by a key that has gone",
        )?;
        for window in [windows.first(), windows.last()].into_iter().flatten() {
            is(near.read(8, window.remote())?, Success, "a READ by another")?;
        }
    }
    drop(windows);
    is(
        near.read(8, region.remote())?,
        RemAccessErr,
        "a READ by the region's key",
    )?;
    // The region is as before: a new window works.
    let window = MemoryWindow::bind(&region, 0..8, Access::REMOTE_READ)?;
    is(
        near.read(8, window.remote())?,
        Success,
        "a READ by a new one",
    )
}

/// One peer is cut off while it and another one write as fast as they can.
fn ends_under_load() -> Result<()> {
    let region = region()?;
    let bind = |range| MemoryWindow::bind(&region, range, Access::REMOTE_WRITE);
    let (first, second) = (bind(0..BYTES / 2)?, bind(BYTES / 2..BYTES)?);
    let stop = AtomicBool::new(false);
    let (cut, kept) = (first.remote(), second.remote());
    thread::scope(|scope| {
        let cut_off = scope.spawn(|| written_until(cut, &AtomicBool::new(false)));
        let bystander = scope.spawn(|| written_until(kept, &stop));
        let at_work = wait_for("both write", BOUND, || {
            Ok(region.load_u64(0)? > 0 && region.load_u64(BYTES / 2)? > 0)
        });
        drop(first);
        // By now nothing of the first writes any more: the word is ours.
        let last = region.load_u64(0);
        thread::sleep(Duration::from_millis(100));
        let still = region.load_u64(0);
        let cut_off = cut_off.join().map_err(|_| anyhow!("it panicked"));
        stop.store(true, Ordering::Relaxed);
        let noticed = bystander.join().map_err(|_| anyhow!("it panicked"));
        at_work?;
        ensure!(last? == still?, "it was written after the window had ended");
        let (status, _) = cut_off??;
        ensure!(
            status == RemAccessErr,
            "the one cut off ended with {status:?}"
        );
        let (status, words) = noticed??;
        ensure!(status == Success, "the other ended with {status:?}");
        ensure!(region.load_u64(BYTES / 2)? == words, "a word was lost");
        Ok(())
    })
}

/// Writes words that grow until it is told to stop, or refused. Answers how the last request
/// ended, and the last word.
fn written_until(to: Remote, stop: &AtomicBool) -> Result<(WcStatus, u64)> {
    let near = Near::new(4096)?;
    let mut vqp = connect(&near.device, 1, 4)?;
    let mut word = 0;
    while !stop.load(Ordering::Relaxed) {
        word += 1;
        near.local.store_u64(0, word)?;
        match vqp.write(near.local.slice(0..8)?, to) {
            Ok(_) => {}
            Err(Error::Completion(error)) => {
                return Ok((error.status.context("an unknown status")?, word));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((Success, word))
}

/// Pages are pinned once, and count once against `RLIMIT_MEMLOCK`.
fn pins(baseline: &Baseline) -> Result<()> {
    let region = region()?;
    let pinned = || Ok::<_, anyhow::Error>((counter("pinned_pages")?, charged()?));
    let (before, mrs) = (pinned()?, counter("mrs")?);
    let windows = (0..MANY)
        .map(|_| MemoryWindow::bind(&region, 0..BYTES, Access::REMOTE_READ))
        .collect::<Result<Vec<_>, _>>()?;
    let now = pinned()?;
    ensure!(now == before, "pages were {before:?} before, are {now:?}");
    let count = counter("mrs")? - mrs;
    ensure!(count == MANY as i64, "{count} windows for {MANY}");
    drop((windows, region));
    baseline.is_back()
}

/// The pinned memory that this process is charged with, in KiB.
fn charged() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("no VmPin")?.parse()?)
}

/// A session closes without having ended its windows, nor their region.
fn abandoned() -> Result<()> {
    let (session, memory) = (Session::open(0)?, Memory::map(BYTES)?);
    let region = session.register(&memory, 0, BYTES as u64, ACCESS_LOCAL_WRITE)?;
    for at in 0..MANY as u64 {
        session.bind_window(&region, at, 8, ACCESS_REMOTE_READ)?;
    }
    Ok(())
}

fn refusals(report: &mut Report) {
    report.check("a region stays as long as it has windows", || {
        let (session, memory) = (Session::open(0)?, Memory::map(BYTES)?);
        let region = session.register(&memory, 0, BYTES as u64, ACCESS_LOCAL_WRITE)?;
        let bind = || session.bind_window(&region, 0, 8, ACCESS_REMOTE_READ);
        let (first, second) = (bind()?, bind()?);
        for window in [first, second] {
            let refused = session.deregister(region.lkey);
            ensure!(refused == Err(Errno::EBUSY), "it is {refused:?}");
            session.deregister(window.rkey)?;
        }
        let again = session.deregister(first.rkey);
        ensure!(
            again == Err(Errno::ENOENT),
            "a window ends twice: {again:?}"
        );
        session.deregister(region.lkey)?;
        let none = bind();
        ensure!(
            none.is_err_and(|errno| errno == Errno::ENOENT),
            "it still has windows"
        );
        Ok(())
    });
    report.check("windows that cannot be are refused", odd_windows);
}

fn odd_windows() -> Result<()> {
    let (session, memory) = (Session::open(0)?, Memory::map(BYTES)?);
    let len = BYTES as u64 - 8192;
    let region = session.register(&memory, 4096, len, ACCESS_LOCAL_WRITE)?;
    let read_only = session.register(&memory, 0, BYTES as u64, ACCESS_REMOTE_READ)?;
    let window = session.bind_window(&region, 0, len, uapi::ACCESS_REMOTE_WRITE)?;
    let of_window = uapi::MrReg {
        lkey: window.rkey,
        ..region
    };
    let tries = [
        (&region, 0, 0, ACCESS_REMOTE_READ),
        (&region, 0, len + 1, ACCESS_REMOTE_READ),
        (&region, len, 1, ACCESS_REMOTE_READ),
        (&region, u64::MAX, 2, ACCESS_REMOTE_READ),
        (&region, 8, u64::MAX, ACCESS_REMOTE_READ),
        (&region, 0, 8, 0),
        (&region, 0, 8, ACCESS_LOCAL_WRITE),
        (&region, 0, 8, ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE),
        (&region, 0, 8, uapi::ACCESS_RELAXED_ORDERING),
        (&region, 0, 8, ACCESS_REMOTE_READ | (1 << 30)),
        (&read_only, 0, 8, uapi::ACCESS_REMOTE_WRITE),
        (&read_only, 0, 8, uapi::ACCESS_REMOTE_ATOMIC),
        (&of_window, 0, 8, ACCESS_REMOTE_READ),
    ];
    for (region, at, len, access) in tries {
        let refused = session.bind_window(region, at, len, access).map(drop);
        ensure!(
            refused == Err(Errno::EINVAL),
            "{len} bytes at {at} with {access:#x}: {refused:?}"
        );
    }
    let other = Session::open(0)?;
    for key in [region.lkey, window.rkey, 0] {
        let named = uapi::MrReg {
            lkey: key,
            ..region
        };
        let refused = other
            .bind_window(&named, 0, 8, ACCESS_REMOTE_READ)
            .map(drop);
        ensure!(
            refused == Err(Errno::ENOENT),
            "another session: {refused:?}"
        );
    }
    Ok(())
}
