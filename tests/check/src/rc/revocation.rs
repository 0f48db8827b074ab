// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions that go while peers use them: their requests end well or are refused,
//! the queue pair that all share stays, and memory goes when the last request has
//! ended. A peer that does not answer loses its queue pair first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use weft_core::mr::LEASE_NS;
use weft_core::rc::BUDGET_BYTES;
use weft_shim::{Device, Error, MemoryRegion, Remote, SendWr, Vqp, Wc, WcStatus};

use super::blocks::first_end;
use super::pins::wait_until_up;
use crate::rng::Rng;
use crate::traffic::{Traffic, SLICE};
use crate::world::{connect, counter, full_access, system, timely, wait_for, Holder, Link};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

/// Nothing takes longer, on the slowest machine.
const BOUND: Duration = Duration::from_secs(30);
const ROUNDS: usize = 24;
const WRITERS: usize = 3;
/// Requests of a writer, as long as what may be outstanding on one queue pair
/// together: the last of them wait behind all others.
const DEEP: usize = 16;
const BYTES: usize = 64 << 10;
/// A region whose peer is silent goes within this time: its lease, and time to end the
/// queue pair.
const SILENT_BOUND: Duration = Duration::from_nanos(4 * LEASE_NS);
const MANY: usize = 200;
/// Notices that they may cost: one for each would be twice `MANY`.
const FEW: i64 = MANY as i64 / 2;

const SILENCE: &str =
    "modprobe -a sch_ingress cls_u32 act_gact && tc -n n1 qdisc add dev v1 clsact && \
     tc -n n1 filter add dev v1 ingress protocol ip u32 match ip dport 4793 0xffff action drop";
const SPEECH: &str = "tc -n n1 qdisc del dev v1 clsact";

/// As many as may be outstanding on one queue pair.
const BACKLOG: usize = BUDGET_BYTES as usize / BYTES;
/// Slows down the WRITEs that node 0 sends by RC: a backlog takes 2.1 s, longer than a lease.
/// Notices go by DC and are as fast as ever; so are node 0's answers, because its peer, which
/// is idle, READs now and then to see whether the queue pair works. A filter knows WRITEs by the
/// opcode behind the headers of IP and UDP: 6 to 11.
const SLOW: &str = "modprobe -a sch_prio sch_netem cls_u32 && \
     tc qdisc add dev v0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 && \
     tc qdisc add dev v0 parent 1:2 netem rate 8mbit limit 100000 && \
     tc filter add dev v0 parent 1: protocol ip u32 match ip dport 4791 0xffff match u8 0x06 0xfe at 28 flowid 1:2 && \
     tc filter add dev v0 parent 1: protocol ip u32 match ip dport 4791 0xffff match u8 0x08 0xfc at 28 flowid 1:2";
const FAST: &str = "tc qdisc del dev v0 root";

/// Regions go under deep queues of several VQPs, again and again.
pub fn under_load(seed: u64) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
    let mut traffic = Traffic::new(&near, 1, region.remote(), seed)?;
    let (stop, lost) = (AtomicBool::new(false), counter("rc_lost")?);
    thread::scope(|scope| {
        let bystander = scope.spawn(|| traffic.until(&stop, Duration::ZERO));
        let attempts = (0..ROUNDS).try_for_each(|round| pulled_away(&far, seed + round as u64));
        stop.store(true, Ordering::Relaxed);
        let noticed = bystander.join().map_err(|_| anyhow!("it panicked"))?;
        attempts.and(noticed)
    })?;
    let broken = counter("rc_lost")? - lost;
    ensure!(broken == 0, "{broken} queue pairs broke");
    Ok(())
}

/// A region goes while several VQPs WRITE to it and READ from it as fast as they
/// can.
fn pulled_away(far: &Device, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let region = MemoryRegion::allocate(far, BYTES, full_access())?;
    let remote = region.remote();
    let pause = Duration::from_micros(rng.below(20_000) as u64);
    let at_work = AtomicUsize::new(0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let at_work = &at_work;
                scope.spawn(move || until_refused(remote, n % 2 == 0, at_work))
            })
            .collect();
        wait_for("all are at work", BOUND, || {
            Ok(at_work.load(Ordering::Relaxed) == WRITERS)
        })?;
        thread::sleep(pause);
        drop(region);
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().map_err(|_| anyhow!("it panicked"))?)
    })
}

/// Counts itself in `at_work` when its first requests have ended well.
fn until_refused(remote: Remote, reads: bool, at_work: &AtomicUsize) -> Result<()> {
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, BYTES, full_access())?;
    let mut vqp = connect(&device, 1, 2 * DEEP as u32)?;
    let slice = local.slice(0..BYTES)?;
    let wr = match reads {
        true => SendWr::read(slice, remote).signaled(),
        false => SendWr::write(slice, remote).signaled(),
    };
    let start = Instant::now();
    let mut is_at_work = false;
    loop {
        ensure!(start.elapsed() < patient(BOUND), "it is never refused");
        let mut wcs = [Wc::default(); 2 * DEEP];
        let done = vqp.enter(&[wr; DEEP], &mut wcs, 1, BOUND)?.completed;
        let failed = wcs[..done].iter().find_map(|wc| match wc.status() {
            Some(WcStatus::Success) => None,
            other => Some(other),
        });
        match failed {
            None if done > 0 && !is_at_work => {
                at_work.fetch_add(1, Ordering::Relaxed);
                is_at_work = true;
            }
            None => {}
            Some(Some(WcStatus::RemAccessErr)) => return Ok(()),
            Some(other) => bail!("a request ended with {other:?}"),
        }
    }
}

/// Many regions that a peer knows go at once: few notices, and all memory.
pub fn many() -> Result<()> {
    let near = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&near, 4096, full_access())?;
    let lost = counter("rc_lost")?;
    let holder = Holder::with_others(MANY)?;
    let mut vqp = connect(&near, 1, 16)?;
    for remote in &holder.others {
        vqp.write(local.slice(0..8)?, *remote)?;
    }
    let (notices, full) = (counter("rc_notices")?, counter("mrs")?);
    let remotes = holder.others.clone();
    holder.kill()?;
    let others = i64::try_from(MANY)?;
    let gone = wait_for("all of them go", BOUND, || {
        Ok(counter("mrs")? < full - others)
    });
    gone.with_context(|| format!("{:?} regions of {full}", counter("mrs")))?;
    let notices = counter("rc_notices")? - notices;
    println!("# {MANY} regions went with {notices} notices");
    ensure!(notices < FEW, "{MANY} regions cost {notices} notices");
    for remote in remotes {
        let status = refusal(&near, &local, remote)?;
        ensure!(status == WcStatus::RemAccessErr, "it is {status:?}");
    }
    ensure!(counter("rc_lost")? == lost, "a queue pair broke");
    Ok(())
}

fn refusal(near: &Device, local: &MemoryRegion, remote: Remote) -> Result<WcStatus> {
    let mut vqp: Vqp = connect(near, 1, 4)?;
    match vqp.write(local.slice(0..8)?, remote) {
        Err(Error::Completion(error)) => error.status.ok_or_else(|| anyhow!("unknown")),
        other => bail!("it is {other:?}"),
    }
}

/// A link none of whose regions has the end of a block in it: a request across that is cut,
/// and its last piece may have to be posted when the region has gone.
fn uncut_link() -> Result<Link> {
    let is_uncut = |region: &MemoryRegion| first_end(region) >= BYTES;
    let mut others = Vec::new();
    loop {
        let link = Link::new(1, BYTES, BACKLOG as u32)?;
        if is_uncut(&link.local) && is_uncut(&link.remote) {
            return Ok(link);
        }
        // Held meanwhile, so that the next one is elsewhere.
        others.push(link);
    }
}

/// Requests that were posted before a region went take longer than a lease: it waits for
/// them, and nothing breaks.
pub fn slow() -> Result<()> {
    let mut link = uncut_link()?;
    link.works(1)?;
    let lost = counter("rc_lost")?;
    let other = MemoryRegion::allocate(&Device::open_on(1)?, BYTES, full_access())?;
    let region = std::mem::replace(&mut link.remote, other);
    let wr = SendWr::write(link.local.slice(0..BYTES)?, region.remote()).signaled();
    system(SLOW)?;
    let start = Instant::now();
    let posted = link.vqp.post_send(&[wr; BACKLOG]);
    drop(region);
    let took = start.elapsed();
    system(FAST)?;
    ensure!(posted? == BACKLOG, "there was no room for all");
    let broken = counter("rc_lost")? - lost;
    ensure!(broken == 0, "{broken} queue pairs broke after {took:?}");
    ensure!(
        took > Duration::from_nanos(LEASE_NS),
        "it took {took:?}: the network is too fast"
    );
    let mut wcs = [Wc::default(); BACKLOG];
    let done = link
        .vqp
        .enter(&[], &mut wcs, BACKLOG, patient(BOUND))?
        .completed;
    let good = wcs[..done]
        .iter()
        .all(|wc| wc.status() == Some(WcStatus::Success));
    ensure!(
        done == BACKLOG && good,
        "{done} requests have ended: {wcs:?}"
    );
    Ok(())
}

/// Notices do not arrive: the region goes, and the queue pair before it.
pub fn silent(report: &mut Report) {
    report.check("a region that no peer answers for goes", || {
        wait_until_up()?;
        let mut link = Link::new(1, 4096, 16)?;
        link.works(1)?;
        let lost = counter("rc_lost")?;
        system(SILENCE)?;
        let other = MemoryRegion::allocate(&Device::open_on(1)?, 4096, full_access())?;
        let region = std::mem::replace(&mut link.remote, other);
        let gone = timely(SILENT_BOUND, || drop(region));
        let broken = counter("rc_lost")? - lost;
        system(SPEECH)?;
        ensure!(broken != 0, "the queue pair is still there");
        gone
    });
    report.check("new VQPs work, and RC comes back", || {
        wait_for("they work", BOUND, || {
            let tried = [(0, 1), (1, 0)].into_iter().try_for_each(|(from, to)| {
                Link::between(from, to, 4096, 4).and_then(|mut link| link.works(2))
            });
            Ok(tried.is_ok())
        })?;
        wait_until_up()
    });
}
