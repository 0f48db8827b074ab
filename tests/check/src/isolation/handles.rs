// SPDX-License-Identifier: MIT OR Apache-2.0

//! The victim's handles and local keys, in the attacker's session.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::uapi::{self, Pod};

use super::attacker::{refusal, unanimous, Outcome, Stage};
use super::victim::Part;
use crate::raw::{Memory, Session};
use crate::world::gid;

/// Calls something with each of the victim's handles, in a session without VQPs.
fn with_each(stage: &Stage, call: impl Fn(&Session, u32) -> Result<(), Errno>) -> Result<Outcome> {
    let session = Session::open(stage.node)?;
    let handles = stage.told.vqps.iter();
    unanimous(handles.map(|vqp| Ok(refusal(call(&session, *vqp)))))
}

pub fn destroy(stage: &mut Stage) -> Result<Outcome> {
    with_each(stage, Session::destroy_vqp)
}

pub fn connect(stage: &mut Stage) -> Result<Outcome> {
    with_each(stage, |session, vqp| session.qconnect(vqp, gid(0)))
}

pub fn run(stage: &mut Stage) -> Result<Outcome> {
    let own = stage.own.remote();
    with_each(stage, |session, vqp| {
        let run = uapi::Run {
            vqp,
            opcode: uapi::OP_READ.into(),
            rkey: own.rkey,
            reserved: 0,
            remote_addr: own.addr,
            local: uapi::Sge {
                addr: own.addr,
                len: 8,
                lkey: own.rkey,
            },
        };
        session.run(&run).map(drop)
    })
}

/// The same handles name the attacker's own VQPs, once it has some.
pub fn destroy_own(stage: &mut Stage) -> Result<Outcome> {
    let session = Session::open(stage.node)?;
    let own: Vec<u32> = (0..16)
        .map(|_| session.create_vqp(4))
        .collect::<Result<_, _>>()?;
    let mut same = 0;
    for vqp in stage.told.vqps.iter().filter(|vqp| own.contains(vqp)) {
        same += 1;
        session.destroy_vqp(*vqp)?;
        let again = session.destroy_vqp(*vqp);
        ensure!(again == Err(Errno::EBADF), "destroying it again: {again:?}");
    }
    ensure!(same > 0, "none of its handles is one of the victim's");
    Ok(Outcome::Said("its own"))
}

/// By local and by remote key, those that have gone included.
pub fn deregister(stage: &mut Stage) -> Result<Outcome> {
    let keys = stage.told.places.iter().flat_map(|p| [p.lkey, p.rkey]);
    unanimous(keys.map(|key| Ok(refusal(stage.raw.deregister(key)))))
}

/// Nor bind windows to them.
pub fn bind_windows(stage: &mut Stage) -> Result<Outcome> {
    let places = stage.told.places.iter();
    let keys = places.flat_map(|place| [(place.addr, place.lkey), (place.addr, place.rkey)]);
    unanimous(keys.map(|(addr, lkey)| {
        let region = uapi::MrReg {
            addr,
            lkey,
            ..Pod::zeroed()
        };
        let bound = stage
            .raw
            .bind_window(&region, 0, 8, uapi::ACCESS_REMOTE_READ);
        Ok(refusal(bound))
    }))
}

/// A session may not deregister what another one of the same process has.
pub fn deregister_second(stage: &mut Stage) -> Result<Outcome> {
    let memory = Memory::map(4096)?;
    let other = Session::open(stage.node)?;
    let lkey = other.register(&memory, 0, 4096, 1)?.lkey;
    let keys = [lkey, stage.own.lkey(), stage.told.place(Part::Secret).lkey];
    let outcome = unanimous(keys.map(|key| Ok(refusal(stage.raw.deregister(key)))))?;
    other.deregister(lkey)?;
    Ok(outcome)
}
