// SPDX-License-Identifier: MIT OR Apache-2.0

//! How queue pairs begin and end while their two nodes use them: no request fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, SendWr, Vqp, Wc, WcStatus};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

use super::{queue_pairs, BOUND};
use crate::traffic::{Traffic, SLICE};
use crate::world::{connect, counter, full_access, gid, wait_for, Link};

/// Regions, so that a queue pair takes a while until it is used: the device is told of them first.
const REGIONS: usize = 200;
/// Rounds in which both ends ask, the second later in each.
const ROUNDS: u64 = 3;
/// Superseded queue pairs are taken out within this time.
const UPKEEP: Duration = Duration::from_millis(2500);
/// Bytes of a long READ.
const LONG: usize = 16 << 20;
/// Most VQPs that have a READ under way when their queue pair is closed.
const MOST_READERS: usize = 2048;
/// How long those READs take at least, if they go on as fast as one alone: the pool closes after
/// five seconds, and gives up a peer after three more.
const UNDER_WAY: Duration = Duration::from_secs(12);
/// A peer that is silent for less time after the close began is not given up.
const GIVEN_UP: Duration = Duration::from_millis(3500);
/// How many times as many READs there are in each try.
const TRIES: [usize; 4] = [1, 2, 4, 8];

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    report.check("both ends ask at once, and no request fails", || {
        (0..ROUNDS).try_for_each(|round| both_ask(round, seed))
    });
    report.check(
        "a queue pair is closed once long requests have ended",
        long_ones_end,
    );
}

/// An idle VQP has the queue pair that it used last, closed or not, so there must be none.
fn all_closed() -> Result<()> {
    let closed = wait_for("all are closed", BOUND, || Ok(counter("rc_queues")? == 0));
    let (ends, wanted) = (counter("rc_queues")?, counter("rc_wants")?);
    let (out, back) = (queue_pairs(0, 1)?, queue_pairs(1, 0)?);
    closed.with_context(|| format!("{ends} ends, {wanted} wanted; {out} are up, and {back}"))
}

fn both_ask(round: u64, seed: u64) -> Result<()> {
    all_closed()?;
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let regions = (0..REGIONS).map(|_| MemoryRegion::allocate(&near, 4096, full_access()));
    let _regions = regions.collect::<Result<Vec<_>, _>>()?;
    let (here, there) = (
        MemoryRegion::allocate(&near, SLICE, full_access())?,
        MemoryRegion::allocate(&far, SLICE, full_access())?,
    );
    let mut out = Traffic::new(&near, 1, there.remote(), seed)?;
    let mut back = Traffic::new(&far, 0, here.remote(), seed + 1)?;
    let stop = AtomicBool::new(false);
    let lost = counter("rc_lost")?;
    let asked = thread::scope(|scope| {
        let threads = [&mut out, &mut back]
            .map(|traffic| scope.spawn(|| traffic.until(&stop, Duration::ZERO)));
        let asked = (|| {
            far.pool_pin(gid(0))?;
            thread::sleep(Duration::from_millis(5 * round));
            near.pool_pin(gid(1))?;
            wait_for("it is up", BOUND, || {
                let is_up = |device: &Device| -> Result<bool> {
                    Ok(device
                        .pool_peers()?
                        .iter()
                        .any(|peer| peer.age_ns.is_some()))
                };
                Ok(is_up(&near)? && is_up(&far)?)
            })?;
            thread::sleep(patient(UPKEEP));
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        let ended = threads.map(|thread| thread.join().map_err(|_| anyhow!("it panicked"))?);
        ended.into_iter().collect::<Result<Vec<_>>>().and(asked)
    });
    near.pool_unpin(gid(1))?;
    far.pool_unpin(gid(0))?;
    asked?;
    ensure!(counter("rc_lost")? == lost, "a queue pair broke");
    drop((out, back));
    all_closed()
}

/// A VQP with one READ. It could not have several under way: a long one is cut into pieces, and
/// the next waits until they are posted.
struct Reader {
    vqp: Vqp,
    has_ended: bool,
}

impl Reader {
    fn begin(near: &Device, wr: SendWr<'_>) -> Result<Self> {
        let mut vqp = connect(near, 1, 1)?;
        ensure!(vqp.post_send(&[wr.signaled()])? == 1, "a READ is not taken");
        Ok(Self {
            vqp,
            has_ended: false,
        })
    }

    /// Waits that long at most for the READ to end, and sees that it ended well.
    fn has_ended(&mut self, patience: Duration) -> Result<bool> {
        let mut wcs = [Wc::default()];
        if !self.has_ended {
            let least = usize::from(!patience.is_zero());
            let progress = self.vqp.enter(&[], &mut wcs, least, patience)?;
            self.has_ended = progress.completed == 1;
            let status = wcs[0].status();
            ensure!(
                !self.has_ended || status == Some(WcStatus::Success),
                "a READ ended with {status:?}"
            );
        }
        Ok(self.has_ended)
    }
}

/// How many of the READs have not ended.
fn under_way(readers: &mut [Reader]) -> Result<usize> {
    let ended = readers
        .iter_mut()
        .map(|reader| reader.has_ended(Duration::ZERO));
    let ended = ended.collect::<Result<Vec<_>>>()?;
    Ok(ended.iter().filter(|has_ended| !**has_ended).count())
}

/// Waits until the queue pair is being closed, and for longer than the pool waits for a peer that
/// is silent. It must still be there if READs are under way then; answers whether any is.
fn outlasts(readers: &mut [Reader]) -> Result<bool> {
    wait_for("the close begins", BOUND, || Ok(queue_pairs(0, 1)? == 0))?;
    thread::sleep(GIVEN_UP);
    let ends = counter("rc_queues")?;
    let left = under_way(readers)?;
    ensure!(ends != 0 || left == 0, "it is closed under {left} READs");
    Ok(left != 0)
}

/// READs that are under way when the pool closes their queue pair, and for longer than it waits
/// for a peer that is silent.
fn long_ones_end() -> Result<()> {
    for times in TRIES {
        if close_under_reads(times)? {
            return Ok(());
        }
        // The first READ was slower than those that followed.
    }
    bail!("no READ was under way long enough after the close began")
}

/// Has a queue pair closed that as many READs use as take long enough, times so many. Answers
/// whether they did.
fn close_under_reads(times: usize) -> Result<bool> {
    all_closed()?;
    let near = Device::open_on(0)?;
    near.pool_pin(gid(1))?;
    let mut link = Link::new(1, LONG, 4)?;
    wait_for("requests go by RC", BOUND, || {
        let chains = counter("rc_chains")?;
        link.works(1)?;
        Ok(counter("rc_chains")? > chains)
    })?;
    let local = MemoryRegion::allocate(&near, LONG, full_access())?;
    let read = || Ok::<_, anyhow::Error>(SendWr::read(local.slice(0..LONG)?, link.remote.remote()));
    let mut first = connect(&near, 1, 1)?;
    let start = Instant::now();
    first.read(local.slice(0..LONG)?, link.remote.remote())?;
    let reads = UNDER_WAY.as_nanos().div_ceil(start.elapsed().as_nanos()) as usize;
    let reads = reads.saturating_mul(times).min(MOST_READERS);
    let (closed, lost) = (counter("rc_closed")?, counter("rc_lost")?);
    let readers = (0..reads).map(|_| Reader::begin(&near, read()?));
    let mut readers = readers.collect::<Result<Vec<_>>>()?;
    near.pool_unpin(gid(1))?;
    let has_outlasted = outlasts(&mut readers)?;
    for reader in &mut readers {
        ensure!(reader.has_ended(patient(BOUND))?, "a READ does not end");
    }
    println!("# {reads} READs took {} ms", start.elapsed().as_millis());
    drop((readers, first, link));
    all_closed()?;
    ensure!(counter("rc_closed")? > closed, "it was not closed");
    ensure!(counter("rc_lost")? == lost, "it broke");
    Ok(has_outlasted)
}
