// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node's device goes while its processes ask a meta server on another machine: the
//! connection to the server is the device's, and calls use it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Result};
use weft_shim::{Device, Error};
use weft_testkit::report::Report;

use super::{is_gone, ADD, BACK, DELETE};
use crate::world::{counter, gid, system, timely, wait_for};

/// How often the device goes while node 0 keeps its server.
const TIMES: usize = 5;
/// How often at most: a busy host may hold up the machines for longer than a node waits for its
/// server.
const MOST_TIMES: usize = 12;
/// Threads that look node 0 up at each of the nodes.
const THREADS: usize = 3;
/// All of that takes no longer.
const LONGEST: Duration = Duration::from_secs(300);
/// Between two tries that come to nothing.
const PAUSE: Duration = Duration::from_millis(2);
/// Answers that a node has had before the other one's device goes.
const WARM: u64 = 20;

/// What node 0 and node 1 have been answered.
#[derive(Default)]
struct Answers {
    counts: [AtomicU64; 2],
    /// Look-ups of node 0 that had no answer because its connection to the server was broken.
    unanswered: AtomicU64,
}

impl Answers {
    /// Waits for some more of both.
    fn come(&self) -> Result<()> {
        let before = self.now();
        wait_for("look-ups are answered", BACK, || {
            let mut both = self.now().into_iter().zip(before);
            Ok(both.all(|(now, before)| now >= before + WARM))
        })
    }

    fn now(&self) -> [u64; 2] {
        [0, 1].map(|node| self.counts[node].load(Ordering::Relaxed))
    }

    fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }
}

/// All of it. `server` answers on another machine.
pub fn run(report: &mut Report, server: SocketAddr) {
    let ready = report.need("both nodes are published elsewhere", || {
        Device::open_on(0)?.meta_add(server)?;
        published()
    });
    if ready.is_none() {
        return;
    }
    let (stop, answers) = (AtomicBool::new(false), Answers::default());
    thread::scope(|scope| {
        let (stop, answers) = (&stop, &answers);
        let ask = |node: usize| scope.spawn(move || asks(node, stop, answers));
        let threads: Vec<_> = (0..2 * THREADS).map(|n| (n % 2, ask(n % 2))).collect();
        report.check_within(
            "a device goes, again and again, under look-ups",
            LONGEST,
            || again_and_again(answers),
        );
        stop.store(true, Ordering::Relaxed);
        for (node, thread) in threads {
            report.check(
                &format!("a thread of node {node} had nothing but answers"),
                || thread.join().map_err(|_| anyhow!("it panicked"))?,
            );
        }
    });
}

fn published() -> Result<()> {
    wait_for("two nodes are published", BACK, || {
        Ok(counter("nodes_published")? == 2)
    })
}

/// Times when node 0 loses its server do not count, so this fails if the other node's going is the
/// reason.
fn again_and_again(answers: &Answers) -> Result<()> {
    let mut kept = 0;
    for _ in 0..MOST_TIMES {
        let before = answers.unanswered();
        goes_and_comes(answers)?;
        kept += usize::from(answers.unanswered() == before);
        if kept == TIMES {
            return Ok(());
        }
    }
    bail!("node 0 kept its server {kept} of {MOST_TIMES} times");
}

fn goes_and_comes(answers: &Answers) -> Result<()> {
    answers.come()?;
    timely(BACK, || system(DELETE))??;
    is_gone()?;
    system(ADD)?;
    published()
}

/// Looks node 0 up until it is told to stop. Node 1 may be gone, and says so; node 0 is
/// answered as long as it is connected to the server.
fn asks(node: usize, stop: &AtomicBool, answers: &Answers) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match Device::open_on(node as u32) {
            Ok(device) => ask_on(&device, node, stop, answers)?,
            Err(Error::NoNode(_)) if node == 1 => thread::sleep(PAUSE),
            Err(error) => bail!("opening: {error}"),
        }
    }
    ensure!(answers.now()[node] > 0, "none was answered");
    Ok(())
}

/// The same on one session, until its node is gone.
fn ask_on(device: &Device, node: usize, stop: &AtomicBool, answers: &Answers) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match device.lookup(gid(0)) {
            Ok(_) => drop(answers.counts[node].fetch_add(1, Ordering::Relaxed)),
            Err(Error::NodeGone) if node == 1 => return Ok(()),
            // A new node has no connection to the server yet.
            Err(Error::NoMetaServer | Error::MetaTimeout) if node == 1 => {}
            Err(Error::NoMetaServer | Error::MetaTimeout) if !is_connected(device)? => {
                answers.unanswered.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
            Err(error) => bail!("{error}"),
        }
    }
    Ok(())
}

/// Whether all of its node's connections to the server work.
fn is_connected(device: &Device) -> Result<bool> {
    let servers = device.meta_servers()?;
    Ok(!servers.is_empty() && servers.iter().all(|server| server.connected))
}
