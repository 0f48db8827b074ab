// SPDX-License-Identifier: MIT OR Apache-2.0

//! The victim's rings, VQPs and peers, by their handles, in calls and requests of the
//! attacker's own.

use anyhow::Result;
use nix::errno::Errno;
use weft_core::uapi::{
    self, Pod, SendWr, VqpCreate, OP_WRITE, RINGS_NONE, SEND_SIGNALED, VQP_SHARED_RECEIVE,
    VQP_UNCONNECTED,
};

use super::attacker::{refusal, unanimous, Outcome, Stage};
use crate::raw::{request, Queue, Session};
use crate::world::gid;

/// Calls something with each of the victim's rings, in a session without any.
fn with_rings(stage: &Stage, call: impl Fn(&Session, u32) -> Result<(), Errno>) -> Result<Outcome> {
    let session = Session::open(stage.node)?;
    let handles = stage.told.ring_handles.iter();
    unanimous(handles.map(|rings| Ok(refusal(call(&session, *rings)))))
}

pub fn destroy_rings(stage: &mut Stage) -> Result<Outcome> {
    with_rings(stage, Session::destroy_rings)
}

pub fn complete_to(stage: &mut Stage) -> Result<Outcome> {
    with_rings(stage, |session, rings| {
        let arg = VqpCreate {
            cq: rings,
            rq: RINGS_NONE,
            max_send_wr: 4,
            gid: gid(0),
            ..Pod::zeroed()
        };
        session.make_vqp(arg).map(drop)
    })
}

pub fn enter(stage: &mut Stage) -> Result<Outcome> {
    with_rings(stage, |session, rings| {
        session.enter_rings(rings, 0, 0, 0).map(drop)
    })
}

pub fn submit_from(stage: &mut Stage) -> Result<Outcome> {
    with_rings(stage, |session, rings| {
        session.enter_rings(rings, 1, 0, 0).map(drop)
    })
}

/// A session with rings of its own, whose handle is one of the victim's too or not, and
/// handles of the victim's that are none of its own.
fn own_rings(stage: &Stage) -> Result<(Session, Queue, Vec<u32>)> {
    let session = Session::open(stage.node)?;
    let rings = session.make_rings(16, 16, 16)?;
    let queue = Queue::of_rings(&session, &rings)?;
    let others = stage.told.ring_handles.iter().copied();
    let others = others.filter(|handle| *handle != rings.rings).collect();
    Ok((session, queue, others))
}

pub fn receive_from(stage: &mut Stage) -> Result<Outcome> {
    let (session, queue, others) = own_rings(stage)?;
    unanimous(others.into_iter().map(|rq| {
        let arg = VqpCreate {
            cq: queue.said.of_rings.rings,
            rq,
            max_send_wr: 4,
            flags: VQP_SHARED_RECEIVE,
            ..Pod::zeroed()
        };
        Ok(refusal(session.make_vqp(arg)))
    }))
}

pub fn wait_for(stage: &mut Stage) -> Result<Outcome> {
    let (session, queue, others) = own_rings(stage)?;
    let own = queue.said.of_rings.rings;
    unanimous(others.into_iter().flat_map(|theirs| {
        [(own, theirs), (theirs, own), (theirs, theirs)]
            .map(|(sq, cq)| Ok(refusal(session.enter_any(sq, 0, cq, 1, 1_000_000))))
    }))
}

/// A WRITE of nothing that is the attacker's.
fn any_request(stage: &Stage) -> SendWr {
    let own = stage.own.remote();
    let local = uapi::Sge {
        addr: own.addr,
        len: 8,
        lkey: stage.own.lkey(),
    };
    SendWr {
        flags: SEND_SIGNALED,
        ..request(OP_WRITE, local, own.addr, own.rkey)
    }
}

pub fn name_vqps(stage: &mut Stage) -> Result<Outcome> {
    let (session, queue, _) = own_rings(stage)?;
    let wr = any_request(stage);
    let own = queue.said.of_rings.rings;
    unanimous(stage.told.vqps.iter().map(|vqp| {
        let wr = SendWr { vqp: *vqp, ..wr };
        Ok(refusal(queue.submit(&session, &[wr], own, 0, 0)))
    }))
}

pub fn name_peers(stage: &mut Stage) -> Result<Outcome> {
    let (session, queue, _) = own_rings(stage)?;
    let own = queue.said.of_rings.rings;
    let vqp = session.make_vqp(VqpCreate {
        cq: own,
        rq: RINGS_NONE,
        max_send_wr: 4,
        flags: VQP_UNCONNECTED,
        ..Pod::zeroed()
    })?;
    let wr = any_request(stage);
    unanimous(stage.told.peers.iter().map(|peer| {
        let peer = *peer;
        let wr = SendWr { vqp, peer, ..wr };
        Ok(refusal(queue.submit(&session, &[wr], own, 0, 0)))
    }))
}

pub fn close_peers(stage: &mut Stage) -> Result<Outcome> {
    let session = Session::open(stage.node)?;
    let handles = stage.told.peers.iter();
    unanimous(handles.map(|peer| Ok(refusal(session.close_peer(*peer)))))
}
