// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that a fork has made two of: peers see that of whoever registered it.

use std::sync::atomic::Ordering;

use anyhow::{ensure, Result};
use weft_core::uapi::{MrReg, ACCESS_ALL, ACCESS_REMOTE_READ};

use super::peer::Peer;
use super::Turns;
use crate::isolation::users::{in_child, wait};
use crate::raw::{Memory, Session};

const BYTES: usize = 4 * 4096;
/// Bytes in different pages: one that both change, one that the peer changes.
const SHARED: usize = 10;
const PEERS: usize = 4096 + 10;

/// Kilobytes that this process has to answer for.
fn pinned_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.unwrap_or("0").parse()?)
}

fn get(memory: &Memory, at: usize) -> u8 {
    memory.byte(at).load(Ordering::Relaxed)
}

fn put(memory: &Memory, at: usize, byte: u8) {
    memory.byte(at).store(byte, Ordering::Relaxed);
}

/// What the child does to its copy, and sees of it.
fn child(memory: &Memory, turns: &Turns) -> Result<()> {
    turns.take()?;
    let pinned = pinned_kib()?;
    ensure!(pinned == 0, "the child answers for {pinned} KiB");
    put(memory, SHARED, 99);
    turns.pass()?;
    turns.take()?;
    let seen = (get(memory, SHARED), get(memory, PEERS));
    ensure!(seen == (99, 1), "the child sees {seen:?}");
    Ok(())
}

fn two_copies(access: u32, registered_before: bool) -> Result<()> {
    let (session, memory) = (Session::open(0)?, Memory::map(BYTES)?);
    let (ours, theirs) = Turns::pair()?;
    memory.fill(0, &[1; BYTES]);
    let register = || session.register(&memory, 0, BYTES as u64, access);
    let early = registered_before.then(register).transpose()?;
    let pid = in_child(|| child(&memory, &theirs))?;
    let reg = early.map_or_else(register, Ok)?;
    let peer = Peer::new()?;
    parent(&memory, &ours, &peer, &reg)?;
    ours.pass()?;
    wait(pid)
}

fn parent(memory: &Memory, turns: &Turns, peer: &Peer, reg: &MrReg) -> Result<()> {
    let pinned = pinned_kib()?;
    ensure!(
        pinned >= BYTES as u64 / 1024,
        "the parent answers for {pinned} KiB"
    );
    turns.pass()?;
    turns.take()?;
    let seen = peer.read(reg, SHARED as u64)?;
    ensure!(seen == 1, "after the child's write the peer reads {seen}");
    put(memory, SHARED, 2);
    let seen = peer.read(reg, SHARED as u64)?;
    ensure!(seen == 2, "after the parent's write the peer reads {seen}");
    if reg.access == ACCESS_ALL {
        peer.write(reg, PEERS as u64, 3)?;
        let seen = get(memory, PEERS);
        ensure!(seen == 3, "after the peer's write the parent sees {seen}");
    }
    Ok(())
}

pub(super) fn writable_before() -> Result<()> {
    two_copies(ACCESS_ALL, true)
}

pub(super) fn readable_before() -> Result<()> {
    two_copies(ACCESS_REMOTE_READ, true)
}

pub(super) fn writable_after() -> Result<()> {
    two_copies(ACCESS_ALL, false)
}

pub(super) fn readable_after() -> Result<()> {
    two_copies(ACCESS_REMOTE_READ, false)
}

/// Pages that are all zero are one page, until somebody writes.
pub(super) fn untouched() -> Result<()> {
    let (session, memory) = (Session::open(0)?, Memory::map(BYTES)?);
    // Reading makes it the page that all share.
    ensure!(get(&memory, SHARED) == 0, "new memory is not zero");
    let reg = session.register(&memory, 0, BYTES as u64, ACCESS_REMOTE_READ)?;
    let peer = Peer::new()?;
    for byte in [0, 1, 2] {
        put(&memory, SHARED, byte);
        put(&memory, PEERS, byte);
        let seen = (
            peer.read(&reg, SHARED as u64)?,
            peer.read(&reg, PEERS as u64)?,
        );
        ensure!(seen == (byte, byte), "of {byte} the peer reads {seen:?}");
    }
    Ok(())
}
