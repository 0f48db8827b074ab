// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a process has of a node is charged to its cgroup: an administrator's limit for
//! that stops the process, and nobody else.

use std::fs;

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::Pid;
use weft_core::dc::Initiator;
use weft_core::uapi::{SendWr as RawSendWr, ACCESS_ALL, MAX_MRS_PER_SESSION, MAX_SEND_WR};
use weft_shim::{Device, MemoryRegion, SendWr, Vqp, VqpConfig};

use crate::isolation::users::{in_child, wait};
use crate::raw::{Memory, Session, MANY_VQPS};
use crate::world::{full_access, gid, system, Baseline, Link};
use weft_testkit::report::Report;

const MOUNT: &str = "/sys/fs/cgroup";
const GROUP: &str = "/sys/fs/cgroup/weft";
/// Bytes of a region: its list of pages, of 8 bytes each, counts.
const REGION: usize = 4 << 20;
const PAGE: usize = 4096;
/// Where nobody listens.
const PORT: u32 = 7;
/// What a process may have in the last check, of which it asks for several times as much.
const LIMIT: u64 = 16 << 20;
/// Of what is expected this part has to be charged at least: a processor is charged in
/// advance for some pages, which may be those of before.
const PART: f64 = 0.75;

/// All checks.
pub fn run(report: &mut Report) {
    if report
        .need("there are cgroups that count memory", make_group)
        .is_none()
    {
        return;
    }
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    report.check("rings are charged to their owner's cgroup", || {
        inside(rings)
    });
    report.check("so are the lists of regions' pages", || inside(regions));
    report.check("and streams of DC", || inside(streams));
    report.check("a cgroup's limit stops its own process alone", limited);
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}

/// A cgroup in which memory is counted.
fn make_group() -> Result<()> {
    system(&format!("mount -t cgroup2 none {MOUNT}"))?;
    fs::write(format!("{MOUNT}/cgroup.subtree_control"), "+memory").context("+memory")?;
    fs::create_dir(GROUP).context(GROUP)
}

/// Runs `body` in a process of the cgroup.
fn start(body: impl FnOnce() -> Result<()>) -> Result<Pid> {
    in_child(|| {
        // 0 is who writes it.
        fs::write(format!("{GROUP}/cgroup.procs"), "0").context("cgroup.procs")?;
        body()
    })
}

/// Runs it to its end, which has to be a good one.
fn inside(body: impl FnOnce() -> Result<()>) -> Result<()> {
    wait(start(body)?)
}

/// Bytes that are charged to the cgroup.
fn current() -> Result<u64> {
    let text = fs::read_to_string(format!("{GROUP}/memory.current"))?;
    Ok(text.trim().parse()?)
}

/// Fails if less was charged since `before` than the things in question take.
fn expect_charge(before: u64, things: usize, bytes: usize) -> Result<()> {
    let (growth, least) = (current()?.saturating_sub(before), (things * bytes) as f64);
    println!("# {growth} bytes were charged for {things} things of {bytes}");
    ensure!(growth as f64 >= PART * least, "that is too little");
    Ok(())
}

fn rings() -> Result<()> {
    let session = Session::open(0)?;
    let before = current()?;
    for _ in 0..MANY_VQPS {
        session.create_vqp(MAX_SEND_WR)?;
    }
    let ring = MAX_SEND_WR as usize * size_of::<RawSendWr>();
    expect_charge(before, MANY_VQPS, ring)
}

fn regions() -> Result<()> {
    let (session, memory) = (Session::open(0)?, Memory::map(REGION)?);
    // Its pages are there from now on.
    let first = session.register(&memory, 0, REGION as u64, ACCESS_ALL)?;
    session.deregister(first.lkey)?;
    let before = current()?;
    for _ in 0..MAX_MRS_PER_SESSION {
        session.register(&memory, 0, REGION as u64, ACCESS_ALL)?;
    }
    expect_charge(
        before,
        MAX_MRS_PER_SESSION,
        REGION / PAGE * size_of::<u64>(),
    )
}

/// Each VQP that sends a message has a stream of its own.
fn streams() -> Result<()> {
    let device = Device::open_on(0)?;
    let message = MemoryRegion::allocate(&device, 8, full_access())?;
    let connect = |_| {
        let mut vqp = Vqp::create(&device, &VqpConfig::default())?;
        vqp.qconnect(gid(1), PORT)?;
        Ok(vqp)
    };
    let vqps = (0..MANY_VQPS).map(connect);
    let mut vqps = vqps.collect::<Result<Vec<Vqp>>>()?;
    let before = current()?;
    for vqp in &mut vqps {
        vqp.post_send(&[SendWr::send(message.slice(0..8)?)])?;
    }
    expect_charge(before, vqps.len(), size_of::<Initiator>())
}

/// Asks for more rings than the limit has room for, until that is refused.
fn refused_rings() -> Result<()> {
    let session = Session::open(0)?;
    for _ in 0..MANY_VQPS {
        match session.create_vqp(MAX_SEND_WR) {
            Ok(_) => {}
            Err(Errno::ENOMEM) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
    bail!("it has got {MANY_VQPS} rings")
}

/// A process that asks for more than its cgroup may have is refused, or killed as any is
/// that needs too much; another goes on.
fn limited() -> Result<()> {
    let mut bystander = Link::new(1, PAGE, 4)?;
    fs::write(format!("{GROUP}/memory.max"), LIMIT.to_string()).context("memory.max")?;
    let greedy = start(refused_rings)?;
    let ended = waitpid(greedy, None)?;
    let stopped = matches!(
        ended,
        WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGKILL, _)
    );
    ensure!(stopped, "it was neither refused nor killed: {ended:?}");
    bystander.works(1)?;
    Link::new(1, PAGE, 4)?.works(2)
}
