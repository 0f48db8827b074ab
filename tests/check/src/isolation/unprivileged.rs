// SPDX-License-Identifier: MIT OR Apache-2.0

//! What takes privileges, tried without them, and with those that a user
//! namespace gives to anybody.

use std::fs::{File, OpenOptions};

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::libc::_exit;
use nix::sched::{unshare, CloneFlags};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult};
use weft_core::uapi::{self, Pod, NODE_ANY};

use super::attacker::{refusal, unanimous, Outcome, Stage};
use crate::raw::Session;
use crate::world::gid;

fn server() -> uapi::MetaServer {
    uapi::MetaServer {
        addr: gid(5),
        port: 7,
        ..Pod::zeroed()
    }
}

fn add(session: &Session) -> Result<(), Errno> {
    session.call(uapi::IOC_META_ADD, &mut server())
}

fn empty(session: &Session) -> Result<(), Errno> {
    session.call_at(uapi::IOC_DCCACHE_FLUSH, 0)
}

pub fn meta_add(stage: &mut Stage) -> Result<Outcome> {
    Ok(refusal(add(&stage.raw)))
}

/// The one that is there, and one that is not.
pub fn meta_remove(stage: &mut Stage) -> Result<Outcome> {
    let there = uapi::MetaServer {
        addr: gid(0),
        port: 7471,
        ..Pod::zeroed()
    };
    let servers = [there, server()];
    unanimous(
        servers.map(|mut server| Ok(refusal(stage.raw.call(uapi::IOC_META_REMOVE, &mut server)))),
    )
}

pub fn flush(stage: &mut Stage) -> Result<Outcome> {
    Ok(refusal(empty(&stage.raw)))
}

/// Queue pairs that are kept to a node, and no longer kept; what carries its requests.
fn keep(session: &Session, request: u32) -> Result<(), Errno> {
    let mut pin = uapi::PoolPin {
        gid: gid(1),
        ..Pod::zeroed()
    };
    session.call(request, &mut pin)
}

/// What others' traffic is like.
fn look_at_peers(session: &Session) -> Result<(), Errno> {
    session.call(uapi::IOC_POOL_PEER, &mut uapi::PoolPeer::zeroed())
}

type Attempt = fn(&Session) -> Result<(), Errno>;

/// All that one may try with the pool. The arguments of the first three begin with the peer,
/// and are as long.
const WITH_THE_POOL: [Attempt; 4] = [
    |session| keep(session, uapi::IOC_POOL_PIN),
    |session| keep(session, uapi::IOC_POOL_UNPIN),
    |session| keep(session, uapi::IOC_POOL_USE),
    look_at_peers,
];

pub fn pool(stage: &mut Stage) -> Result<Outcome> {
    unanimous(WITH_THE_POOL.map(|attempt| Ok(refusal(attempt(&stage.raw)))))
}

pub fn pool_as_root(stage: &mut Stage) -> Result<Outcome> {
    unanimous(WITH_THE_POOL.map(|attempt| as_root(|| attempt(&stage.raw))))
}

/// Runs a call as root of a new user namespace, in a new network namespace.
fn as_root(call: impl FnOnce() -> Result<(), Errno>) -> Result<Outcome> {
    const NO_NAMESPACE: i32 = 255;
    // SAFETY: the process has one thread, so that no lock is held by another.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let code = match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
                Ok(()) => call().err().map_or(0, |errno| errno as i32),
                Err(_) => NO_NAMESPACE,
            };
            // SAFETY: it ends the process; no destructor has to run.
            unsafe { _exit(code) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, NO_NAMESPACE) => bail!("there are no user namespaces"),
            WaitStatus::Exited(_, 0) => Ok(Outcome::Said("it worked")),
            WaitStatus::Exited(_, code) => Ok(Outcome::Errno(Errno::from_raw(code))),
            status => bail!("the child failed: {status:?}"),
        },
    }
}

pub fn meta_add_as_root(stage: &mut Stage) -> Result<Outcome> {
    as_root(|| add(&stage.raw))
}

pub fn flush_as_root(stage: &mut Stage) -> Result<Outcome> {
    as_root(|| empty(&stage.raw))
}

pub fn session_in_empty(_: &mut Stage) -> Result<Outcome> {
    as_root(|| {
        let session = Session::bare().map_err(|error| of_io(&error))?;
        session.hello(NODE_ANY)
    })
}

/// The other node, which lives in another network namespace, and indices where
/// none is: nobody learns which of them are nodes.
pub fn foreign_node(stage: &mut Stage) -> Result<Outcome> {
    let others = (0..=uapi::MAX_NODES as u32).filter(|node| *node != stage.node);
    unanimous(others.map(|node| Ok(refusal(Session::bare()?.hello(node)))))
}

/// The attacker's own node, from a namespace that is not its own any more: being
/// root there gives no right here.
pub fn own_node_from_empty(stage: &mut Stage) -> Result<Outcome> {
    let node = stage.node;
    as_root(|| {
        let session = Session::bare().map_err(|error| of_io(&error))?;
        session.hello(node)
    })
}

fn of_io(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

fn refused_file(opened: std::io::Result<File>) -> Outcome {
    refusal(opened.map_err(|error| of_io(&error)))
}

pub fn debugfs(_: &mut Stage) -> Result<Outcome> {
    let files = ["/sys/kernel/debug/weft/counters", "/sys/kernel/debug/weft"];
    unanimous(files.map(|file| Ok(refused_file(File::open(file)))))
}

pub fn parameters(_: &mut Stage) -> Result<Outcome> {
    let folder = std::fs::read_dir("/sys/module/weft/parameters").context("no parameters")?;
    unanimous(folder.map(|entry| {
        let opened = OpenOptions::new().write(true).open(entry?.path());
        Ok(refused_file(opened))
    }))
}

pub fn proc_mem(stage: &mut Stage) -> Result<Outcome> {
    let path = format!("/proc/{}/mem", stage.told.pid);
    Ok(refused_file(File::open(path)))
}
