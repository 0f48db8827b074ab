// SPDX-License-Identifier: MIT OR Apache-2.0

//! A worker that makes a fixed sequence of calls, and stops before one of them
//! to be killed there.

use anyhow::{bail, ensure, Context, Result};
use nix::sys::signal::{kill, raise, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use weft_core::uapi::{Pod, SendWr, Sge, Wc, OP_READ, OP_WRITE, SEND_SIGNALED};
use weft_shim::Remote;

use crate::raw::{request, Memory, Queue, Session};
use crate::world::{gid, worker, Baseline};
use weft_testkit::report::Report;

const BYTES: u32 = 16 << 10;
const WAIT_NS: u64 = 10_000_000_000;

/// What the worker is told.
#[derive(clap::Args)]
pub struct SequenceArgs {
    /// The call before which it stops.
    #[arg(long)]
    stop: usize,
    #[arg(long)]
    addr: u64,
    #[arg(long)]
    rkey: u32,
}

/// Stops before the call that it was told.
struct Steps {
    next: usize,
    stop: usize,
}

impl Steps {
    fn step<T, E>(&mut self, call: impl FnOnce() -> Result<T, E>) -> Result<T>
    where
        anyhow::Error: From<E>,
    {
        if self.next == self.stop {
            raise(Signal::SIGSTOP)?;
        }
        self.next += 1;
        call()
            .map_err(anyhow::Error::from)
            .with_context(|| format!("call {}", self.next - 1))
    }
}

/// Is the worker.
pub fn sequence(args: &SequenceArgs) -> Result<()> {
    let mut steps = Steps {
        next: 0,
        stop: args.stop,
    };
    let memory = Memory::map(4 * BYTES as usize)?;
    let session = steps.step(Session::bare)?;
    steps.step(|| session.hello(0))?;
    let lkey = steps
        .step(|| session.register(&memory, 0, u64::from(BYTES), 7))?
        .lkey;
    let said = steps.step(|| session.describe_vqp(64, 0))?;
    let vqp = steps.step(|| Queue::map(&session, &said))?;
    steps.step(|| session.qconnect(vqp.vqp, gid(1)))?;
    let local = Sge {
        addr: memory.addr(),
        len: BYTES,
        lkey,
    };
    let write = SendWr {
        flags: SEND_SIGNALED,
        ..request(OP_WRITE, local, args.addr, args.rkey)
    };
    let read = SendWr {
        opcode: OP_READ,
        ..write
    };
    let mut wcs = [Wc::zeroed(); 16];
    // Nobody reaps these before the next call.
    steps.step(|| vqp.enter(&session, &[write; 8], &mut [], 0, 0))?;
    let (_, done) = steps.step(|| vqp.enter(&session, &[read], &mut wcs, 9, WAIT_NS))?;
    ensure!(
        done == 9 && wcs[..9].iter().all(|wc| wc.status == 0),
        "{done} completions"
    );
    let second = steps.step(|| session.register(&memory, u64::from(BYTES), u64::from(BYTES), 1))?;
    let said = steps.step(|| session.describe_vqp(64, 64))?;
    let other = steps.step(|| Queue::map(&session, &said))?;
    steps.step(|| session.qconnect(other.vqp, gid(1)))?;
    steps.step(|| other.enter(&session, &[read; 40], &mut [], 0, 0))?;
    // Under requests that are on their way.
    steps.step(|| session.deregister(lkey))?;
    steps.step(|| session.destroy_vqp(other.vqp))?;
    steps.step(|| vqp.enter(&session, &[write; 40], &mut [], 0, 0))?;
    steps.step(|| session.destroy_vqp(vqp.vqp))?;
    steps.step(|| session.deregister(second.lkey))?;
    // Under the mappings of rings whose VQPs have gone.
    steps.step(|| {
        drop(session);
        Ok::<(), nix::errno::Errno>(())
    })?;
    steps.step(|| {
        drop((vqp, other));
        Ok::<(), nix::errno::Errno>(())
    })?;
    steps.step(|| Ok::<(), nix::errno::Errno>(()))
}

/// Kills a worker before each `step`th of its calls.
pub fn run(report: &mut Report, baseline: &Baseline, remote: Remote, step: usize) {
    for stop in (0..32).step_by(step) {
        let mut stopped = true;
        report.check(
            &format!("killed before call {stop}, it leaves nothing behind"),
            || {
                stopped = kill_before(stop, remote)?;
                baseline.is_back()
            },
        );
        if !stopped {
            report.check("that was one more than all calls", || {
                ensure!(stop > 15, "the sequence has only {stop} calls");
                Ok(())
            });
            return;
        }
    }
    report.check("the sequence ends", || bail!("it has more than 32 calls"));
}

/// Starts a worker that nobody kills.
pub fn run_to_its_end(remote: Remote) -> Result<()> {
    let stopped = kill_before(usize::MAX, remote)?;
    ensure!(!stopped, "it has stopped");
    Ok(())
}

/// Whether it stopped there; else it has ended well.
fn kill_before(stop: usize, remote: Remote) -> Result<bool> {
    let child = worker(&["sequence"])?
        .args(["--stop", &stop.to_string()])
        .args([
            "--addr",
            &remote.addr.to_string(),
            "--rkey",
            &remote.rkey.to_string(),
        ])
        .spawn()?;
    let pid = Pid::from_raw(child.id() as i32);
    match waitpid(pid, Some(WaitPidFlag::WUNTRACED))? {
        WaitStatus::Stopped(..) => {}
        WaitStatus::Exited(_, 0) => return Ok(false),
        other => bail!("the worker failed: {other:?}"),
    }
    kill(pid, Signal::SIGKILL)?;
    waitpid(pid, None)?;
    Ok(true)
}
