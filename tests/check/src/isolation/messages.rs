// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages to the victim, ports, and senders that others have heard from.

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{
    Pod, SendWr, Sge, Wc, WcStatus, MAX_SENDERS, OP_SEND, OP_WRITE_WITH_IMM, SEND_SIGNALED,
    SRC_NONE, WC_RECV,
};

use super::attacker::{refusal, unanimous, Outcome, Stage, OWN};
use super::users::open_victims;
use super::victim::{Part, BUFFER};
use crate::raw::{buffer, message, request, Queue, Session};
use crate::world::gid;

/// The attacker's own port, on its own node.
const OWN_PORT: u32 = 5711;
/// Generations of senders' numbers that are tried.
const GENERATIONS: u32 = 4;

/// A VQP for messages to a port of a node.
pub fn to_port(session: &Session, node: u8, port: u32) -> Result<Queue, Errno> {
    let queue = session.queue(16, 0)?;
    session.qconnect_port(queue.vqp, gid(node), port)?;
    Ok(queue)
}

/// How a request ends on a VQP that is connected to the victim's port.
fn to_victim(stage: &Stage, wr: SendWr) -> Result<Outcome> {
    let queue = to_port(&stage.raw, 0, stage.told.ports[0])?;
    let flags = wr.flags | SEND_SIGNALED;
    let status = queue.outcome(&stage.raw, SendWr { flags, ..wr })?;
    stage.raw.destroy_vqp(queue.vqp)?;
    Ok(Outcome::Status(status))
}

/// Memory of the attacker's session without manners.
fn with_own(stage: &Stage, body: impl FnOnce(Sge) -> Result<Outcome>) -> Result<Outcome> {
    let memory = crate::raw::Memory::map(OWN)?;
    let reg = stage.raw.register(&memory, 0, OWN as u64, 1)?;
    let outcome = body(Sge {
        addr: reg.addr,
        len: 8,
        lkey: reg.lkey,
    });
    stage.raw.deregister(reg.lkey)?;
    outcome
}

// ---- to the victim's port ----

pub fn bind(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    unanimous(stage.told.ports.map(|port| {
        let vqp = session.describe_vqp(4, 4)?.vqp;
        Ok(refusal(session.qbind(vqp, port)))
    }))
}

pub fn one(stage: &mut Stage) -> Result<Outcome> {
    to_victim(stage, message(b"a message like any other"))
}

pub fn too_long(stage: &mut Stage) -> Result<Outcome> {
    let lens = [BUFFER as u32 + 1, 4096, OWN as u32];
    unanimous(lens.map(|len| {
        with_own(stage, |own| {
            to_victim(stage, request(OP_SEND, Sge { len, ..own }, 0, 0))
        })
    }))
}

/// The victim's memory as what is sent.
pub fn gather(stage: &mut Stage) -> Result<Outcome> {
    let parts = [Part::Secret, Part::Readable, Part::Stale, Part::Elsewhere];
    unanimous(parts.map(|part| {
        let place = stage.told.place(part);
        let local = Sge {
            addr: place.addr + 64,
            len: 8,
            lkey: place.lkey,
        };
        to_victim(stage, request(OP_SEND, local, 0, 0))
    }))
}

fn with_imm(stage: &Stage, part: Part, offset: u64) -> Result<Outcome> {
    let place = stage.told.place(part);
    with_own(stage, |own| {
        let wr = request(OP_WRITE_WITH_IMM, own, place.addr + offset, place.rkey);
        to_victim(stage, SendWr { imm: 7, ..wr })
    })
}

pub fn allowed_imm(stage: &mut Stage) -> Result<Outcome> {
    with_imm(stage, Part::Writable, 0)
}

pub fn bad_imm(stage: &mut Stage) -> Result<Outcome> {
    let parts = [Part::Secret, Part::Readable, Part::Counters, Part::Stale];
    unanimous(parts.map(|part| with_imm(stage, part, 64)))
}

// ---- the attacker's own port ----

/// Posts a buffer and sends a message to it; how that ended on both sides.
fn to_own(
    stage: &Stage,
    inbox: &(Session, Queue),
    local: Sge,
    wr: SendWr,
) -> Result<(WcStatus, Wc)> {
    let (session, queue) = inbox;
    ensure!(queue.post_recv(&buffer(9, local)), "there is no room");
    let sender = to_port(session, stage.home(), OWN_PORT)?;
    let status = sender.outcome(session, wr)?;
    let wc = queue.next(session)?;
    ensure!((wc.wr_id, wc.opcode) == (9, WC_RECV), "it is {wc:?}");
    Ok((status, wc))
}

fn own_inbox(stage: &Stage) -> Result<(Session, Queue)> {
    let session = Session::open(stage.node)?;
    let queue = session.queue(4, 4)?;
    session.qbind(queue.vqp, OWN_PORT)?;
    Ok((session, queue))
}

/// The victim's memory as where messages arrive. The fault is the receiver's; its
/// sender hears that it could not be done.
pub fn receive_into(stage: &mut Stage) -> Result<Outcome> {
    let inbox = own_inbox(stage)?;
    let parts = [
        Part::Secret,
        Part::Writable,
        Part::Counters,
        Part::Stale,
        Part::Elsewhere,
    ];
    unanimous(parts.map(|part| {
        let place = stage.told.place(part);
        let local = Sge {
            addr: place.addr + 64,
            len: 64,
            lkey: place.lkey,
        };
        let (sent, wc) = to_own(stage, &inbox, local, message(&[1; 64]))?;
        ensure!(sent == WcStatus::RemOpErr, "its sender hears {sent:?}");
        let status = WcStatus::from_number(wc.status.into());
        Ok(Outcome::Status(status.context("an unknown status")?))
    }))
}

// ---- accepting ----

pub fn accept_by_foreign(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let handles = stage.told.vqps.iter().copied().chain(0..16);
    let src = stage.told.src;
    unanimous(handles.map(|bound| Ok(refusal(session.accept(bound, src, 4)))))
}

pub fn accept_by_unbound(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let own = (0..8)
        .map(|_| Ok(session.describe_vqp(4, 4)?.vqp))
        .collect::<Result<Vec<u32>>>()?;
    session.qconnect(own[0], gid(0))?;
    let src = stage.told.src;
    unanimous(
        own.iter()
            .map(|bound| Ok(refusal(session.accept(*bound, src, 4)))),
    )
}

/// By all numbers that senders are given, on a VQP that has heard from none.
pub fn accept_unheard(stage: &mut Stage) -> Result<Outcome> {
    let (session, queue) = own_inbox(stage)?;
    let numbers = (0..GENERATIONS * MAX_SENDERS as u32).chain([stage.told.src, SRC_NONE]);
    unanimous(numbers.map(|src| Ok(refusal(session.accept(queue.vqp, src, 4)))))
}

/// By all numbers, on a VQP that has heard from one.
pub fn accept_others(stage: &mut Stage) -> Result<Outcome> {
    let inbox = own_inbox(stage)?;
    let (sent, wc) = with_heard(stage, &inbox)?;
    ensure!(sent == WcStatus::Success, "its own message ended {sent:?}");
    let (session, queue) = &inbox;
    let made = session.accept(queue.vqp, wc.src, 4)?;
    session.destroy_vqp(made.vqp)?;
    let all = (0..GENERATIONS * MAX_SENDERS as u32).filter(|src| *src != wc.src);
    let flipped = (0..32).map(|bit| wc.src ^ (1 << bit));
    let numbers = all.chain(flipped).chain([SRC_NONE]);
    unanimous(numbers.map(|src| Ok(refusal(session.accept(queue.vqp, src, 4)))))
}

fn with_heard(stage: &Stage, inbox: &(Session, Queue)) -> Result<(WcStatus, Wc)> {
    to_own(stage, inbox, Sge::zeroed(), message(&[]))
}
