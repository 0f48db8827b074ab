// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tasks of one thread that wait for completions, each on queues of its own in one session.

use std::future::Future;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use tokio::time::timeout;
use weft_shim::{AsyncQueues, Device, MemoryRegion, QpConfig, Queues, QueuesConfig, SendWr, Wc};
use weft_testkit::pace::patient;

use super::SOON;
use crate::world::{full_access, gid};

const TASKS: usize = 8;
const ROUNDS: u64 = 100;
/// So short that most waits are given up.
const IMPATIENT: Duration = Duration::from_micros(20);

/// Tasks that take turns on one thread, each with WRITEs of its own, of which it waits for
/// each, and now and then gives up waiting.
pub fn run() -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let memory = MemoryRegion::allocate(&near, 8 * TASKS, full_access())?;
    let there = MemoryRegion::allocate(&far, 8 * TASKS, full_access())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tasks = (0..TASKS).map(|at| writes(&near, &memory, &there, at));
        let mut all = Vec::new();
        for task in tasks {
            all.push(Box::pin(task));
        }
        together(all).await
    })?;
    for at in 0..TASKS {
        let last = there.load_u64(8 * at)?;
        ensure!(last == ROUNDS, "task {at} came to {last} of {ROUNDS}");
    }
    Ok(())
}

/// Polls all of them until all have ended.
async fn together<F>(mut tasks: Vec<std::pin::Pin<Box<F>>>) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let mut outcome = Ok(());
    std::future::poll_fn(|context| {
        tasks.retain_mut(|task| match task.as_mut().poll(context) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready(result) => {
                if outcome.is_ok() {
                    outcome = result;
                }
                false
            }
        });
        match tasks.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    outcome
}

async fn writes(
    near: &Device,
    memory: &MemoryRegion,
    there: &MemoryRegion,
    at: usize,
) -> Result<()> {
    let queues = Queues::create(near, &QueuesConfig::default())?;
    let mut queues = AsyncQueues::new(queues)?;
    let qp = queues.get_ref().connect(gid(1), 0, &QpConfig::default())?;
    for round in 1..=ROUNDS {
        memory.store_u64(8 * at, round)?;
        let to = there.remote().offset(8 * at as u64);
        let wr = SendWr::write(memory.slice(8 * at..8 * at + 8)?, to);
        let taken = queues.post_send(&[wr.on(&qp).signaled().wr_id(round)])?;
        ensure!(taken == 1, "a WRITE was not taken");
        let mut wcs = [Wc::default(); 4];
        if round % 10 == 0 {
            // What comes while nobody waits is not lost: the next wait, or this one, has it.
            if let Ok(count) = timeout(IMPATIENT, queues.completions(&mut wcs)).await {
                check(&wcs[..count?], round)?;
                continue;
            }
        }
        let waited = timeout(patient(SOON), queues.completions(&mut wcs)).await;
        check(&wcs[..waited.context("no completion")??], round)?;
    }
    Ok(())
}

fn check(wcs: &[Wc], round: u64) -> Result<()> {
    ensure!(wcs.len() == 1, "{} completions of one WRITE", wcs.len());
    ensure!(
        wcs[0].wr_id() == round,
        "of another one: {}",
        wcs[0].wr_id()
    );
    wcs[0].result()?;
    Ok(())
}
