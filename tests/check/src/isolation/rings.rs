// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings: where they are mapped from is no secret, and nothing but a name in the
//! attacker's own session.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use weft_core::uapi::{WcStatus, ACCESS_ALL};
use weft_shim::Remote;

use super::attacker::{refusal, unanimous, Outcome, Stage};
use super::table::Verb;
use super::users::open_victims;
use crate::raw::{Memory, Queue, Session, MANY_VQPS};

const PAGE: u64 = 4096;
/// How far apart VQPs' rings are.
const STRIDE: u64 = 1 << 24;
const MARK: u8 = 0xa5;
/// Rings that are filled and freed.
const MANY: usize = 64;

fn map(session: &Session, offset: u64, bytes: u32) -> Result<Memory, Errno> {
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_SHARED;
    Memory::of_device(session.as_fd(), offset, bytes as usize, prot, flags)
}

fn refused(session: &Session, offset: u64, bytes: u32) -> Result<Outcome> {
    Ok(refusal(map(session, offset, bytes)))
}

/// By every handle that there may be, in a session without VQPs.
pub fn anywhere(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let mut rng = stage.rng();
    let told = stage.told.rings.iter().copied();
    let handles = (0..=MANY_VQPS as u64).chain([1 << 31, u32::MAX.into()]);
    let random = std::iter::repeat_with(move || rng.next() >> 32).take(200);
    let all = handles.chain(random).map(|handle| (handle * STRIDE, 4096));
    unanimous(told.chain(all).map(|(at, len)| refused(&session, at, len)))
}

/// Not where rings begin, although the attacker has rings before and behind it.
pub fn between(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    for _ in &stage.told.rings {
        session.create_vqp(16)?;
    }
    let places = stage.told.rings.iter().flat_map(|(offset, bytes)| {
        let bytes = *bytes;
        [PAGE, u64::from(bytes), STRIDE / 2, STRIDE - PAGE].map(|more| (offset + more, bytes))
    });
    unanimous(places.map(|(at, len)| refused(&session, at, len)))
}

/// The victim's offsets are the attacker's own rings, once it has some.
pub fn same_place(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let own = (0..16)
        .map(|_| session.queue(16, 0))
        .collect::<Result<Vec<Queue>, _>>()?;
    let mut same = 0;
    for (offset, bytes) in &stage.told.rings {
        let Some(queue) = own.iter().find(|own| own.said.map_offset == *offset) else {
            continue;
        };
        same += 1;
        let bytes = (*bytes).min(queue.said.ring_bytes) as usize;
        let rings = map(&session, *offset, queue.said.ring_bytes)?;
        ensure!(
            rings.bytes(0, bytes).iter().all(|byte| *byte == 0),
            "there is something in its new rings"
        );
        rings.fill(0, &vec![MARK; bytes]);
        let seen = queue.rings.bytes(0, bytes);
        ensure!(
            seen.iter().all(|byte| *byte == MARK),
            "they are not the attacker's own"
        );
    }
    ensure!(
        same > 0,
        "none of its rings is where one of the victim's is"
    );
    stage.hold((own, session));
    Ok(Outcome::Said("its own"))
}

/// What others have had in their rings.
pub fn leftovers(_: &mut Stage) -> Result<Outcome> {
    for round in 0..2 {
        let session = open_victims()?;
        for _ in 0..MANY {
            let queue = session.queue(64, 64)?;
            let bytes = queue.said.ring_bytes as usize;
            let clean = queue.rings.bytes(0, bytes).iter().all(|byte| *byte == 0);
            ensure!(clean, "there is something in new rings, round {round}");
            queue.rings.fill(0, &vec![MARK; bytes]);
        }
    }
    Ok(Outcome::Said("zeroes"))
}

pub fn longer(_: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let queue = session.queue(16, 16)?;
    let bytes = queue.said.ring_bytes as usize;
    let mut rings = queue.rings;
    unanimous([PAGE as usize, 1 << 20].map(|more| Ok(refusal(rings.grow(bytes + more)))))
}

/// Rings are registered, and go. What is written to the region then is written to
/// nobody's rings.
pub fn registered(stage: &mut Stage) -> Result<Outcome> {
    let session = Session::open(stage.node)?;
    let mut regs = Vec::new();
    for _ in 0..MANY {
        let queue = session.queue(16, 0)?;
        let bytes = queue.said.ring_bytes.into();
        match session.register_at(queue.rings.addr(), bytes, ACCESS_ALL) {
            Ok(reg) => regs.push(reg),
            // A kernel may have it that such memory is not to be pinned.
            Err(Errno::EFAULT) => {}
            Err(errno) => return Ok(Outcome::Errno(errno)),
        }
        session.destroy_vqp(queue.vqp)?;
    }
    // Whoever makes rings now may be given what those have left.
    let heirs = (0..MANY)
        .map(|_| open_victims()?.queue(16, 0).map_err(anyhow::Error::from))
        .collect::<Result<Vec<Queue>>>()?;
    for reg in &regs {
        let remote = Remote {
            addr: reg.addr,
            rkey: reg.rkey,
        };
        let outcome = stage.write_home(remote, reg.len.min(4096) as usize)?;
        ensure!(
            outcome == Outcome::Status(WcStatus::Success),
            "{:?} to its own region: {outcome}",
            Verb::Write
        );
    }
    for heir in &heirs {
        let bytes = heir.rings.bytes(0, heir.said.ring_bytes as usize);
        ensure!(
            bytes.iter().all(|byte| *byte == 0),
            "new rings are what others can write"
        );
    }
    stage.hold((session, heirs));
    Ok(Outcome::Said("nobody's"))
}
