// SPDX-License-Identifier: GPL-2.0

//! The bytes of an initiator's requests and responses, from and to local memory.

use weft_core::dc::wire::{Kind, MESSAGE_BYTES};
use weft_core::dc::{Op, Outgoing};
use weft_core::uapi::WcStatus;

use crate::mem::{Access, MrTable};
use crate::net::{Bearer, Skb, Train};
use crate::sync::BhDisabled;

/// Adds a request to those that are sent. `Err`: local memory that it names may not
/// be used so.
pub(super) fn append<B: Bearer>(
    train: &mut Train<'_, B>,
    path: &mut B::Path,
    bh: &BhDisabled,
    mrs: &MrTable,
    outgoing: &Outgoing<'_>,
) -> Result<(), ()> {
    let request = &outgoing.request;
    let (kind, op) = (request.kind, outgoing.op);
    let carries = matches!(kind, Kind::Write | Kind::Send | Kind::WriteImm);
    if !carries {
        // The answer's bytes need a buffer.
        let mut pieces = op.local.pieces(outgoing.offset, request.len);
        let usable = pieces.all(|sge| {
            let access = Access::LocalWrite;
            mrs.find(bh, sge.lkey, op.owner, sge.addr, sge.len, access)
                .is_some()
        });
        if !usable {
            return Err(());
        }
    }
    let bytes = request.payload_bytes() as u32;
    train.append(path, &request.encode(), bytes, outgoing.more, |to| {
        if kind.is_atomic() {
            to.copy_from_slice(&op.operands.encode());
            return Ok(());
        }
        let before = outgoing.message.map_or(0, |_| MESSAGE_BYTES);
        let (head, body) = to.split_at_mut_checked(before).ok_or(())?;
        if let Some(message) = &outgoing.message {
            head.copy_from_slice(message);
        }
        gather(bh, mrs, op, outgoing.offset, body)
    })
}

/// Fills `to` with the operation's bytes from `offset` on.
fn gather(
    bh: &BhDisabled,
    mrs: &MrTable,
    op: &Op,
    offset: u32,
    mut to: &mut [u8],
) -> Result<(), ()> {
    if let Some(bytes) = op.local.inline(offset, to.len() as u32) {
        to.copy_from_slice(bytes);
        return Ok(());
    }
    for sge in op.local.pieces(offset, to.len() as u32) {
        let (now, rest) = to.split_at_mut_checked(sge.len as usize).ok_or(())?;
        let piece = mrs
            .find(bh, sge.lkey, op.owner, sge.addr, sge.len, Access::LocalRead)
            .ok_or(())?;
        if !piece.read(now) {
            return Err(());
        }
        to = rest;
    }
    // Bytes that no piece gave would be other packets'.
    to.is_empty().then_some(()).ok_or(())
}

/// Puts the bytes of a response, `from` there in its packet, where the operation
/// wants them.
pub(super) fn land(
    mrs: &MrTable,
    op: &Op,
    offset: u32,
    len: u32,
    packet: &Skb,
    mut from: u32,
) -> Result<(), WcStatus> {
    let bh = BhDisabled::new();
    for sge in op.local.pieces(offset, len) {
        mrs.find(
            &bh,
            sge.lkey,
            op.owner,
            sge.addr,
            sge.len,
            Access::LocalWrite,
        )
        .filter(|piece| piece.write(packet, from, sge.len))
        .ok_or(WcStatus::LocProtErr)?;
        from += sge.len;
    }
    Ok(())
}
