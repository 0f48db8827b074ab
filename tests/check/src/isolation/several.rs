// SPDX-License-Identifier: MIT OR Apache-2.0

//! What several users take together, and one who is several.

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{setresgid, setresuid};
use nix::sched::{unshare, CloneFlags};
use nix::sys::resource::{setrlimit, Resource};
use nix::unistd::Pid;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use weft_core::uapi::{ACCESS_ALL, MAX_MRS_PER_SESSION, MAX_MRS_PER_USER, MAX_VQPS_PER_USER};
use weft_shim::Device;

use super::attacker::{Outcome, Stage};
use super::crowd::Crowd;
use super::folded::Folded;
use super::users::{become_user, in_child, wait, SOMEBODY};
use crate::raw::{Memory, Session};
use crate::rc;
use crate::world::gid;

/// Users of whom each takes all regions that it gets: more than the node's table of
/// regions for RC has room for.
const GREEDY: usize = 5;
/// Users of whom each has so many regions of so many blocks, besides small ones: together
/// twice as many as the table has room for that peers read.
const TWO: usize = 2;
const REGIONS: usize = 128;
const BLOCKS: usize = 64;
/// Regions that others make then.
const TRIES: usize = 16;
/// Users of whom each takes one thing: more than there once could be.
const MODEST: u32 = 4_300;
const FIRST_USER: u32 = 20_000;
const PAGE: usize = 4096;
/// The first of a user's subordinate uids, and how many are tried.
const SUBORDINATE: u32 = 100_000;
const TRIED: u32 = 3;

/// Lets this process, and those that it makes, have more than usual.
fn lift_limits() -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, u64::MAX, u64::MAX).context("RLIMIT_MEMLOCK")?;
    setrlimit(Resource::RLIMIT_NOFILE, 65_536, 65_536).context("RLIMIT_NOFILE")
}

/// Several users take all regions that they get.
pub fn regions(stage: &mut Stage) -> Result<Outcome> {
    lift_limits()?;
    let (crowd, count) = Crowd::of(GREEDY, |ready| {
        let memory = Memory::map(PAGE)?;
        let (sessions, count) = full_of_regions(&memory)?;
        ready.with(count as u64)?;
        Ok((sessions, memory))
    })?;
    // Standard output is for the answer.
    eprintln!("# {count} regions of {GREEDY} users");
    // Keys are random, so that a refusal may come before a user has all.
    let least = GREEDY as u64 * u64::from(MAX_MRS_PER_USER) / 2;
    ensure!(count >= least, "only {count} regions could be registered");
    stage.hold(crowd);
    Ok(Outcome::Said("registered"))
}

/// Sessions of a user who gets no more regions, and how many regions there are in them.
fn full_of_regions(memory: &Memory) -> Result<(Vec<Session>, usize)> {
    let register = |session: &Session| session.register(memory, 0, 1, ACCESS_ALL).is_ok();
    become_another()?;
    let (mut sessions, mut count) = (Vec::new(), 0);
    loop {
        let session = Session::open(0)?;
        let made = (0..MAX_MRS_PER_SESSION).take_while(|_| register(&session));
        let made = made.count();
        sessions.push(session);
        count += made;
        if made < MAX_MRS_PER_SESSION {
            return Ok((sessions, count));
        }
    }
}

/// Two users have more blocks, in large and in small regions, than the table has room for
/// that peers read before they use a region by RC: others' find room there.
pub fn places_for_rc() -> Result<()> {
    lift_limits()?;
    rc::pin()?;
    let (crowd, count) = Crowd::of(TWO, |ready| {
        become_another()?;
        let (large, small) = (Folded::map(BLOCKS * rc::BLOCK)?, Memory::map(PAGE)?);
        let device = Device::open_on(0)?;
        let regions = (0..REGIONS).map(|_| large.register(&device));
        let regions = regions.collect::<Result<Vec<_>>>()?;
        let (sessions, _) = full_of_regions(&small)?;
        ready.with((regions.len() * BLOCKS) as u64)?;
        // In this order: the regions go before their memory.
        Ok((regions, sessions, large, small))
    })?;
    println!("# {count} blocks in large regions of {TWO} users, and all small ones");
    let by_rc = (0..TRIES).map(|_| rc::goes_by_rc(1, 0));
    let by_rc = by_rc.collect::<Result<Vec<bool>>>();
    drop(crowd);
    Device::open_on(0)?.pool_unpin(gid(1))?;
    let found = by_rc?.into_iter().filter(|found| *found).count();
    ensure!(
        found == TRIES,
        "of {TRIES} other regions {found} are to be had by RC"
    );
    Ok(())
}

/// Makes this process another user's, another one's for each process.
fn become_another() -> Result<()> {
    // Processes that live at the same time have different numbers.
    let user = FIRST_USER + std::process::id();
    // SAFETY: no memory is involved.
    Errno::result(unsafe { setresuid(user, 0, 0) }).context("setresuid")?;
    Ok(())
}

/// Thousands of users have one VQP each.
pub fn users(stage: &mut Stage) -> Result<Outcome> {
    lift_limits()?;
    let (crowd, count) = Crowd::of(1, |ready| {
        let mut sessions = Vec::new();
        for user in FIRST_USER..FIRST_USER + MODEST {
            // SAFETY: no memory is involved.
            Errno::result(unsafe { setresuid(user, 0, 0) }).context("setresuid")?;
            let session = Session::open(0)?;
            session.create_vqp(1)?;
            sessions.push(session);
        }
        ready.with(sessions.len() as u64)?;
        Ok(sessions)
    })?;
    ensure!(count == u64::from(MODEST), "{count} users got a VQP");
    stage.hold(crowd);
    Ok(Outcome::Said("made"))
}

/// A user with subordinate uids has what one user has.
pub fn subordinate_uids() -> Result<()> {
    lift_limits()?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let child = in_child(|| as_subordinates(&theirs))?;
    let mapped = map(&mut ours, child);
    let ended = wait(child);
    mapped.and(ended)
}

/// What newuidmap(1) does once the child has its namespace.
fn map(to: &mut UnixStream, child: Pid) -> Result<()> {
    to.read_exact(&mut [0])
        .context("the child has no namespace")?;
    for (file, text) in [("uid_map", SUBORDINATE), ("gid_map", SUBORDINATE)] {
        let path = format!("/proc/{child}/{file}");
        std::fs::write(&path, format!("0 {text} 65536\n")).context(path)?;
    }
    Ok(to.write_all(&[0])?)
}

fn as_subordinates(mut to: &UnixStream) -> Result<()> {
    become_user(SOMEBODY)?;
    unshare(CloneFlags::CLONE_NEWUSER).context("unshare")?;
    to.write_all(&[0])?;
    to.read_exact(&mut [0])?;
    let mut held = Vec::new();
    let mut made = 0;
    for uid in 0..TRIED {
        // SAFETY: no memory is involved.
        Errno::result(unsafe { setresgid(uid, uid, 0) }).context("setresgid")?;
        // SAFETY: no memory is involved.
        Errno::result(unsafe { setresuid(uid, 0, 0) }).context("setresuid")?;
        // On one set of rings: with some for each there would be too little memory.
        let session = Session::open(0)?;
        let rings = session.make_rings(1, 1, 0)?;
        loop {
            match session.light_vqp(&rings) {
                Ok(_) => made += 1,
                Err(Errno::EMFILE) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        held.push(session);
    }
    ensure!(
        made > 0 && made <= MAX_VQPS_PER_USER,
        "{made} VQPs of one user, who is {TRIED}"
    );
    Ok(())
}
