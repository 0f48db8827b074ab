// SPDX-License-Identifier: MIT OR Apache-2.0

//! As much as one process can get. It is no secret how much that is; what counts
//! is that the victim, which looks while it is held, goes on.

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{
    WcStatus, ACCESS_REMOTE_READ, MAX_MRS_PER_SESSION, MAX_MWS_PER_SESSION, MAX_MWS_PER_USER,
    MAX_PEERS_PER_USER, MAX_RINGS_PER_SESSION, MAX_VQPS_PER_USER, MAX_WC,
};
use weft_shim::{Device, Remote, SendWr, Vqp, Wc};

use super::attacker::{unanimous, Outcome, Stage};
use super::crowd::{Crowd, Ready};
use super::folded::Folded;
use super::users::{open_victims, with_reserve};
use super::victim::Part;
use crate::raw::{Memory, MANY_VQPS};
use crate::world::{connect, gid};

const PAGE: usize = 4096;
/// More requests than one stream takes.
const MANY: usize = 160;
/// Bytes of a long request, and how many there are. On any machine they take longer
/// than others should have to wait for them; they end when their regions go.
const LONG: usize = 64 << 20;
const LONGS: usize = 16;
/// More regions than a node may have room for.
const REGIONS: usize = 10_000;
/// Refusals in a row that are taken for the last word.
const REFUSALS: usize = 200;
const SESSIONS: usize = 100;
/// Rings that one session gets at least, however little memory its user may lock.
const SOME_RINGS: u32 = 256;

/// Many VQPs with one stream under them, each of which fails.
pub fn failures(stage: &mut Stage) -> Result<Outcome> {
    let place = stage.told.place(Part::Secret);
    let remote = Remote {
        addr: place.addr,
        rkey: place.rkey,
    };
    let wrs = [SendWr::read(stage.own.slice(0..64)?, remote).signaled(); 8];
    let mut vqps = (0..64)
        .map(|_| connect(&stage.device, 0, 16))
        .collect::<Result<Vec<Vqp>>>()?;
    for vqp in &mut vqps {
        vqp.post_send(&wrs)?;
    }
    unanimous(vqps.iter_mut().map(|vqp| {
        let mut wcs = [Wc::default(); 8];
        let patience = std::time::Duration::from_secs(30);
        vqp.enter(&[], &mut wcs, 8, patience)?
            .completed
            .checked_sub(8)
            .context("too few")?;
        let flushed = wcs[1..]
            .iter()
            .all(|wc| wc.status() == Some(WcStatus::WrFlushErr));
        let first = wcs[0].status().filter(|_| flushed).context("not flushed")?;
        Ok(Outcome::Status(first))
    }))
}

/// Requests that take seconds, and so many behind them that their user's stream has no
/// room for more.
pub fn stream(stage: &mut Stage) -> Result<Outcome> {
    let (node, to) = (stage.node, 1 - stage.home());
    let (crowd, _) = Crowd::of(1, |ready| fill_stream(node, to, ready))?;
    stage.hold(crowd);
    Ok(Outcome::Said("posted"))
}

/// Posting what has no room does not return, but the process can be killed.
fn fill_stream(node: u32, to: u8, ready: &Ready) -> Result<impl Sized> {
    let memory = Folded::map(LONG)?;
    let device = Device::open_on(node)?;
    let near = memory.register(&device)?;
    let far = memory.register(&with_reserve(|| Device::open_on(u32::from(to)))?)?;
    let mut vqp = connect(&device, to, 256)?;
    let long = SendWr::write(near.slice(0..LONG)?, far.remote());
    let short = SendWr::write(near.slice(0..8)?, far.remote());
    // By RC a request waits until the one before it was cut.
    vqp.post_send(&[long])?;
    ready.with(1)?;
    vqp.post_send(&[long; LONGS - 1])?;
    vqp.post_send(&[short; MANY])?;
    // In this order: the regions go before their memory.
    Ok((vqp, near, far, memory))
}

/// Small regions in many sessions, until no key is to be had. Keys are random,
/// so that one refusal is not yet the end.
pub fn regions(stage: &mut Stage) -> Result<Outcome> {
    let memory = Memory::map(PAGE)?;
    let (mut sessions, mut count) = (Vec::new(), 0);
    while count < REGIONS {
        // The victim's node: whoever may be on it may fill it.
        let session = open_victims()?;
        let register = |_: &usize| {
            let mut tries = (0..REFUSALS).map(|_| session.register(&memory, 0, 1, 1));
            tries.any(|region| region.is_ok())
        };
        let made = (0..MAX_MRS_PER_SESSION).take_while(register).count();
        sessions.push(session);
        count += made;
        if made < MAX_MRS_PER_SESSION {
            break;
        }
    }
    eprintln!("# {count} regions in {} sessions", sessions.len());
    let least = weft_core::uapi::MAX_MRS_PER_USER as usize / 2;
    ensure!(count >= least, "only {count} regions could be registered");
    stage.hold((sessions, memory));
    Ok(Outcome::Said("registered"))
}

/// All VQPs of many sessions.
pub fn vqps(stage: &mut Stage) -> Result<Outcome> {
    let (mut sessions, mut count) = (Vec::new(), 0);
    for _ in 0..SESSIONS {
        let session = open_victims()?;
        let vqps = (0..MANY_VQPS).map(|_| session.create_vqp(1));
        let made = vqps.take_while(|vqp| vqp.is_ok()).count();
        sessions.push(session);
        count += made;
        if made < MANY_VQPS {
            break;
        }
    }
    eprintln!("# {count} VQPs in {} sessions", sessions.len());
    // How many a process gets depends on how much memory it may lock.
    ensure!(count >= 4 * MANY_VQPS, "only {count} VQPs could be made");
    stage.hold(sessions);
    Ok(Outcome::Said("made"))
}

/// Has something until it is refused; answers how many there were, and why.
fn until_refused<T>(mut more: impl FnMut() -> Result<T, Errno>) -> (u32, Errno) {
    let mut count = 0;
    loop {
        match more() {
            Ok(_) => count += 1,
            Err(errno) => return (count, errno),
        }
    }
}

/// VQPs on one completion ring, until its user may have no more.
pub fn light_vqps(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let rings = session.make_rings(16, 16, 0)?;
    let (count, errno) = until_refused(|| session.light_vqp(&rings));
    eprintln!("# {count} VQPs");
    // Some are in other sessions of its.
    ensure!(
        errno == Errno::EMFILE && (MAX_VQPS_PER_USER - 1000..=MAX_VQPS_PER_USER).contains(&count),
        "after {count} it was {errno}"
    );
    stage.hold(session);
    Ok(Outcome::Said("made"))
}

/// Windows of a page, until its user may have no more.
pub fn windows(stage: &mut Stage) -> Result<Outcome> {
    let memory = Memory::map(PAGE)?;
    let (mut sessions, mut count) = (Vec::new(), 0);
    while count < MAX_MWS_PER_USER {
        let session = open_victims()?;
        let region = session.register(&memory, 0, PAGE as u64, ACCESS_REMOTE_READ)?;
        let bind = || session.bind_window(&region, 0, 1, ACCESS_REMOTE_READ);
        let (more, errno) = until_refused(bind);
        sessions.push(session);
        count += more;
        ensure!(errno == Errno::EMFILE, "after {count} it was {errno}");
        let is_full = more as usize == MAX_MWS_PER_SESSION || count == MAX_MWS_PER_USER;
        ensure!(is_full, "{more} in a session, {count} in all");
    }
    ensure!(count == MAX_MWS_PER_USER, "there were {count}");
    eprintln!("# {count} windows in {} sessions", sessions.len());
    stage.hold((sessions, memory));
    Ok(Outcome::Said("bound"))
}

/// Peers, until its user may have no more.
pub fn peers(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let (count, errno) = until_refused(|| session.open_peer(gid(1), 0));
    eprintln!("# {count} open peers");
    ensure!(
        (count, errno) == (MAX_PEERS_PER_USER, Errno::EMFILE),
        "after {count} it was {errno}"
    );
    stage.hold(session);
    Ok(Outcome::Said("opened"))
}

/// Rings, until each of three sessions may have no more, or no more memory is had.
pub fn rings(stage: &mut Stage) -> Result<Outcome> {
    for nth in 0..3 {
        let session = open_victims()?;
        let (count, errno) = until_refused(|| session.make_rings(1, 1, 1));
        eprintln!("# {count} rings, then {errno}");
        let is_full = (count as usize, errno) == (MAX_RINGS_PER_SESSION, Errno::EMFILE);
        ensure!(
            is_full || errno == Errno::ENOMEM,
            "after {count} it was {errno}"
        );
        // The first one may have taken all memory that the others would get.
        ensure!(nth > 0 || count > SOME_RINGS, "only {count} could be made");
        // Too long to be kept: freeing them may sleep.
        let long = session.make_rings(1, MAX_WC, 1);
        ensure!(long.is_err(), "there are more, and longer ones");
        stage.hold(session);
    }
    Ok(Outcome::Said("made"))
}
