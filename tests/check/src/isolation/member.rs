// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a member of the network can do who knows a DC target's number and key, as root
//! does who reads a meta server's table; others have to guess the key. The packets come
//! from a socket of the attacker's own.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use nix::unistd::Uid;
use weft_core::dc::wire::{Destination, Kind, Message, Receiver, Request};
use weft_core::kv::Geometry;
use weft_core::mr::{BlockSize, Keys, Notice, NoticeKind};
use weft_core::rc::{Hello, Role};
use weft_shim::Device;

use super::attacker::{Outcome, Stage};
use super::forged::Aim;
use super::victim::Part;
use crate::packets::{self, memory_kib};
use crate::rc;
use crate::world::{counter, gid, system, wait_for};

/// Packets of each kind.
const PACKETS: u32 = 200;
/// Contexts that are asked for, each by a stream of its own.
const CONTEXTS: u32 = 20_000;
/// What a node gives to one address at most, of a machine's memory: a quarter of all.
const MOST_CONTEXTS_PER_MIB: u64 = 12;
/// A peer that is down delays another's RC queue pair by less.
const DELAY: Duration = Duration::from_secs(3);
const NO_EFFECT: Result<Outcome> = Ok(Outcome::Said("no effect"));

/// The victim's node as the attacker knows it.
fn aim(stage: &Stage, kind: Kind) -> Result<Aim> {
    let mut aim = Aim::take(stage, Part::Readable, kind)?;
    aim.request.destination.dct_key = match Uid::current().is_root() {
        true => packets::target(0)?.destination.dct_key,
        false => stage.rng().next(),
    };
    Ok(aim)
}

/// A message to the node itself, in the name of node 1.
fn control_message(aim: &Aim, token: u64, text: &[u8]) -> Vec<u8> {
    let len = text.len() as u32;
    let request = Request {
        token,
        psn: 0,
        remote_addr: 0,
        rkey: 0,
        len,
        ..aim.request
    };
    let message = Message {
        total: len,
        imm: None,
        to: Receiver::Node,
        sender: Destination {
            dct_number: 1,
            dct_key: token,
            incarnation: 1,
        },
    };
    [&request.encode()[..], &message.encode(), text].concat()
}

/// That regions of node 1 are gone, by a number that is no queue pair's, with a DC target
/// that is not node 1's.
pub fn notices(stage: &mut Stage) -> Result<Outcome> {
    let aim = aim(stage, Kind::Send)?;
    let mut rng = stage.rng();
    for _ in 0..PACKETS {
        let mut keys = Keys::NONE;
        keys.push(rng.next() as u32);
        let notice = Notice {
            token: rng.next(),
            seq: 1,
            kind: NoticeKind::Gone(keys),
        };
        aim.send(&control_message(&aim, rng.next(), &notice.encode()))?;
    }
    NO_EFFECT
}

/// Offers of an RC queue pair in the name of node 1: what there is to node 1 stays.
pub fn offers(stage: &mut Stage) -> Result<Outcome> {
    let aim = aim(stage, Kind::Send)?;
    let mut rng = stage.rng();
    let lost = counter("rc_lost");
    for _ in 0..PACKETS {
        let hello = Hello {
            role: Role::Offer,
            gid: gid(1),
            token: rng.next(),
            qpn: 17,
            psn: 1,
            mtu: 5,
            read_depth: 1,
            table_addr: 0,
            table_rkey: 1,
            geometry: Geometry::for_capacity(8192).ok_or(nix::errno::Errno::EINVAL)?,
            blocks: BlockSize::new(21).ok_or(nix::errno::Errno::EINVAL)?,
            nonce: 0,
        };
        aim.send(&control_message(&aim, rng.next(), &hello.encode()))?;
    }
    std::thread::sleep(Duration::from_millis(500));
    if let Ok(lost) = lost {
        ensure!(counter("rc_lost")? == lost, "a queue pair was lost");
    }
    NO_EFFECT
}

/// A READ that is well-formed, and its repetitions with a length that no request has.
pub fn repeated_reads(stage: &mut Stage) -> Result<Outcome> {
    let mut aim = aim(stage, Kind::Read)?;
    aim.request.token = stage.rng().next();
    aim.send(&aim.request.encode())?;
    aim.request.len = 1 << 20;
    for _ in 0..PACKETS {
        aim.send(&aim.request.encode())?;
    }
    NO_EFFECT
}

/// As many contexts as one address gets at a target. Root has them for another address
/// than the victim's, whose share they would be.
pub fn contexts(stage: &mut Stage) -> Result<Outcome> {
    let mut aim = aim(stage, Kind::Read)?;
    if Uid::current().is_root() {
        aim.socket =
            packets::in_namespace("n2", || Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?))?;
    }
    let mut rng = stage.rng();
    for stream in 0..CONTEXTS {
        aim.request.stream = stream;
        aim.request.token = rng.next();
        aim.send(&aim.request.encode())?;
    }
    if let Ok(contexts) = counter("contexts") {
        let most = MOST_CONTEXTS_PER_MIB * (memory_kib("MemTotal")? >> 10);
        ensure!(contexts as u64 <= most, "{contexts} contexts");
    }
    NO_EFFECT
}

/// What is pinned, until it is dropped; and the link of node 2, which is down.
struct Pins(Device);

impl Drop for Pins {
    fn drop(&mut self) {
        for node in [1, 2] {
            let _ = self.0.pool_unpin(gid(node));
        }
        let _ = system("ip -n n2 link set v2 up");
    }
}

/// A peer that is down is pinned before one that is up.
pub fn dead_peer(stage: &mut Stage) -> Result<Outcome> {
    let pins = Pins(Device::open_on(0)?);
    system("ip -n n2 link set v2 down")?;
    pins.0.pool_pin(gid(2))?;
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    pins.0.pool_pin(gid(1))?;
    let up = wait_for("node 1 is connected by RC", DELAY, || rc::goes_by_rc(0, 1));
    stage.hold(pins);
    up?;
    eprintln!("# RC is up after {:?}", start.elapsed());
    Ok(Outcome::Said("up"))
}

/// A meta server that is told a region's address and the device's key.
pub fn meta_server(_: &mut Stage) -> Result<Outcome> {
    rc::meta_server_reaches_no_region()?;
    Ok(Outcome::Said("no region"))
}
