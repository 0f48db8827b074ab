// SPDX-License-Identifier: MIT OR Apache-2.0

//! A worker that has just started: a process that opens the device, registers
//! memory, connects and does a WRITE, and says when it did what.
//!
//! A process can only be new once: its first `ibv_get_device_list` loads the
//! configuration and the drivers. So each sample has a process of its own. It is
//! this program, called before its command line is taken apart, and its clock starts
//! with its first statement. The clock is the machine's (`CLOCK_MONOTONIC`), so that
//! the parent can compare.
//!
//! Both systems do the same: a page of memory, room for as many requests, 8 bytes
//! written. The program is the same file too, so that a worker of Weft loads verbs'
//! libraries, which it does not need.
//!
//! A verbs worker knows its GID's index and the peer's address, as configuration
//! would have it. By TCP it calls the peer first of all, so that the peer makes its
//! queue pair meanwhile.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use nix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};
use weft_core::gid::Gid;
use weft_shim::{
    Access, QpConfig, Queues, QueuesConfig, SendWr, Start, StartConfig, VqpConfig, Wc,
};
use weft_verbs::{Context, LocalGid, Op, Route};

use crate::nodes::{Node, CLIENT};
use crate::peer::Region;
use crate::round_robin::{Part, Parts, Sample};
use crate::verbs::{dial, register, Exchange, Link, Stack, CM_PATIENCE, MAX_SEND_WR, REGION_BYTES};
use crate::wait::Wait;

/// For one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first word of the command line.
const NAME: &str = "newcomer";

/// What the process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Connect by verbs.
    Verbs {
        device: String,
        gid: [u8; 16],
        gid_index: u8,
        port: u8,
        by_rdma_cm: bool,
        /// Sleeps until its WRITE is done; else it polls.
        sleeps: bool,
        peer: SocketAddr,
    },
    /// Connect by Weft, to memory of a node.
    Weft { node: u16, region: Region },
}

impl Task {
    /// A connection by verbs, from a port of the clients' node.
    pub fn verbs(local: LocalGid, exchange: Exchange, wait: Wait) -> Self {
        let (by_rdma_cm, peer) = match exchange {
            Exchange::Tcp(peer) => (false, peer),
            Exchange::RdmaCm(peer) => (true, peer),
        };
        Self::Verbs {
            device: CLIENT.device(),
            gid: local.gid.0,
            gid_index: local.index,
            port: local.port,
            by_rdma_cm,
            sleeps: wait == Wait::Event,
            peer,
        }
    }

    /// Starts a process for it.
    pub fn start(&self) -> Result<Newcomer> {
        let program = std::env::current_exe().context("this program's own file")?;
        let mut command = Command::new(program);
        command
            .args([NAME, &serde_json::to_string(self)?])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let started_ns = now_ns()?;
        let child = command
            .spawn()
            .context("starting a process for a connection")?;
        Ok(Newcomer { child, started_ns })
    }
}

/// A process that has a task.
pub struct Newcomer {
    child: Child,
    started_ns: u64,
}

impl Newcomer {
    /// Waits until it has done that.
    pub fn wait(self) -> Result<Arrival> {
        let output = self.child.wait_with_output()?;
        if !output.status.success() {
            bail!("a new process did not connect: {}", output.status);
        }
        let told: Told = serde_json::from_slice(&output.stdout)
            .context("a new process did not say how long it took")?;
        told.since(self.started_ns)
    }
}

/// What a process says: when it began and ended, and nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Told {
    began_ns: u64,
    ended_ns: u64,
    /// By [`Step`].
    steps_ns: [u64; STEPS],
}

/// What a new process took.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// Before it was made, by the machine's clock.
    pub started_ns: u64,
    /// When its first WRITE was done.
    pub ended_ns: u64,
    /// From before it was made until its first statement: fork, exec, its libraries.
    pub start: Duration,
    /// From its first statement on.
    pub sample: Sample,
}

impl Arrival {
    /// From before it was made until its first WRITE was done.
    pub fn all(&self) -> Duration {
        Duration::from_nanos(self.ended_ns - self.started_ns)
    }

    /// From its first statement until its first WRITE was done.
    pub fn own(&self) -> Duration {
        self.all().saturating_sub(self.start)
    }
}

impl Told {
    fn since(&self, started_ns: u64) -> Result<Arrival> {
        ensure!(
            started_ns <= self.began_ns && self.began_ns <= self.ended_ns,
            "a process has another clock"
        );
        let ns = Duration::from_nanos;
        let [open, register, create, connect, first_write] = self.steps_ns.map(ns);
        let mut parts = Parts::default()
            .with(Part::Open, open)
            .with(Part::FirstWrite, first_write)
            .with(Part::Total, ns(self.ended_ns - self.began_ns));
        // Weft opens, registers and makes queues in one.
        for (part, time) in [(Part::Register, register), (Part::Create, create)] {
            if !time.is_zero() {
                parts = parts.with(part, time);
            }
        }
        Ok(Arrival {
            started_ns,
            ended_ns: self.ended_ns,
            start: ns(self.began_ns - started_ns),
            sample: Sample {
                call: connect,
                parts,
                ..Sample::default()
            },
        })
    }
}

/// The machine's clock.
pub fn now_ns() -> Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos())?)
}

/// In the new process, as its first statement: whether it is one, and since when.
pub fn arrive() -> Option<Result<()>> {
    let began = now_ns();
    let mut words = std::env::args_os().skip(1);
    if words.next().as_deref() != Some(OsStr::new(NAME)) {
        return None;
    }
    let task = words.next();
    Some(began.and_then(|began_ns| connect(began_ns, task.as_deref())))
}

fn connect(began_ns: u64, task: Option<&OsStr>) -> Result<()> {
    let task = task.and_then(OsStr::to_str).context("no task")?;
    let mut laps = Laps::begin();
    match serde_json::from_str(task)? {
        Task::Verbs {
            device,
            gid,
            gid_index: index,
            port,
            by_rdma_cm,
            sleeps,
            peer,
        } => {
            let wait = if sleeps { Wait::Event } else { Wait::Poll };
            let gid = Gid(gid);
            let local = LocalGid { gid, index, port };
            let link = match by_rdma_cm {
                true => by_rdma_cm_to(peer, wait, &mut laps)?,
                false => by_tcp_to((peer, &device, local), wait, &mut laps)?,
            };
            link.do8(Op::Write)?;
            laps.tell(began_ns)
        }
        Task::Weft { node, region } => {
            let Start {
                device: _device,
                mut queues,
                memory,
            } = Start::new(&StartConfig {
                node: Some(u32::from(CLIENT.0)),
                queues: queues_config(),
                memory: REGION_BYTES,
                access: Access::LOCAL_WRITE,
                peer: Some(Node(node).gid()),
            })?;
            laps.done(Step::Open);
            let qp = queues.connect(Node(node).gid(), 0, &qp_config())?;
            laps.done(Step::Connect);
            let write = SendWr::write(memory.slice(0..8)?, region.into());
            write_once(&mut queues, write.on(&qp))?;
            laps.tell(began_ns)
        }
    }
}

/// A VQP that takes as many requests as verbs' queue pairs.
pub fn vqp_config() -> VqpConfig {
    VqpConfig {
        max_send_wr: MAX_SEND_WR,
        ..VqpConfig::default()
    }
}

/// Queues for as many requests, and for the completions of as many.
pub fn queues_config() -> QueuesConfig {
    QueuesConfig {
        max_send_wr: MAX_SEND_WR,
        max_wc: MAX_SEND_WR,
        max_recv_wr: 0,
    }
}

/// A queue pair on them that takes as many.
pub fn qp_config() -> QpConfig {
    QpConfig {
        max_send_wr: MAX_SEND_WR,
        ..QpConfig::default()
    }
}

/// Carries a request out and waits for it.
pub fn write_once(queues: &mut Queues, wr: SendWr<'_>) -> Result<()> {
    let mut wc = [Wc::default()];
    let progress = queues.enter(&[wr.signaled()], &mut wc, 1, PATIENCE)?;
    ensure!(progress.completed == 1, "a request did not end");
    wc[0].result()?;
    Ok(())
}

fn by_tcp_to(
    (peer, device, local): (SocketAddr, &str, LocalGid),
    wait: Wait,
    laps: &mut Laps,
) -> Result<Link> {
    let tcp = dial(peer)?;
    laps.done(Step::Connect);
    let context = Context::open(device)?;
    laps.done(Step::Open);
    let memory = register(&context, REGION_BYTES)?;
    laps.done(Step::Register);
    let stack = Stack::of(memory, wait)?;
    let qp = stack.new_qp(local)?;
    laps.done(Step::Create);
    let link = Link::over_tcp(tcp, qp, stack)?;
    laps.done(Step::Connect);
    Ok(link)
}

/// librdmacm opens all devices when it looks for the route, and makes the queue pair
/// when it connects.
fn by_rdma_cm_to(peer: SocketAddr, wait: Wait, laps: &mut Laps) -> Result<Link> {
    let route = Route::resolve(peer, CM_PATIENCE)?;
    let context = route.context()?;
    laps.done(Step::Open);
    let memory = register(&context, REGION_BYTES)?;
    laps.done(Step::Register);
    let stack = Stack::of(memory, wait)?;
    laps.done(Step::Create);
    let link = Link::over_route(route, stack)?;
    laps.done(Step::Connect);
    Ok(link)
}

/// What a process does one after the other.
#[derive(Clone, Copy)]
enum Step {
    Open,
    Register,
    Create,
    Connect,
    FirstWrite,
}

const STEPS: usize = 5;

/// Where the time went, by [`Step`].
struct Laps {
    last: Instant,
    steps: [Duration; STEPS],
}

impl Laps {
    fn begin() -> Self {
        Self {
            last: Instant::now(),
            steps: [Duration::ZERO; STEPS],
        }
    }

    /// The time since the last call belongs to this step.
    fn done(&mut self, step: Step) {
        let now = Instant::now();
        self.steps[step as usize] += now - self.last;
        self.last = now;
    }

    /// The first WRITE is done: says so.
    fn tell(mut self, began_ns: u64) -> Result<()> {
        self.done(Step::FirstWrite);
        let told = Told {
            began_ns,
            ended_ns: now_ns()?,
            steps_ns: self.steps.map(|time| time.as_nanos() as u64),
        };
        println!("{}", serde_json::to_string(&told)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Told = Told {
        began_ns: 1_500,
        ended_ns: 9_500,
        steps_ns: [1_000, 1_000, 1_000, 3_000, 1_000],
    };

    #[test]
    fn a_worker_is_timed_from_its_start_and_from_its_first_statement() {
        let arrival = TOLD.since(1_000).unwrap();
        assert_eq!(arrival.start, Duration::from_nanos(500));
        assert_eq!(arrival.all(), Duration::from_nanos(8_500));
        assert_eq!(arrival.own(), Duration::from_nanos(8_000));
        assert_eq!(arrival.sample.call, Duration::from_nanos(3_000));
        assert!(TOLD.since(1_501).is_err());
    }

    #[test]
    fn a_task_survives_its_words() {
        let region = Region { addr: 1, rkey: 2 };
        let words = serde_json::to_string(&Task::Weft { node: 3, region }).unwrap();
        let task: Task = serde_json::from_str(&words).unwrap();
        assert!(matches!(task, Task::Weft { node: 3, region: got } if got == region));
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let first = now_ns().unwrap();
        assert!(first > 0 && now_ns().unwrap() >= first);
    }
}
