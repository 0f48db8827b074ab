// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions that say at their beginning whom they will connect to, who is looked up
//! meanwhile.

use std::time::Duration;

use anyhow::{ensure, Result};
use weft_core::gid::Gid;
use weft_core::uapi::{self, Hello, Pod, ABI_VERSION};
use weft_shim::{Access, Device, Error, QpConfig, SendWr, Start, StartConfig, Wc};
use weft_testkit::pace::patient;

use crate::raw::Session;
use crate::world::{counter, full_access, gid};

const PATIENCE: Duration = Duration::from_secs(30);
/// A process that changes its CPU between the two calls finds no READ on its way there.
const TRIES: usize = 50;
/// More than there are connections to the meta server.
const FLOOD: u8 = 100;

fn start(peer: Gid) -> Result<Start> {
    Ok(Start::new(&StartConfig {
        node: Some(0),
        access: Access::LOCAL_WRITE,
        peer: Some(peer),
        ..StartConfig::default()
    })?)
}

/// Nodes that are nobody's.
fn nobody(number: u8) -> Gid {
    Gid::from_ipv4([10, 78, 0, number])
}

/// Connects and WRITEs a word to memory of node 1.
fn writes(mut worker: Start) -> Result<()> {
    let there = Start::new(&StartConfig {
        node: Some(1),
        access: full_access(),
        ..StartConfig::default()
    })?;
    let qp = worker.queues.connect(gid(1), 0, &QpConfig::default())?;
    worker.memory.store_u64(0, 42)?;
    let write = SendWr::write(worker.memory.slice(0..8)?, there.memory.remote());
    let mut wc = [Wc::default()];
    let wait = patient(PATIENCE);
    let progress = worker
        .queues
        .enter(&[write.on(&qp).signaled()], &mut wc, 1, wait)?;
    ensure!(progress.completed == 1, "a WRITE does not end");
    wc[0].result()?;
    ensure!(there.memory.load_u64(0)? == 42, "it has written nothing");
    Ok(())
}

/// The look-up finds its READ on its way, and what it brings is right.
pub fn used() -> Result<()> {
    let device = Device::open_on(0)?;
    let before = counter("lookups_ahead")?;
    for _ in 0..TRIES {
        device.flush_dccache()?;
        writes(start(gid(1))?)?;
        if counter("lookups_ahead")? > before {
            return Ok(());
        }
    }
    anyhow::bail!("no look-up was ahead in {TRIES} tries")
}

/// Each look-up is of the peer that it is for, whoever was looked up ahead.
pub fn of_another() -> Result<()> {
    let device = Device::open_on(0)?;
    for peer in [gid(1), gid(2), nobody(1)] {
        for wanted in [gid(1), gid(2)] {
            device.flush_dccache()?;
            let worker = start(peer)?;
            let found = worker.device.lookup(wanted)?;
            let later = device.lookup(wanted)?;
            ensure!(
                found.dct_number == later.dct_number,
                "another node's record"
            );
        }
        let worker = start(peer)?;
        let connected = worker
            .queues
            .connect(nobody(2), 0, &QpConfig::default())
            .err();
        ensure!(connected == Some(Error::UnknownPeer(nobody(2))));
    }
    Ok(())
}

/// A peer that nobody knows is no error before it is connected to.
pub fn unknown() -> Result<()> {
    let worker = start(nobody(3))?;
    let connected = worker
        .queues
        .connect(nobody(3), 0, &QpConfig::default())
        .err();
    ensure!(connected == Some(Error::UnknownPeer(nobody(3))));
    writes(worker)
}

/// Sessions that end with the READ on its way, and many of them, stop nobody.
pub fn unused() -> Result<()> {
    let device = Device::open_on(0)?;
    for number in 0..FLOOD {
        device.flush_dccache()?;
        drop(start(nobody(number))?);
        let bare = Session::bare()?;
        let mut hello = Hello {
            abi_version: ABI_VERSION,
            peer: gid(1),
            ..Pod::zeroed()
        };
        bare.call(uapi::IOC_HELLO, &mut hello)?;
    }
    writes(start(gid(1))?)
}
