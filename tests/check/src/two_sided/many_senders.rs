// SPDX-License-Identifier: MIT OR Apache-2.0

//! More senders than a listener keeps VQPs for.

use anyhow::{ensure, Context, Result};
use weft_core::uapi::MAX_SENDERS;
use weft_shim::{Device, Error, MemoryRegion, RecvWr, SendWr, Sender, Vqp, MAX_ACCEPTED};

use super::ends::{post, reap, sender, Ear};
use crate::world::full_access;

/// Bytes of a message.
const LEN: usize = 8;

/// A VQP that has sent something, and can hear one answer.
fn caller(device: &Device, ear: &mut Ear, memory: &MemoryRegion) -> Result<(Vqp, Sender)> {
    let mut vqp = sender(device, ear.port, 4, 1)?;
    let buffer = RecvWr::new(memory.slice(LEN..2 * LEN)?);
    ensure!(vqp.post_recv(&[buffer]) == 1, "no room for a buffer");
    vqp.run(SendWr::send(memory.slice(0..LEN)?))?;
    let from = ear.next()?.sender();
    let Some(from) = from else {
        anyhow::bail!("a message of nobody");
    };
    Ok((vqp, from))
}

/// Each of `senders` callers sends a message, and the ear hears them all.
fn all_call(senders: usize) -> Result<(Ear, Vec<(Vqp, Sender)>)> {
    let mut ear = Ear::new(senders * LEN, u32::try_from(senders)?)?;
    ear.post(senders, LEN)?;
    let device = Device::open_on(0)?;
    let memory = MemoryRegion::allocate(&device, 2 * LEN, full_access())?;
    let mut callers = Vec::new();
    for _ in 0..senders {
        callers.push(caller(&device, &mut ear, &memory)?);
    }
    Ok((ear, callers))
}

/// Half as many senders as a port has places for are all known when the last has sent,
/// whatever places their names get.
pub fn all_are_known() -> Result<()> {
    let (mut ear, callers) = all_call(MAX_SENDERS / 2)?;
    for (at, (_, from)) in callers.iter().enumerate() {
        let made = ear.listener.vqp(*from);
        made.with_context(|| format!("sender {at}"))?;
    }
    Ok(())
}

/// The VQP of a sender whose answer was not heard of is not pushed out by one more sender.
pub fn none_is_lost() -> Result<()> {
    let (mut ear, mut callers) = all_call(MAX_ACCEPTED + 1)?;
    let Ear {
        listener,
        memory: at_ear,
        ..
    } = &mut ear;
    let answer = SendWr::send(at_ear.slice(0..LEN)?).signaled();
    let (last, others) = (callers[MAX_ACCEPTED].1, &callers[..MAX_ACCEPTED]);
    for (_, from) in others {
        post(listener.vqp(*from)?, &[answer])?;
    }
    // Each answer's completion is there or comes.
    let full = listener.vqp(last).err();
    ensure!(full == Some(Error::TooManySenders), "one more got {full:?}");
    // One was heard of: it makes room.
    reap(listener.vqp(others[7].1)?, 1)?;
    post(listener.vqp(last)?, &[answer])?;
    for (at, (_, from)) in callers.iter().enumerate() {
        if at != 7 {
            reap(listener.vqp(*from)?, 1)?;
        }
    }
    for (vqp, _) in &mut callers {
        reap(vqp, 1)?;
    }
    Ok(())
}
