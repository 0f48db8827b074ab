// SPDX-License-Identifier: MIT OR Apache-2.0

//! More messages than anybody takes, and as much of what messages need as there
//! is. The victim looks while it is held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::uapi::{Pod, SendWr, Wc, MAX_SENDERS};

use super::attacker::{Outcome, Stage};
use super::crowd::{Crowd, Ready};
use super::messages::to_port;
use super::users::open_victims;
use crate::raw::{message, Queue, Session, MANY_VQPS};
use crate::world::gid;

/// VQPs that flood the victim's port.
const FLOODERS: usize = 16;
/// VQPs that wait for a receiver without buffers.
const WAITING: usize = 32;
const DEEP: u32 = 16;
/// More processes than it takes, with what one may lock, to hold all that there is.
const PROCESSES: usize = 5;
const SESSIONS: usize = 8;
/// With fewer things an attempt to have as many as there are says nothing.
const LEAST: u64 = 4096;
/// A port where nobody receives.
const NO_PORT: u32 = 60_000;

/// Messages to the victim, until it is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn flood_with(session: &Session, port: u32, queues: &mut [Queue]) -> Result<()> {
    let mut wcs = [Wc::zeroed(); DEEP as usize];
    let wrs = [message(&[0x66; 64]); DEEP as usize];
    for queue in queues {
        match queue.enter(session, &wrs, &mut wcs, 0, 0) {
            Ok(_) | Err(Errno::ENOSPC | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if wcs.iter().any(|wc| wc.status != 0) {
            // The victim could not keep up with this one.
            session.destroy_vqp(queue.vqp)?;
            *queue = to_port(session, 0, port)?;
        }
        wcs.fill(Wc::zeroed());
    }
    Ok(())
}

/// Without a pause, as fast as they are taken.
pub fn port(stage: &mut Stage) -> Result<Outcome> {
    let (session, port) = (Session::open(stage.node)?, stage.told.ports[0]);
    let mut queues = (0..FLOODERS)
        .map(|_| to_port(&session, 0, port))
        .collect::<Result<Vec<Queue>, _>>()?;
    flood_with(&session, port, &mut queues)?;
    let stop = Arc::new(AtomicBool::new(false));
    let until = stop.clone();
    let thread = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            if let Err(error) = flood_with(&session, port, &mut queues) {
                // The attempt says nothing without its flood.
                eprintln!("the flood ends: {error:#}");
                std::process::exit(1);
            }
        }
    });
    stage.hold(Flood {
        stop,
        thread: Some(thread),
    });
    Ok(Outcome::Said("posted"))
}

/// From more senders than a bound VQP tells apart.
pub fn senders(stage: &mut Stage) -> Result<Outcome> {
    let mut held = Vec::new();
    for _ in 0..=MAX_SENDERS / MANY_VQPS {
        let session = Session::open(stage.node)?;
        for _ in 0..MANY_VQPS {
            let queue = to_port(&session, 0, stage.told.ports[0])?;
            let (submitted, _) = queue.enter(&session, &[message(&[1])], &mut [], 0, 0)?;
            ensure!(submitted == 1, "a message was not taken");
        }
        held.push(session);
    }
    stage.hold(held);
    Ok(Outcome::Said("posted"))
}

/// To a receiver without buffers: the victim's, then the attacker's own.
fn in_vain(stage: &mut Stage, node: u8, port: u32) -> Result<Outcome> {
    let session = Session::open(stage.node)?;
    for _ in 0..WAITING {
        let queue = to_port(&session, node, port)?;
        let wrs = [message(&[2; 80]); DEEP as usize];
        let (submitted, _) = queue.enter(&session, &wrs, &mut [], 0, 0)?;
        ensure!(submitted > 0, "no message was taken");
    }
    stage.hold(session);
    Ok(Outcome::Said("posted"))
}

pub fn deaf(stage: &mut Stage) -> Result<Outcome> {
    in_vain(stage, 0, stage.told.ports[1])
}

pub fn own_deaf(stage: &mut Stage) -> Result<Outcome> {
    let session = open_victims()?;
    let bound = session.describe_vqp(4, 4)?.vqp;
    session.qbind(bound, NO_PORT - 1)?;
    stage.hold(session);
    in_vain(stage, 0, NO_PORT - 1)
}

/// Makes one thing after the other in many sessions, until that is refused. They
/// stay as long as the process.
fn as_many(ready: &Ready, make: impl Fn(&Session) -> Result<(), Errno>) -> Result<Vec<Session>> {
    let (mut sessions, mut count) = (Vec::new(), 0);
    for _ in 0..SESSIONS {
        let session = open_victims()?;
        let made = (0..MANY_VQPS).take_while(|_| make(&session).is_ok());
        count += made.count();
        sessions.push(session);
    }
    ready.with(count as u64)?;
    Ok(sessions)
}

/// Holds in several processes as much as is not refused.
fn hold_all(
    stage: &mut Stage,
    what: &str,
    make: impl Fn(&Session) -> Result<(), Errno>,
) -> Result<Outcome> {
    let (crowd, count) = Crowd::of(PROCESSES, |ready| as_many(ready, &make))?;
    eprintln!("# {count} {what}");
    ensure!(count >= LEAST, "only {count} {what} could be made");
    stage.hold(crowd);
    Ok(Outcome::Said("made"))
}

/// Each VQP for messages has a stream, once it has posted something.
pub fn streams(stage: &mut Stage) -> Result<Outcome> {
    hold_all(stage, "streams", |session| {
        let queue = session.queue(1, 0)?;
        session.qconnect_port(queue.vqp, gid(1), NO_PORT)?;
        let write_of_no_bytes = SendWr::zeroed();
        queue
            .enter(session, &[write_of_no_bytes], &mut [], 0, 0)
            .map(drop)
    })
}

/// Each VQP that receives has a name.
pub fn names(stage: &mut Stage) -> Result<Outcome> {
    hold_all(stage, "receivers", |session| {
        session.describe_vqp(1, 1).map(drop)
    })
}
