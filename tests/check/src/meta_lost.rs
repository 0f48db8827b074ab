// SPDX-License-Identifier: MIT OR Apache-2.0

//! Life without a meta server: none at all, one that is stopped, one that is
//! killed, and one that comes back. The module is loaded without any.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Result};
use nix::errno::Errno;
use nix::sched::{sched_setaffinity, CpuSet};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use weft_core::uapi::{self, Pod};
use weft_shim::{Access, Device, Error, MemoryRegion, Vqp, VqpConfig};

use crate::raw::Session;
use crate::signals::under_signals;
use crate::world::{counter, gid, system, timely, wait_for, Link};
use weft_testkit::report::Report;

/// Where it is.
pub const SERVER: &str = "10.77.0.1:7471";
/// Longest that a connection attempt may take.
const BOUND: Duration = Duration::from_secs(20);
/// Longest that a node may take to notice that its server is silent: it asks every two
/// seconds, waits two for the answer, and tries to connect anew.
const NOTICED: Duration = Duration::from_secs(20);
/// How long the server is slow: several times as long as a node's patience.
const SLOW_FOR: Duration = Duration::from_secs(12);
/// Look-ups after a link has broken, from each CPU in turn.
const LOOKUPS: usize = 40;
/// The machine's CPUs, and so the links of a node to a server.
const CPUS: usize = 2;
/// Longest that nodes may take to find a server that is there.
const FOUND: Duration = Duration::from_secs(60);

/// A running server.
pub struct Meta(Child);

impl Meta {
    /// Starts one.
    pub fn start() -> Result<Self> {
        let mut command = Command::new("weft-meta");
        command
            .args(["--listen", SERVER])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.0.id() as i32), signal)?)
    }

    /// Kills it.
    pub fn end(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Meta {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A connection to node 1 that is in no cache.
fn connect(device: &Device) -> Result<Result<Vqp, Error>> {
    device.flush_dccache()?;
    let mut vqp = Vqp::create(device, &VqpConfig::default())?;
    Ok(timely(BOUND, || vqp.qconnect(gid(1), 0))?.map(|()| vqp))
}

fn is_refused(device: &Device, allowed: &[Error]) -> Result<()> {
    match connect(device)? {
        Ok(_) => bail!("it connected"),
        Err(error) => ensure!(allowed.contains(&error), "{error:?}"),
    }
    match timely(BOUND, || device.lookup(gid(1)))? {
        Ok(_) => bail!("it looked up"),
        Err(error) => ensure!(allowed.contains(&error), "{error:?}"),
    }
    Ok(())
}

fn published(count: i64) -> Result<()> {
    wait_for("the gauge of published nodes", FOUND, || {
        Ok(counter("nodes_published")? == count)
    })
}

/// This thread runs on these CPUs from now on.
fn run_on(cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().try_for_each(|cpu| set.set(cpu))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn has_all_links(device: &Device) -> Result<bool> {
    let servers = device.meta_servers()?;
    Ok(servers.iter().all(|server| server.connected))
}

/// A server whose process is stopped cannot accept anybody, but still answers READs. If
/// one of a node's links to it breaks then, the others have to do.
fn one_link_breaks(report: &mut Report, meta: &Meta) -> Result<()> {
    let device = Device::open_on(1)?;
    wait_for("all links", FOUND, || has_all_links(&device))?;
    meta.signal(Signal::SIGSTOP)?;
    // Until one probe has failed, and no longer, so that no second one does.
    system("tc -n n1 qdisc add dev v1 root netem loss 100%")?;
    let broken = wait_for("a link breaks", NOTICED, || Ok(!has_all_links(&device)?));
    system("tc -n n1 qdisc del dev v1 root")?;
    report.check("when one link breaks, look-ups go by the others", || {
        broken?;
        for round in 0..LOOKUPS {
            // Links are chosen by CPU.
            run_on([round % CPUS])?;
            timely(BOUND, || device.lookup(gid(0)))?
                .map_err(|error| anyhow!("look-up {round}: {error:?}"))?;
            thread::sleep(Duration::from_millis(100));
        }
        run_on(0..CPUS)
    });
    report.check("and the node stays published", || {
        ensure!(counter("nodes_published")? == 2);
        Ok(())
    });
    meta.signal(Signal::SIGCONT)?;
    report.check(
        "once the server accepts again, all links are made anew",
        || wait_for("all links again", FOUND, || has_all_links(&device)),
    );
    Ok(())
}

/// A server that node 1 hears nothing of, or hears late, while nobody looks anybody
/// up: the node's packets are lost or delayed, and its port stays up.
fn silent_and_slow(report: &mut Report) -> Result<()> {
    system("modprobe sch_netem || true")?;
    report.check("a server that is slow keeps its node", || {
        system("tc -n n1 qdisc add dev v1 root netem delay 1200ms")?;
        let until = Instant::now() + SLOW_FOR;
        while Instant::now() < until {
            let (published, links) = (counter("nodes_published")?, counter("meta_links")?);
            ensure!(
                published == 2,
                "{published} nodes are published, {links} links"
            );
            thread::sleep(Duration::from_millis(50));
        }
        system("tc -n n1 qdisc del dev v1 root")
    });
    system("tc -n n1 qdisc add dev v1 root netem loss 100%")?;
    report.check("a signal ends a look-up at a server that is silent", || {
        interrupted_lookups()
    });
    report.check("a server that went silent is noticed", || {
        wait_for("node 1 notices", NOTICED, || {
            Ok(counter("nodes_published")? == 1)
        })
    });
    system("tc -n n1 qdisc del dev v1 root")?;
    report.check("and is found again", || published(2));
    Ok(())
}

/// A look-up and a connection, of which the server hears nothing. The link is no worse for
/// either: whoever can send signals could cut the node off otherwise.
fn interrupted_lookups() -> Result<()> {
    let session = Session::open(1)?;
    let vqp = session.create_vqp(4)?;
    let mut lookup = uapi::Lookup {
        gid: gid(7),
        ..Pod::zeroed()
    };
    let links = counter("meta_links")?;
    let looked_up = under_signals(|| session.call(uapi::IOC_LOOKUP, &mut lookup))?;
    let connected = under_signals(|| session.qconnect(vqp, gid(7)))?;
    let (left, published) = (counter("meta_links")?, counter("nodes_published")?);
    ensure!(looked_up == Err(Errno::EINTR), "a look-up: {looked_up:?}");
    ensure!(connected == Err(Errno::EINTR), "connecting: {connected:?}");
    ensure!(
        left == links && published == 2,
        "{left} of {links} links are left, {published} nodes published"
    );
    Ok(())
}

/// All of it, in order.
pub fn run(report: &mut Report) {
    let outcome = (|| -> Result<()> {
        let device = Device::open_on(0)?;
        let none = [Error::NoMetaServer];
        let silent = [Error::NoMetaServer, Error::MetaTimeout];
        report.check("no server configured: EAGAIN", || {
            is_refused(&device, &none)
        });
        device.meta_add(SERVER.parse()?)?;
        report.check("nobody at the server's address: EAGAIN", || {
            is_refused(&device, &none)
        });

        let mut meta = Meta::start()?;
        report.check("a server that comes up is found", || published(2));
        let mut link = Link::new(1, 4096, 16)?;
        report.check("then nodes connect", || link.works(1));

        meta.signal(Signal::SIGSTOP)?;
        report.check("a server that is stopped still answers look-ups", || {
            let local = MemoryRegion::allocate(&device, 4096, Access::LOCAL_WRITE)?;
            connect(&device)??.write(local.slice(0..8)?, link.remote.remote())?;
            Ok(())
        });
        meta.signal(Signal::SIGCONT)?;

        meta.end()?;
        report.check("a server that was killed: ETIMEDOUT or EAGAIN", || {
            is_refused(&device, &silent)
        });
        report.check("and again", || is_refused(&device, &silent));
        // Until then the count may still be that of the server that is gone.
        report.check("no node is published then", || published(0));
        report.check("connections live on without it", || link.works(2));

        meta = Meta::start()?;
        report.check("a server that comes back is found", || published(2));
        report.check("and nodes connect again", || {
            Ok(connect(&device)?.map(drop)?)
        });
        one_link_breaks(report, &meta)?;
        silent_and_slow(report)?;
        report.check("removing the server ends look-ups", || {
            device.meta_remove(SERVER.parse()?)?;
            wait_for("links go", FOUND, || Ok(counter("meta_links")? == 0))?;
            is_refused(&device, &none)
        });
        drop(meta);
        report.check("connections live on without any", || link.works(3));
        Ok(())
    })();
    if let Err(error) = outcome {
        report.check("all of it could be tried", || Err(error));
    }
}
