// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nodes that go while they are used, and come back. Three nodes; node 1 loses
//! its address first, and then its RDMA device.
//!
//! soft-RoCE does not let a device go that a program has open by verbs, and a
//! meta server has all of them open. So there is none while a device goes.

mod look_ups;
mod unanswered;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use weft_shim::{
    Access, CompletionError, Device, Error, MemoryRegion, SendWr, Vqp, VqpConfig, Wc, WcStatus,
};

use crate::meta_lost::{Meta, SERVER};
use crate::traffic::{Traffic, SLICE};
use crate::world::{
    connect, counter, counters, full_access, gid, system, timely, wait_for, Link, GAUGES,
};
use weft_testkit::report::Report;

pub use look_ups::run as run_look_ups;

/// Nothing on a node that is gone takes longer.
const BOUND: Duration = Duration::from_secs(20);
const BACK: Duration = Duration::from_secs(30);

const TAKE_ADDRESS: &str = "ip -n n1 address del 10.77.0.2/24 dev v1";
const GIVE_ADDRESS: &str = "ip -n n1 address add 10.77.0.2/24 dev v1";
const DELETE: &str = "rdma link delete rxe1";
const ADD: &str = "ip netns exec n1 rdma link add rxe1 type rxe netdev v1";

fn published() -> Result<()> {
    wait_for("three nodes are published", BACK, || {
        Ok(counter("nodes_published")? == 3)
    })
}

fn is_gone() -> Result<()> {
    wait_for("node 1 goes", BACK, || match Device::open_on(1) {
        Ok(_) => Ok(false),
        Err(Error::NoNode(Some(1))) => Ok(true),
        Err(error) => Err(error.into()),
    })
}

/// What there is on node 1 when its device goes.
struct Victim {
    device: Device,
    region: MemoryRegion,
    target: MemoryRegion,
    used: Vqp,
    /// One for each CPU.
    connected: Vec<Vqp>,
    fresh: Vqp,
}

impl Victim {
    fn new() -> Result<Self> {
        let device = Device::open_on(1)?;
        let region = MemoryRegion::allocate(&device, SLICE, full_access())?;
        let target = MemoryRegion::allocate(&Device::open_on(2)?, SLICE, full_access())?;
        let mut used = connect(&device, 2, 64)?;
        used.write(region.slice(0..8)?, target.remote())?;
        let cpus = thread::available_parallelism()?.get();
        let connected = (0..cpus)
            .map(|_| connect(&device, 2, 64))
            .collect::<Result<_>>()?;
        let fresh = Vqp::create(&device, &VqpConfig::default())?;
        Ok(Self {
            device,
            region,
            target,
            used,
            connected,
            fresh,
        })
    }
}

fn fails_fatally(vqp: &mut Vqp, from: &MemoryRegion, to: &MemoryRegion) -> Result<()> {
    let wr = SendWr::write(from.slice(0..8)?, to.remote()).signaled();
    let mut wcs = [Wc::default()];
    match timely(BOUND, || vqp.enter(&[wr], &mut wcs, 1, BOUND))? {
        Err(Error::NodeGone) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(progress) => {
            ensure!(progress.completed == 1, "no completion");
            let status = wcs[0].status();
            let fatal = [Some(WcStatus::FatalErr), Some(WcStatus::WrFlushErr)].contains(&status);
            ensure!(fatal, "{status:?}");
            Ok(())
        }
    }
}

/// Runs `body` on one CPU: a VQP's stream is that of the CPU that uses it first.
fn on_cpu(cpu: usize, body: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let pinned = || {
        let mut set = CpuSet::new();
        set.set(cpu)?;
        sched_setaffinity(Pid::from_raw(0), &set)?;
        body()
    };
    thread::scope(|scope| scope.spawn(pinned).join()).map_err(|_| anyhow!("the thread panicked"))?
}

fn gone<T>(result: Result<T, Error>) -> Result<()> {
    match result {
        Err(Error::NodeGone) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("it worked on a node that is gone"),
    }
}

fn while_it_is_gone(report: &mut Report, victim: &mut Victim) {
    let Victim {
        device,
        region,
        target,
        used,
        connected,
        fresh,
    } = victim;
    report.check("a used VQP of its session: FatalErr", || {
        fails_fatally(used, region, target)
    });
    report.check(
        "a connected VQP that was not used, on each CPU: FatalErr",
        || {
            let mut vqps = connected.iter_mut().enumerate();
            vqps.try_for_each(|(cpu, vqp)| on_cpu(cpu, || fails_fatally(vqp, region, target)))
        },
    );
    report.check("poll: POLLERR and POLLHUP", || {
        let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(0_u8))?;
        let told = fds[0].revents().unwrap_or(PollFlags::empty());
        let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
        ensure!(told.contains(gone), "{told:?}");
        Ok(())
    });
    report.check("connecting: ENODEV", || {
        gone(timely(BOUND, || fresh.qconnect(gid(2), 0))?)
    });
    report.check("a new VQP: ENODEV", || {
        gone(Vqp::create(device, &VqpConfig::default()))
    });
    report.check("a new region: ENODEV", || {
        gone(MemoryRegion::allocate(device, 4096, Access::LOCAL_WRITE))
    });
    report.check("a look-up: ENODEV", || {
        gone(timely(BOUND, || device.lookup(gid(2)))?)
    });
    report.check("a new session: ENODEV", || match Device::open_on(1) {
        Err(Error::NoNode(Some(1))) => Ok(()),
        other => bail!("{:?}", other.map(drop)),
    });
    report.check("the others list two nodes", || {
        let nodes = Device::open_on(0)?.nodes()?;
        ensure!(nodes.len() == 2, "{} nodes", nodes.len());
        Ok(())
    });
}

fn seen_by_others(report: &mut Report, link: &mut Link) {
    report.check("a peer's request to it: RetryExcErr in time", || {
        let status = timely(BOUND, || link.outcome(BOUND))??;
        ensure!(
            matches!(status, WcStatus::RetryExcErr | WcStatus::RemAbortErr),
            "{status:?}"
        );
        Ok(())
    });
    // Without its address it cannot tell the meta server that it goes.
    report.check(
        "connecting to it, or the first request, fails in time",
        || {
            let device = Device::open_on(0)?;
            device.flush_dccache()?;
            let local = MemoryRegion::allocate(&device, 4096, full_access())?;
            match timely(BOUND, || connect(&device, 1, 4))? {
                Ok(mut vqp) => match timely(BOUND, || {
                    vqp.write(local.slice(0..8)?, link.remote.remote())
                })? {
                    Err(Error::Completion(CompletionError {
                        status: Some(WcStatus::RetryExcErr),
                    })) => Ok(()),
                    other => bail!("{other:?}"),
                },
                Err(error) => match error.downcast_ref() {
                    Some(Error::UnknownPeer(_)) => Ok(()),
                    _ => Err(error),
                },
            }
        },
    );
    report.check("other nodes noticed nothing", || {
        Link::new(2, 4096, 16)?.works(5)
    });
}

fn come_back(report: &mut Report, link: &mut Link) -> Result<()> {
    system(GIVE_ADDRESS)?;
    report.check(
        "the address comes back, and its node is published",
        published,
    );
    report.check("the new node can be connected to", || {
        Device::open_on(0)?.flush_dccache()?;
        Link::new(1, 4096, 16)?.works(6)
    });
    report.check("the new node can connect", || {
        let device = Device::open_on(1)?;
        let region = MemoryRegion::allocate(&device, 4096, full_access())?;
        let target = MemoryRegion::allocate(&Device::open_on(0)?, 4096, full_access())?;
        connect(&device, 0, 4)?.write(region.slice(0..8)?, target.remote())?;
        Ok(())
    });
    report.check("a VQP that knew the old node fails", || {
        let status = timely(BOUND, || link.outcome(BOUND))??;
        ensure!(status == WcStatus::WrFlushErr, "it is {status:?}");
        Ok(())
    });
    Ok(())
}

/// The device goes under full traffic, from it and to it.
fn under_traffic() -> Result<()> {
    const BOTH: u32 = (1 << 1) | (1 << 2);
    let (one, two) = (Device::open_on(1)?, Device::open_on(2)?);
    let here = MemoryRegion::allocate(&one, SLICE, full_access())?;
    let there = MemoryRegion::allocate(&two, SLICE, full_access())?;
    let to_two = Traffic::new(&one, 2, there.remote(), 3)?;
    let to_one = Traffic::new(&two, 1, here.remote(), 3)?;
    // A bit for each node that has been reached.
    let (at_work, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let running = [(2, to_two), (1, to_one)].map(|(to, mut traffic)| {
            let (at_work, stop) = (&at_work, &stop);
            scope.spawn(move || -> Result<()> {
                while !stop.load(Ordering::Relaxed) {
                    traffic.round()?;
                    at_work.fetch_or(1 << to, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        let gone = wait_for("both are at work", BACK, || {
            let has_ended = running.iter().any(|thread| thread.is_finished());
            ensure!(!has_ended, "it has ended before the device went");
            Ok(at_work.load(Ordering::Relaxed) == BOTH)
        })
        .and_then(|()| timely(BACK, || system(DELETE))?)
        .and_then(|()| {
            wait_for("its traffic ends", BACK, || {
                Ok(running.iter().all(|thread| thread.is_finished()))
            })
        });
        stop.store(true, Ordering::Relaxed);
        let join = |thread: ScopedJoinHandle<'_, Result<()>>| {
            let end = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
            Ok(end.err())
        };
        let errors = running.map(join).into_iter().collect::<Result<Vec<_>>>()?;
        if let Err(error) = gone {
            // The first that failed says why.
            let why = errors.into_iter().flatten().next();
            return Err(why.map_or(error, |why| why.context("before the device went")));
        }
        errors
            .iter()
            .try_for_each(|error| says_gone(error.as_ref().context("its traffic went on")?))
    })
}

/// What a batch ends with whose own node or whose peer goes: not with wrong bytes, nor
/// with silence.
fn says_gone(error: &anyhow::Error) -> Result<()> {
    const STATUSES: [WcStatus; 4] = [
        WcStatus::FatalErr,
        WcStatus::RetryExcErr,
        WcStatus::RemAbortErr,
        WcStatus::WrFlushErr,
    ];
    let status = error.downcast_ref::<CompletionError>().map(|e| e.status);
    let is_gone = match (status, error.downcast_ref()) {
        (Some(Some(status)), _) => STATUSES.contains(&status),
        (_, Some(Error::NodeGone)) => true,
        _ => false,
    };
    ensure!(is_gone, "its traffic ended with: {error:#}");
    Ok(())
}

/// All of it, in order.
pub fn run(report: &mut Report) {
    if let Err(error) = go_and_come(report) {
        report.check("all of it could be tried", || Err(error));
    }
}

fn go_and_come(report: &mut Report) -> Result<()> {
    Device::open_on(0)?.meta_add(SERVER.parse()?)?;
    let mut meta = Meta::start()?;
    published()?;
    let mut victim = Victim::new()?;
    let mut link = Link::new(1, 4096, 16)?;
    link.works(1)?;
    system(TAKE_ADDRESS)?;
    report.check("a node in use can go", is_gone);
    while_it_is_gone(report, &mut victim);
    seen_by_others(report, &mut link);
    come_back(report, &mut link)?;
    report.check("the old session is still dead", || {
        gone(Vqp::create(&victim.device, &VqpConfig::default()))
    });
    drop((victim, link));
    for round in 0..3 {
        // From now on both ends have each other in their caches.
        Link::new(1, 4096, 16)?.works(7)?;
        connect(&Device::open_on(1)?, 2, 4)?;
        connect(&Device::open_on(2)?, 1, 4)?;
        meta.end()?;
        report.check(
            &format!("a device goes under full traffic, time {round}"),
            under_traffic,
        );
        system(ADD)?;
        meta = Meta::start()?;
        report.check("and comes back", published);
        (0..3).try_for_each(|node| Device::open_on(node)?.flush_dccache())?;
    }
    meta.end()?;
    report.check(
        "a device goes though a page of a registration never comes",
        unanswered::device_goes,
    );
    system(ADD)?;
    meta = Meta::start()?;
    report.check("and comes back", published);
    report.check("all of it leaves nothing behind", nothing_left);
    drop(meta);
    Ok(())
}

fn nothing_left() -> Result<()> {
    wait_for("all gauges are zero", BACK, || {
        Ok(GAUGES.iter().all(|name| counter(name).ok() == Some(0)))
    })
    .with_context(|| format!("{:?}", counters().unwrap_or_default()))?;
    ensure!(counter("nodes")? == 3, "{} nodes", counter("nodes")?);
    Ok(())
}
