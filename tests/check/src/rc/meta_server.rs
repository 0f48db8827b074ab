// SPDX-License-Identifier: MIT OR Apache-2.0

//! A meta server is a program, and what it says need not be true. By the queue pair
//! that a node's kernel connects to it, it reaches no region, though it knows the
//! region's address and the device's key.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use weft_core::kv::Geometry;
use weft_core::meta::{Welcome, PUBLICATION_BYTES};
use weft_shim::{Device, MemoryRegion};
use weft_verbs::{
    Access, CmEvent, ConnectRequest, Context, Cq, EventChannel, Listener, Mr, Op, Pages, Pd,
    ServerConnection, Srq, Wc, WorkRequest,
};

use weft_testkit::pace::is_slow;

use super::blocks::allocate_in_block;
use crate::world::wait_for;

/// Where it listens: node 0, beside the real one.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), 7999);
/// The node whose region it wants.
const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
const VICTIM_NODE: u32 = 1;
/// Bytes of that region: no other one of the device has as many.
const BYTES: usize = 7 * 4096;
const SECRET: u64 = 0x5ec2_e75e_c2e7;
const RECEIVES: u32 = 16;
const BOUND: Duration = Duration::from_secs(30);

/// The server's end.
struct Rogue {
    channel: EventChannel,
    _listener: Listener,
    table: Arc<Pages>,
    queues: Option<Queues>,
    victim: Option<ServerConnection>,
    /// Nodes that came as well.
    others: Vec<ServerConnection>,
}

/// What it has on the device.
struct Queues {
    pd: Pd,
    cq: Cq,
    srq: Srq,
    table: Mr,
    /// What its own requests copy from and to.
    memory: Mr,
}

impl Queues {
    fn new(context: &Context, table: &Arc<Pages>) -> Result<Self> {
        let pd = Pd::new(context)?;
        Ok(Self {
            cq: Cq::new(context, 2 * RECEIVES)?,
            srq: Srq::new(&pd, RECEIVES, u32::try_from(PUBLICATION_BYTES)?)?,
            table: Mr::register(&pd, table, Access::RemoteRead)?,
            memory: Mr::register(&pd, &Pages::zeroed(4096)?, Access::LocalWrite)?,
            pd,
        })
    }
}

impl Rogue {
    fn listen() -> Result<Self> {
        let channel = EventChannel::new()?;
        let geometry = geometry()?;
        Ok(Self {
            _listener: Listener::bind(&channel, LISTEN, 8)?,
            channel,
            table: Pages::zeroed(usize::try_from(geometry.bytes())?)?,
            queues: None,
            victim: None,
            others: Vec::new(),
        })
    }

    /// Takes who comes; answers whether the victim has.
    fn has_victim(&mut self) -> Result<bool> {
        while let Some(event) = self.channel.next()? {
            if let CmEvent::ConnectRequest(request) = event {
                self.accept(request)?;
            }
        }
        Ok(self.victim.is_some())
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        let queues = match self.queues.take() {
            Some(queues) => queues,
            None => Queues::new(&request.context()?, &self.table)?,
        };
        let welcome = Welcome {
            table_addr: self.table.addr(),
            table_rkey: queues.table.rkey(),
            geometry: geometry()?,
            token: 0,
        };
        let is_victim = request.peer().map(|peer| peer.ip()) == Some(VICTIM);
        let accepted = request.accept(&queues.pd, &queues.cq, &queues.srq, &welcome.encode());
        self.queues = Some(queues);
        match accepted {
            Ok(connection) if is_victim => self.victim = Some(connection),
            Ok(connection) => self.others.push(connection),
            // A node may have given up meanwhile, and connects again.
            Err(error) if is_slow() => println!("# a connection was not accepted: {error}"),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// How a request to the victim ends, in the library's words.
    fn attempt(&self, op: Op, addr: u64, rkey: u32) -> Result<Option<String>> {
        let queues = self.queues.as_ref().context("nobody came")?;
        let victim = self.victim.as_ref().context("the victim did not come")?;
        victim.post(&WorkRequest::new(op, &queues.memory, 8, (addr, rkey)))?;
        let mut outcome = None;
        wait_for("it ends", BOUND, || {
            let mut room = [Wc::default(); 4];
            for wc in queues.cq.poll(&mut room)? {
                // The others are publications.
                if wc.qp_num() == victim.qp_num() && wc.byte_len() as usize != PUBLICATION_BYTES {
                    outcome = Some(wc.failure());
                }
            }
            Ok(outcome.is_some())
        })?;
        outcome.context("it did not end")
    }
}

fn geometry() -> Result<Geometry> {
    Geometry::for_capacity(64).context("a table of 64 records")
}

/// The device's key of the victim's region, as `rdma` tells an administrator.
fn device_key() -> Result<u32> {
    let output = Command::new("rdma")
        .args(["-j", "-d", "resource", "show", "mr"])
        .output()?;
    let all: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let regions = all.as_array().context("no list of regions")?;
    let is_it = |mr: &&serde_json::Value| mr["mrlen"] == BYTES && mr["ifname"] == "rxe1";
    let region = regions
        .iter()
        .find(is_it)
        .context("the device does not know it")?;
    let rkey = region["rkey"].as_str().context("it has no key")?;
    Ok(u32::from_str_radix(rkey.trim_start_matches("0x"), 16)?)
}

/// One attempt by a connection of its own: a refusal ends it.
fn refused(op: Op, device: &Device, region: &MemoryRegion, rkey: u32) -> Result<()> {
    let mut rogue = Rogue::listen()?;
    device.meta_add(LISTEN)?;
    let outcome = wait_for("the victim's node connects", BOUND, || rogue.has_victim())
        .and_then(|()| rogue.attempt(op, region.remote().addr, rkey));
    device.meta_remove(LISTEN)?;
    match outcome? {
        None => bail!("{op:?} works"),
        Some(why) => ensure!(why == "remote access error", "{op:?}: {why}"),
    }
    Ok(())
}

/// A meta server tries to READ, and to WRITE.
pub fn reaches_no_region() -> Result<()> {
    let device = Device::open_on(VICTIM_NODE)?;
    let region = allocate_in_block(&device, BYTES)?;
    region.store_u64(0, SECRET)?;
    let mut rkey = None;
    // Upkeep may be registering it just now.
    wait_for("the device knows the region", BOUND, || {
        rkey = device_key().ok();
        Ok(rkey.is_some())
    })?;
    let rkey = rkey.context("it has no key")?;
    for op in [Op::Read, Op::Write] {
        refused(op, &device, &region, rkey)?;
        ensure!(region.load_u64(0)? == SECRET, "the region has changed");
    }
    Ok(())
}
