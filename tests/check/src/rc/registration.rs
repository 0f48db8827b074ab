// SPDX-License-Identifier: MIT OR Apache-2.0

//! When the RDMA device learns of memory: not before RC is used, and then of what
//! there already.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_shim::{Device, MemoryRegion};

use crate::raw::{Memory, Session};
use crate::world::{counter, full_access, wait_for, Link};

const BOUND: Duration = Duration::from_secs(30);
const PAGE: usize = 4096;

/// Memory regions that soft-RoCE's devices have, of all users.
fn device_regions() -> Result<usize> {
    let output = Command::new("rdma")
        .args(["-j", "resource", "show", "mr"])
        .output()?;
    let all: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(all.as_array().context("no list of regions")?.len())
}

/// Until RC is used, registering memory is no matter of the device.
pub fn none_before() -> Result<()> {
    let before = device_regions()?;
    let device = Device::open_on(0)?;
    let regions = (0..8)
        .map(|_| MemoryRegion::allocate(&device, PAGE, full_access()))
        .collect::<Result<Vec<_>, _>>()?;
    let with = device_regions()?;
    drop(regions);
    ensure!(with == before, "{before} regions became {with}");
    ensure!(counter("device_mrs")? == 0, "the module counts some");
    Ok(())
}

/// Regions that are there when the first queue pair comes, and one whose process maps
/// other memory to its address meanwhile: what is registered is what was.
pub struct Early {
    link: Link,
    near: Session,
    memory: Memory,
    remapped: weft_core::uapi::MrReg,
}

const MARK: u64 = 0x6d61_726b;

impl Early {
    pub fn new() -> Result<Self> {
        let near = Session::open(1)?;
        let memory = Memory::map(PAGE)?;
        memory.word(0).store(MARK, Ordering::Relaxed);
        let remapped = near.register(&memory, 0, PAGE as u64, 7)?;
        memory.renew()?;
        Ok(Self {
            link: Link::new(1, PAGE, 4)?,
            near,
            memory,
            remapped,
        })
    }

    /// With RC up.
    pub fn by_rc(mut self) -> Result<()> {
        let (chains, known) = (counter("rc_chains")?, counter("device_mrs")?);
        ensure!(known >= 3, "the device knows {known}");
        self.link.works(9)?;
        ensure!(counter("rc_chains")? > chains, "it does not go by RC");
        // A READ of the page that its process no longer has.
        let remote = weft_shim::Remote {
            addr: self.remapped.addr,
            rkey: self.remapped.rkey,
        };
        self.link.vqp.read(self.link.local.slice(0..8)?, remote)?;
        ensure!(
            self.link.local.load_u64(0)? == MARK,
            "it reads other memory"
        );
        ensure!(
            self.memory.word(0).load(Ordering::Relaxed) == 0,
            "the process has the old page"
        );
        Ok(self.near.deregister(self.remapped.lkey)?)
    }
}

/// When all regions have gone, the device knows none.
pub fn none_after() -> Result<()> {
    wait_for("the device forgets them", BOUND, || {
        Ok(counter("device_mrs")? == 0)
    })
}
