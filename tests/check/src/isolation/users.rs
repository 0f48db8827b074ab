// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which user a worker is, on which processor, in which network namespace, and
//! how it forks.
//!
//! A node can be opened from its own network namespace alone, or with
//! `CAP_NET_ADMIN`. Users here have that capability in reserve, for what is not
//! about it: attempts are made without it.

use std::fs::File;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{_exit, prctl, setresgid, setresuid, syscall, SYS_capset};
use nix::libc::{PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE};
use nix::sched::{sched_setaffinity, setns, CloneFlags, CpuSet};
use nix::sys::prctl::set_keepcaps;
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid, Uid};

use crate::raw::Session;

/// Who may do everything.
pub const ROOT: u32 = 0;
/// The victim's user.
pub const SOMEBODY: u32 = 1001;
/// A user without privileges.
pub const NOBODY: u32 = 65534;

/// Gives up all other users' rights, for good, but for the reserve.
pub fn become_user(uid: u32) -> Result<()> {
    if uid != ROOT {
        set_keepcaps(true).context("PR_SET_KEEPCAPS")?;
        // SAFETY: no memory is involved.
        Errno::result(unsafe { setresgid(uid, uid, uid) }).context("setresgid")?;
        // SAFETY: no memory is involved.
        Errno::result(unsafe { setresuid(uid, uid, uid) }).context("setresuid")?;
        set_capabilities(0)?;
    }
    Ok(())
}

const CAP_NET_ADMIN: u32 = 12;
const NET_ADMIN: u32 = 1 << CAP_NET_ADMIN;

/// What `capset` takes.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// Capabilities 0 to 31, or 32 to 63.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps the reserve and nothing else; of it, `effective` counts.
fn set_capabilities(effective: u32) -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapHeader {
        version: VERSION_3,
        pid: 0,
    };
    let low = CapWord {
        effective,
        permitted: NET_ADMIN,
        inheritable: effective,
    };
    let high = CapWord {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    };
    let words = [low, high];
    // SAFETY: both are what `capset` reads, and live during the call.
    let done = unsafe { syscall(SYS_capset, &raw const header, words.as_ptr()) };
    Errno::result(done).map(drop).context("capset")
}

/// Does what takes `CAP_NET_ADMIN`, such as opening what is on a node of another network
/// namespace. Programs that `open` runs have it too.
pub fn with_reserve<T, E>(open: impl FnOnce() -> Result<T, E>) -> Result<T>
where
    anyhow::Error: From<E>,
{
    if Uid::effective().is_root() {
        return Ok(open()?);
    }
    set_capabilities(NET_ADMIN)?;
    // SAFETY: no memory is involved.
    let raised = unsafe { prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0) };
    Errno::result(raised).context("PR_CAP_AMBIENT")?;
    let opened = open();
    set_capabilities(0)?;
    Ok(opened?)
}

/// A session on the victim's node.
pub fn open_victims() -> Result<Session> {
    with_reserve(|| Session::open(0))
}

/// Stays on the first processor: DC initiators are those of a processor.
pub fn stay_on_first_cpu() -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(0)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &cpus)?)
}

/// Moves to where the node is. Node 0 is where the tests are.
pub fn enter_namespace_of(node: u32) -> Result<()> {
    if node != 0 {
        let path = format!("/run/netns/n{node}");
        let file = File::open(&path).with_context(|| path)?;
        setns(file, CloneFlags::CLONE_NEWNET)?;
    }
    Ok(())
}

/// Runs `body` in a child, which ends with 0 if all was well. Only for processes
/// with one thread. Nothing that `body` borrows is dropped in the child: what
/// closes a region here would close the parent's.
pub fn in_child(body: impl FnOnce() -> Result<()>) -> Result<Pid> {
    // SAFETY: the process has one thread, so that no lock is held by another.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = match body() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("weft-check child: {error:#}");
                    1
                }
            };
            // SAFETY: it ends the process; no destructor has to run.
            unsafe { _exit(code) }
        }
    }
}

/// Waits for a child that should end well.
pub fn wait(child: Pid) -> Result<()> {
    let status = waitpid(child, None)?;
    ensure!(
        matches!(status, WaitStatus::Exited(_, 0)),
        "the child failed: {status:?}"
    );
    Ok(())
}
