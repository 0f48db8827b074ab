// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loading and unloading the module, with each point in turn failing. Most points of
//! loading are the kernel's own loader's; they come first.
//!
//! The module's gauges are its own, so that they tell nothing of a load that failed: after
//! it, the kernel is asked for what is left ([`Unloaded`]). They do tell whether a load
//! after failures ends where the first one did.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::libc;

use super::elsewhere::{Elsewhere, Kind};
use super::inject::Injection;
use super::leaks::{self, Unloaded};
use super::spared::Spared;
use super::{sweep, Failed, MAX_POINTS};
use crate::raw::Session;
use crate::rc::wait_until_up;
use crate::world::{counter, gauges, gid, timely, wait_for, SETTLE};
use weft_shim::Device;
use weft_testkit::report::Report;

const NAME: &std::ffi::CStr = c"weft";
/// A module that was loaded comes up, and one that nobody uses goes, within this.
const BOUND: Duration = Duration::from_secs(60);
/// It comes up within this if nothing has failed for good: tries are repeated sooner.
const SOON: Duration = Duration::from_secs(2);
/// After so many points the module is loaded without a failure, and what is left of it
/// afterwards is looked at.
const INTERVAL: u32 = 50;

/// All checks. The module must not be loaded.
pub fn run(
    report: &mut Report,
    path: &Path,
    arguments: &str,
    wanted: &impl Fn(&str) -> bool,
) -> Failed {
    let mut failed = Failed::default();
    // Opened once, without a failure.
    let opened = report.need("the module's file opens", || Module::open(path, arguments));
    let Some(module) = opened else {
        return failed;
    };
    let names = ["load", "unload", "unload with RC up", "connect by RC"];
    for name in names.into_iter().filter(|name| wanted(name)) {
        let mut points = 0;
        report.check_within(name, super::LONGEST, || match name {
            "load" => module.load_points(&mut points),
            "unload" => module.unload_points(|| Ok(()), &mut points),
            "unload with RC up" => module.unload_points(pin_and_wait, &mut points),
            _ => module.pin_points(&mut points),
        });
        match name {
            "connect by RC" => failed.elsewhere += points,
            _ => failed.thread += points,
        }
        println!("# {name}: {points} points");
    }
    failed
}

struct Module {
    file: File,
    arguments: CString,
}

impl Module {
    fn open(path: &Path, arguments: &str) -> Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            arguments: CString::new(arguments)?,
        })
    }

    fn load(&self) -> Result<(), Errno> {
        // SAFETY: the kernel reads the file and the string.
        let result = unsafe {
            libc::syscall(
                libc::SYS_finit_module,
                self.file.as_raw_fd(),
                self.arguments.as_ptr(),
                0,
            )
        };
        Errno::result(result).map(drop)
    }

    /// Fails each point of loading; what fails is tried again, and what is loaded has
    /// to come up and go. Nothing may be left of either.
    fn load_points(&self, points: &mut u32) -> Result<()> {
        let good = GoodLoad::first(self)?;
        // If it has no memory for what a module's tracepoints say, it warns.
        let _spared = Spared::function("event_create_dir")?;
        loop {
            let nth = *points + 1;
            ensure!(nth < MAX_POINTS, "there is no end of points");
            let injection = Injection::arm(nth)?;
            let outcome = self.load();
            let hit = injection.disarm()?;
            match outcome {
                Ok(()) => self
                    .comes_up_or_again(hit)
                    .with_context(|| format!("point {nth}, loaded"))?,
                Err(errno) => ensure!(
                    hit && [Errno::ENOMEM, Errno::EFAULT, Errno::EAGAIN].contains(&errno),
                    "point {nth}: {errno:?}"
                ),
            }
            leaks::gone().with_context(|| format!("point {nth}"))?;
            if !hit || nth % INTERVAL == 0 {
                let before = || format!("after points up to {nth}");
                good.again(self).with_context(before)?;
            }
            if !hit {
                return Ok(());
            }
            *points += 1;
        }
    }

    /// A module for which something failed may do without a device, and says so in the
    /// kernel's log; loaded again it uses all.
    fn comes_up_or_again(&self, hit: bool) -> Result<()> {
        if !hit || comes_up(SOON).is_ok() {
            return comes_up_and_goes();
        }
        println!("# a device is not used");
        timely(BOUND, unload)??;
        self.load().context("the next try")?;
        comes_up_and_goes()
    }

    /// Fails allocations while a queue pair is connected: it takes longer, no more.
    fn pin_points(&self, points: &mut u32) -> Result<()> {
        let good = GoodLoad::first(self)?;
        for kind in Kind::ALL {
            sweep::each(kind, points, |space| {
                self.load().context("loading")?;
                comes_up(BOUND)?;
                let device = Device::open_on(0)?;
                let injection = Elsewhere::arm(kind, space)?;
                let pinned = device.pool_pin(gid(1));
                let waited = pinned.as_ref().map(|()| connected());
                let outcome = injection.disarm()?;
                if let Ok(waited) = waited {
                    waited?;
                } else {
                    ensure!(outcome.failed, "{pinned:?} although nothing failed");
                    pin_and_wait().context("the next try")?;
                }
                wait_until_up()?;
                drop(device);
                timely(BOUND, unload)??;
                leaks::gone()?;
                Ok(outcome)
            })?;
        }
        good.again(self)
    }

    /// Fails each point of unloading, which has no way to fail, after `prepare`.
    fn unload_points(&self, prepare: fn() -> Result<()>, points: &mut u32) -> Result<()> {
        let good = GoodLoad::first(self)?;
        loop {
            let nth = *points + 1;
            self.load().context("loading")?;
            comes_up(BOUND)?;
            prepare()?;
            let injection = Injection::arm(nth)?;
            let outcome = unload();
            let hit = injection.disarm()?;
            if hit && outcome.is_err() {
                unload().with_context(|| format!("point {nth}: the next try"))?;
            }
            leaks::gone().with_context(|| format!("point {nth}"))?;
            if !hit || nth % INTERVAL == 0 {
                let before = || format!("after points up to {nth}");
                good.again(self).with_context(before)?;
            }
            if !hit {
                return outcome.context("unloading");
            }
            *points += 1;
        }
    }
}

/// Pins node 1 at node 0, and waits until each has its end of a queue pair. This needs
/// no call but the first, so that what fails meanwhile is not the caller's.
fn pin_and_wait() -> Result<()> {
    Device::open_on(0)?.pool_pin(gid(1))?;
    connected()
}

fn connected() -> Result<()> {
    wait_for("a queue pair is connected", BOUND, || {
        Ok(counter("rc_queues")? == 2)
    })
}

/// What there is before a load in which nothing fails, during it, and afterwards.
struct GoodLoad {
    unloaded: Unloaded,
    /// The gauges of a module that nobody uses.
    gauges: Vec<i64>,
}

impl GoodLoad {
    /// Loads the module once, and unloads it: what that leaves for good is no leak.
    fn first(module: &Module) -> Result<Self> {
        module.load().context("loading")?;
        comes_up(BOUND)?;
        let mut gauges_now = Vec::new();
        wait_for("the gauges stand still", SETTLE, || {
            let before = std::mem::replace(&mut gauges_now, gauges()?);
            std::thread::sleep(Duration::from_millis(300));
            Ok(before == gauges_now)
        })?;
        timely(BOUND, unload)??;
        Ok(Self {
            unloaded: Unloaded::take()?,
            gauges: gauges_now,
        })
    }

    /// Whether failures have left nothing behind, and a load after them is like the
    /// first one.
    fn again(&self, module: &Module) -> Result<()> {
        self.unloaded.is_back()?;
        module.load().context("the next try")?;
        comes_up(BOUND)?;
        let mut now = Vec::new();
        let same = wait_for("the gauges are as at first", SETTLE, || {
            now = gauges()?;
            Ok(now == self.gauges)
        });
        same.with_context(|| format!("they were {:?}, are {now:?}", self.gauges))?;
        timely(BOUND, unload)??;
        self.unloaded.is_back()
    }
}

/// Waits until both nodes can be used. What debugfs shows is no help: a module works
/// without it, and so it may have failed.
fn comes_up(within: Duration) -> Result<()> {
    wait_for("the nodes are up", within, || {
        Ok((0..2).all(|node| Session::open(node).is_ok()))
    })
}

fn comes_up_and_goes() -> Result<()> {
    comes_up(BOUND)?;
    Ok(timely(BOUND, unload)??)
}

fn unload() -> Result<(), Errno> {
    // SAFETY: the kernel reads the string.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, NAME.as_ptr(), libc::O_NONBLOCK) };
    Errno::result(result).map(drop)
}
