// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which user a worker is, on which processor, in which network namespace, and
//! how it forks.

use std::fs::File;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{_exit, setresgid, setresuid};
use nix::sched::{sched_setaffinity, setns, CloneFlags, CpuSet};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};

/// Who may do everything.
pub const ROOT: u32 = 0;
/// The victim's user.
pub const SOMEBODY: u32 = 1001;
/// A user without privileges.
pub const NOBODY: u32 = 65534;

/// Gives up all other users' rights, for good.
pub fn become_user(uid: u32) -> Result<()> {
    if uid != ROOT {
        // SAFETY: no memory is involved.
        Errno::result(unsafe { setresgid(uid, uid, uid) }).context("setresgid")?;
        // SAFETY: no memory is involved.
        Errno::result(unsafe { setresuid(uid, uid, uid) }).context("setresuid")?;
    }
    Ok(())
}

/// Stays on the first processor: streams are those of a processor.
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
