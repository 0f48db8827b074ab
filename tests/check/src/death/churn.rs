// SPDX-License-Identifier: MIT OR Apache-2.0

//! 10,000 connections that come and go.

use anyhow::{ensure, Context, Result};
use weft_core::uapi::{Pod, SendWr, Sge, Wc, OP_WRITE, SEND_SIGNALED};

use weft_testkit::pace::{keeps_freed_memory, skip};

use crate::packets::memory_kib;
use crate::raw::{request, Memory, Session};
use crate::world::{gid, Baseline, Holder};
use weft_testkit::report::Report;

const TIMES: usize = 10_000;
/// So many of them move data too.
const EVERY: usize = 16;
const WAIT_NS: u64 = 10_000_000_000;
/// Kernel memory that may stay: caches fill up. A leak of 1 KiB each is more.
const SLACK_KIB: i64 = 8 << 10;

/// Opens, connects and closes, again and again.
pub fn run(report: &mut Report) {
    if let Err(error) = churn(report) {
        report.check("all of it could be tried", || Err(error));
    }
}

fn churn(report: &mut Report) -> Result<()> {
    let holder = Holder::start()?;
    let memory = Memory::map(4096)?;
    let baseline = Baseline::take(2)?;
    report.check("500 to warm up", || {
        (0..500).try_for_each(|n| once(n, &memory, &holder))
    });
    baseline.is_back()?;
    let before = kernel_kib()?;
    report.check("10,000 connections come and go", || {
        (0..TIMES).try_for_each(|n| once(n, &memory, &holder).with_context(|| format!("time {n}")))
    });
    report.check("they leave nothing behind", || baseline.is_back());
    let name = "the kernel's memory has not grown";
    if keeps_freed_memory() {
        skip(name, "KASAN keeps freed memory; kmemleak looks for leaks");
        return holder.kill();
    }
    report.check(name, || {
        let grown = kernel_kib()? - before;
        println!("# unreclaimable kernel memory has grown by {grown} KiB");
        ensure!(grown < SLACK_KIB, "by {grown} KiB");
        Ok(())
    });
    holder.kill()
}

fn once(n: usize, memory: &Memory, holder: &Holder) -> Result<()> {
    let session = Session::open(0)?;
    let queue = session.queue(16, 0)?;
    session.qconnect(queue.vqp, gid(1))?;
    if n % EVERY != 0 {
        return Ok(());
    }
    let lkey = session.register(memory, 0, 4096, 1)?.lkey;
    let local = Sge {
        addr: memory.addr(),
        len: 4096,
        lkey,
    };
    let wr = SendWr {
        flags: SEND_SIGNALED,
        ..request(OP_WRITE, local, holder.remote.addr, holder.remote.rkey)
    };
    let mut wcs = [Wc::zeroed()];
    let (_, done) = queue.enter(&session, &[wr], &mut wcs, 1, WAIT_NS)?;
    ensure!(
        done == 1 && wcs[0].status == 0,
        "{done} completions, status {}",
        wcs[0].status
    );
    // Half of those that move data close with requests on their way.
    if n % (2 * EVERY) == 0 {
        queue.enter(&session, &[wr; 8], &mut [], 0, 0)?;
    }
    Ok(())
}

/// What the kernel holds and cannot give back: slabs, stacks, vmalloc.
fn kernel_kib() -> Result<i64> {
    let held = ["SUnreclaim", "VmallocUsed", "Percpu"];
    let kib = held.into_iter().map(memory_kib).sum::<Result<u64>>()?;
    Ok(i64::try_from(kib)?)
}
