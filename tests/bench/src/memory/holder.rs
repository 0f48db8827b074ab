// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that hold connections, and their peers. Their parent tells what to make.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use clap::Args;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use weft_shim::{Access, Device, MemoryRegion, PeerHandle, Qp, Queues, SendWr, Wc};
use weft_verbs::Wc as Completion;
use weft_verbs::{Endpoint, InitQp, LocalGid, Mr, Op, Pd, QpConfig, RcQp, WorkRequest};

use super::held::STEP;
use crate::child::{next_word, say_ready};
use crate::cli::System;
use crate::newcomer::{qp_config, queues_config, write_once};
use crate::nodes::Node;
use crate::peer::Region;
use crate::stats::{Recorded, Times};
use crate::verbs::{register, wait, Completions, MAX_SEND_WR, REGION_BYTES};
use crate::wait::Wait;

/// WRITEs at once: as many as the queues take.
const WAVE: usize = MAX_SEND_WR as usize;
/// For one wave.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a process is told on its command line.
#[derive(Args)]
pub struct HolderArgs {
    #[arg(long, value_enum)]
    system: System,
    #[arg(long)]
    node: u16,
}

/// What its parent tells it to do.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// Verbs: make queue pairs, and tell their addresses. A peer's send nothing.
    Offer { count: usize, sends: bool },
    /// Verbs: connect them to these, and WRITE to the peer's memory if they send.
    Join {
        endpoints: Vec<[u8; Endpoint::BYTES]>,
        region: Option<Region>,
    },
    /// Weft: make queue pairs that are connected to a node, or open it by as many handles,
    /// and WRITE to its memory by each.
    Connect {
        count: usize,
        node: u16,
        region: Region,
        by_handle: bool,
    },
    /// WRITE over all connections in turn for so long. Verbs sleeps until the completion channel
    /// tells of an event, or polls; Weft sleeps in its call.
    Write { time_ms: u64, sleeps: bool },
}

/// What it says to that.
#[derive(Default, Serialize, Deserialize)]
pub struct Answer {
    /// Addresses of queue pairs.
    pub endpoints: Vec<[u8; Endpoint::BYTES]>,
    /// The limit of the device or the module that was reached: there are no more connections.
    /// The answer tells of those before it all the same.
    pub limit: Option<String>,
    /// Times of the calls that made and connected each.
    #[serde(default)]
    pub calls: Recorded,
    /// Times of the WRITE that followed.
    #[serde(default)]
    pub first_writes: Recorded,
    /// What was written over them.
    #[serde(default)]
    pub waves: Waves,
}

impl Answer {
    /// The same, and why there are no more, if that is a limit.
    fn ended(self, error: anyhow::Error) -> Result<Self> {
        match is_limit(&error) {
            true => Ok(Self {
                limit: Some(format!("{error:#}")),
                ..self
            }),
            false => Err(error),
        }
    }

    /// Connections that were made.
    pub fn count(&self) -> usize {
        self.calls.count()
    }
}

/// The errors of a device that has no more of something.
const LIMITS: [Errno; 4] = [Errno::ENOMEM, Errno::EMFILE, Errno::ENOSPC, Errno::EAGAIN];

/// Whether an error says that there is no more of something. Any other one ends the benchmark.
fn is_limit(error: &anyhow::Error) -> bool {
    use weft_shim::Error as Weft;
    error.chain().any(|cause| {
        if let Some(verbs) = cause.downcast_ref::<weft_verbs::Error>() {
            let errno = verbs.errno().map(Errno::from_raw);
            return errno.is_some_and(|errno| LIMITS.contains(&errno));
        }
        match cause.downcast_ref() {
            Some(Weft::System { errno, .. }) => LIMITS.contains(errno),
            Some(Weft::OutOfMemory | Weft::TooManyVqps | Weft::TooManyPeers) => true,
            Some(Weft::TooManyStreams | Weft::TooManyQueues | Weft::TooManyRegions) => true,
            _ => false,
        }
    })
}

/// Makes up to so many connections, by their number; what each and the WRITE over it took.
fn made(count: usize, mut one: impl FnMut(usize) -> Result<[Duration; 2]>) -> Result<Answer> {
    let (mut calls, mut writes) = (Times::new(), Times::new());
    let error = (0..count).find_map(|at| match one(at) {
        Ok([call, write]) => {
            calls.record(call);
            writes.record(write);
            None
        }
        Err(error) => Some(error),
    });
    let answer = Answer {
        calls: (&calls).into(),
        first_writes: (&writes).into(),
        ..Answer::default()
    };
    match error {
        Some(error) => answer.ended(error),
        None => Ok(answer),
    }
}

/// WRITEs over connections in turn.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Waves {
    /// Those that were done.
    pub writes: u64,
    /// What they took.
    pub time_ns: u64,
}

/// A connection's place among those that are written to after one another. Neighbours
/// were made to one peer; these are apart, so that several peers are written to at once.
const STRIDE: usize = STEP + 3;

/// Connections, and where WRITEs over them go: peers' memory, in the order in which the
/// connections were made, as many at a time as were made by one order.
#[derive(Default)]
struct Targets {
    regions: Vec<(usize, Region)>,
    count: usize,
    next: usize,
}

impl Targets {
    fn add(&mut self, count: usize, region: Region) {
        self.count += count;
        self.regions.push((self.count, region));
    }

    /// The next connection to WRITE over, and where.
    fn turn(&mut self) -> Result<(usize, Region)> {
        ensure!(self.count > 0, "there is no connection");
        self.next = (self.next + STRIDE) % self.count;
        let at = self.regions.partition_point(|(end, _)| *end <= self.next);
        Ok((self.next, self.regions[at].1))
    }
}

/// Does waves of WRITEs for so long; one is so many at once.
fn waves(time_ms: u64, mut wave: impl FnMut(usize) -> Result<()>) -> Result<Answer> {
    let (begin, time) = (Instant::now(), Duration::from_millis(time_ms));
    let mut writes = 0;
    while begin.elapsed() < time {
        wave(WAVE)?;
        writes += WAVE as u64;
    }
    let time_ns = u64::try_from(begin.elapsed().as_nanos())?;
    Ok(Answer {
        waves: Waves { writes, time_ns },
        ..Answer::default()
    })
}

/// Is the process.
pub fn hold(args: &HolderArgs) -> Result<()> {
    let node = Node(args.node);
    node.enter()?;
    match args.system {
        System::Verbs => serve(&mut VerbsHolder::open(node)?),
        System::Weft => serve(&mut WeftHolder::open(node)?),
    }
}

trait Holder {
    /// Its memory, for peers.
    fn region(&self) -> Region;
    fn obey(&mut self, order: Order) -> Result<Answer>;
}

fn serve(holder: &mut impl Holder) -> Result<()> {
    say_ready(&holder.region())?;
    while let Some(order) = next_word()? {
        say_ready(&holder.obey(order)?)?;
    }
    Ok(())
}

struct VerbsHolder {
    pd: Pd,
    mr: Mr,
    completions: Completions,
    local: LocalGid,
    offered: Vec<(InitQp, Duration)>,
    connected: Vec<RcQp>,
    targets: Targets,
}

impl VerbsHolder {
    fn open(node: Node) -> Result<Self> {
        let context = node.open()?;
        let (pd, mr) = register(&context, REGION_BYTES)?;
        Ok(Self {
            pd,
            mr,
            // One for all of them, as a program with many connections has it.
            completions: Completions::new(Wait::Event, &context, MAX_SEND_WR)?,
            local: node.local_gid(&context)?,
            offered: Vec::new(),
            connected: Vec::new(),
            targets: Targets::default(),
        })
    }

    fn offer(&mut self, count: usize, sends: bool) -> Result<Answer> {
        let config = QpConfig {
            max_send_wr: if sends { MAX_SEND_WR } else { 1 },
            ..QpConfig::default()
        };
        let mut answer = Answer::default();
        for _ in 0..count {
            let begin = Instant::now();
            match InitQp::with_config(&self.pd, self.completions.cq(), self.local, &config) {
                Ok(qp) => {
                    let create = begin.elapsed();
                    answer.endpoints.push(qp.endpoint().encode());
                    self.offered.push((qp, create));
                }
                Err(error) => return answer.ended(error.into()),
            }
        }
        Ok(answer)
    }

    fn join(
        &mut self,
        endpoints: &[[u8; Endpoint::BYTES]],
        region: Option<Region>,
    ) -> Result<Answer> {
        ensure!(endpoints.len() <= self.offered.len(), "not one for each");
        // Those that the other end could not make one for go.
        let mut offered = std::mem::take(&mut self.offered).into_iter();
        let answer = made(endpoints.len(), |at| {
            let (qp, create) = offered.next().context("not one for each")?;
            self.connect((qp, create), &endpoints[at], region)
        })?;
        if let Some(region) = region {
            self.targets.add(answer.count(), region);
        }
        Ok(answer)
    }

    /// Connects one queue pair, and WRITEs by it. Answers what both took.
    fn connect(
        &mut self,
        (qp, create): (InitQp, Duration),
        theirs: &[u8; Endpoint::BYTES],
        region: Option<Region>,
    ) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let qp = qp.connect(&Endpoint::decode(theirs)?)?;
        let call = create + begin.elapsed();
        let begin = Instant::now();
        if let Some(Region { addr, rkey }) = region {
            qp.post(&WorkRequest::new(Op::Write, &self.mr, 8, (addr, rkey)))?;
            wait(self.completions.cq())?;
        }
        self.connected.push(qp);
        Ok([call, begin.elapsed()])
    }

    /// WRITEs so many times at once.
    fn wave(&mut self, count: usize, sleeps: bool) -> Result<()> {
        for _ in 0..count {
            let (at, Region { addr, rkey }) = self.targets.turn()?;
            let write = WorkRequest::new(Op::Write, &self.mr, 8, (addr, rkey));
            self.connected[at].post(&write)?;
        }
        if !sleeps {
            return (0..count).try_for_each(|_| wait(self.completions.cq()));
        }
        let (mut done, mut room) = (0, [Completion::default(); WAVE]);
        while done < count {
            done += self.completions.take(&mut room)?;
        }
        Ok(())
    }
}

impl Holder for VerbsHolder {
    fn region(&self) -> Region {
        let (addr, rkey) = (self.mr.pages().addr(), self.mr.rkey());
        Region { addr, rkey }
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Offer { count, sends } => self.offer(count, sends),
            Order::Join { endpoints, region } => self.join(&endpoints, region),
            Order::Write { time_ms, sleeps } => waves(time_ms, |count| self.wave(count, sleeps)),
            Order::Connect { .. } => bail!("verbs was told to do Weft's work"),
        }
    }
}

/// Queue pairs on the queues of one session, whose rings are as large as one call's
/// requests need.
struct WeftHolder {
    qps: Vec<Qp>,
    /// Made for the first handle.
    unconnected: Option<Qp>,
    handles: Vec<PeerHandle>,
    targets: Targets,
    queues: Queues,
    memory: MemoryRegion,
    device: Device,
}

impl WeftHolder {
    fn open(node: Node) -> Result<Self> {
        let device = Device::open_on(u32::from(node.0))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            qps: Vec::new(),
            unconnected: None,
            handles: Vec::new(),
            targets: Targets::default(),
            queues: Queues::create(&device, &queues_config())?,
            memory: MemoryRegion::allocate(&device, REGION_BYTES, access)?,
            device,
        })
    }

    /// Answers what the call and the WRITE after it took.
    fn connect(&mut self, to: Node, region: Region) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let qp = self.queues.connect(to.gid(), 0, &qp_config())?;
        let call = begin.elapsed();
        let write = SendWr::write(self.memory.slice(0..8)?, region.into());
        write_once(&mut self.queues, write.on(&qp))?;
        self.qps.push(qp);
        Ok([call, begin.elapsed() - call])
    }

    fn open_handle(&mut self, to: Node, region: Region) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let handle = PeerHandle::open(&self.device, to.gid(), 0)?;
        let call = begin.elapsed();
        let qp = match &self.unconnected {
            Some(qp) => qp,
            None => {
                let qp = self.queues.unconnected(&qp_config())?;
                self.unconnected.insert(qp)
            }
        };
        let write = SendWr::write(self.memory.slice(0..8)?, region.into());
        write_once(&mut self.queues, write.on_to(qp, &handle))?;
        self.handles.push(handle);
        Ok([call, begin.elapsed() - call])
    }

    fn make(&mut self, count: usize, to: Node, region: Region, by_handle: bool) -> Result<Answer> {
        let answer = made(count, |_| match by_handle {
            true => self.open_handle(to, region),
            false => self.connect(to, region),
        })?;
        if !by_handle {
            self.targets.add(answer.count(), region);
        }
        Ok(answer)
    }

    /// WRITEs so many times at once.
    fn wave(&mut self, count: usize) -> Result<()> {
        let mut requests = Vec::with_capacity(count);
        for _ in 0..count {
            let (at, region) = self.targets.turn()?;
            let write = SendWr::write(self.memory.slice(0..8)?, region.into());
            requests.push(write.signaled().on(&self.qps[at]));
        }
        let mut room = [Wc::default(); WAVE];
        let progress = self.queues.enter(&requests, &mut room, count, PATIENCE)?;
        ensure!(progress.completed == count, "a wave of WRITEs did not end");
        room.iter().try_for_each(|wc| Ok(wc.result().map(drop)?))
    }
}

impl Holder for WeftHolder {
    fn region(&self) -> Region {
        self.memory.remote().into()
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Connect {
                count,
                node,
                region,
                by_handle,
            } => self.make(count, Node(node), region, by_handle),
            Order::Write { time_ms, .. } => waves(time_ms, |count| self.wave(count)),
            Order::Offer { .. } | Order::Join { .. } => bail!("Weft was told to do verbs' work"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: [Duration; 2] = [Duration::from_micros(1); 2];

    /// Two connections, and an error in place of the third.
    fn two(error: impl Fn() -> anyhow::Error) -> Result<Answer> {
        made(3, |at| if at < 2 { Ok(TOOK) } else { Err(error()) })
    }

    fn of_verbs(errno: Errno) -> anyhow::Error {
        let reason = std::io::Error::from_raw_os_error(errno as i32);
        let call = "ibv_create_qp";
        weft_verbs::Error::Call { call, reason }.into()
    }

    #[test]
    fn what_was_made_before_the_limit_counts() {
        let all = made(3, |_| Ok(TOOK)).unwrap();
        assert_eq!((all.count(), all.limit), (3, None));
        for errno in LIMITS {
            let some = two(|| of_verbs(errno).context("no more")).unwrap();
            assert_eq!(some.count(), 2);
            assert!(some.limit.unwrap().starts_with("no more: ibv_create_qp"));
        }
        let some = two(|| weft_shim::Error::TooManyVqps.into()).unwrap();
        assert_eq!((some.count(), some.limit.is_some()), (2, true));
    }

    #[test]
    fn what_is_no_limit_ends_the_benchmark() {
        assert!(two(|| of_verbs(Errno::EINVAL)).is_err());
        assert!(two(|| weft_shim::Error::MetaTimeout.into()).is_err());
        // The module answers with EAGAIN then.
        assert!(two(|| weft_shim::Error::NoMetaServer.into()).is_err());
        assert!(two(|| anyhow::anyhow!("a WRITE has failed")).is_err());
    }

    #[test]
    fn neighbours_in_turn_are_connections_to_different_peers() {
        let region = |addr| Region { addr, rkey: 1 };
        let mut targets = Targets::default();
        assert!(targets.turn().is_err());
        (0..3).for_each(|peer| targets.add(STEP, region(peer)));
        for _ in 0..10 {
            let (first, one) = targets.turn().unwrap();
            let (second, other) = targets.turn().unwrap();
            assert_eq!(one.addr, (first / STEP) as u64);
            assert_eq!(other.addr, (second / STEP) as u64);
            assert_ne!(one, other);
        }
    }
}
