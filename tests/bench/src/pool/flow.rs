// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client that has always as many requests under way, READs and WRITEs in turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use weft_shim::{Remote, SendWr, Wc};
use weft_verbs::{Op, WorkRequest, WrList};

use crate::cli::ExchangeKind;
use crate::nodes::{Node, CLIENT};
use crate::peer::Ready;
use crate::stats::Times;
use crate::verbs::{Exchange, Link, Stack, MAX_SEND_WR};
use crate::wait::Wait;
use crate::weft::WeftLink;

/// Requests under way.
pub const DEPTH: usize = MAX_SEND_WR as usize;
/// For one of them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has `DEPTH` requests under way.
pub trait Flow {
    /// Posts as many requests as are lacking, waits until one has ended at least, and
    /// records how long each took that has.
    fn step(&mut self, times: &mut Times) -> Result<()>;

    /// Waits until all have ended, and records none: their last ones had fewer beside them.
    fn rest(&mut self) -> Result<()>;

    /// Goes on for so long. Answers the requests that ended in a second.
    fn run(&mut self, time: Duration, times: &mut Times) -> Result<f64> {
        let (begin, before) = (Instant::now(), times.count());
        while begin.elapsed() < time {
            self.step(times)?;
        }
        let per_sec = (times.count() - before) as f64 / begin.elapsed().as_secs_f64();
        self.rest()?;
        Ok(per_sec)
    }
}

/// When the requests under way were posted; they end in that order.
#[derive(Default)]
struct UnderWay(VecDeque<Instant>);

impl UnderWay {
    fn lacking(&self) -> usize {
        DEPTH - self.0.len()
    }

    fn posted(&mut self, count: usize) {
        let now = Instant::now();
        self.0.extend((0..count).map(|_| now));
    }

    fn ended(&mut self, count: usize, times: &mut Times) -> Result<()> {
        let now = Instant::now();
        for _ in 0..count {
            let posted = self.0.pop_front().context("one too many has ended")?;
            times.record(now - posted);
        }
        Ok(())
    }
}

/// Over a VQP.
pub struct WeftFlow {
    link: WeftLink,
    bytes: usize,
    under_way: UnderWay,
    next: usize,
}

impl WeftFlow {
    /// Connects to a peer's memory, which has room for twice so many bytes.
    pub fn connect(node: Node, peer: &Ready, bytes: u32) -> Result<Self> {
        let remote: Remote = peer.weft.context("the peer does not serve Weft")?.into();
        let bytes = usize::try_from(bytes)?;
        Ok(Self {
            link: WeftLink::connect(node, remote, 2 * bytes, MAX_SEND_WR)?,
            bytes,
            under_way: UnderWay::default(),
            next: 0,
        })
    }

    /// Posts what is lacking and waits until so many have ended.
    fn enter(&mut self, post: usize, least: usize, times: &mut Times) -> Result<()> {
        let Self { link, bytes, .. } = self;
        let (into, from) = (
            link.memory.slice(0..*bytes)?,
            link.memory.slice(*bytes..2 * *bytes)?,
        );
        let written = link.remote.offset(*bytes as u64);
        let request = |turn: usize| match turn % 2 {
            0 => SendWr::read(into, link.remote).signaled(),
            _ => SendWr::write(from, written).signaled(),
        };
        let requests: Vec<_> = (self.next..self.next + post).map(request).collect();
        let mut room = [Wc::default(); DEPTH];
        self.under_way.posted(post);
        let progress = link.vqp.enter(&requests, &mut room, least, PATIENCE)?;
        ensure!(
            progress.submitted == post,
            "{} of {post} were taken",
            progress.submitted
        );
        ensure!(
            progress.completed >= least,
            "nothing has ended within {PATIENCE:?}"
        );
        for wc in &room[..progress.completed] {
            wc.result()?;
        }
        self.next += post;
        self.under_way.ended(progress.completed, times)
    }
}

impl Flow for WeftFlow {
    fn step(&mut self, times: &mut Times) -> Result<()> {
        self.enter(self.under_way.lacking(), 1, times)
    }

    fn rest(&mut self) -> Result<()> {
        self.enter(0, DEPTH - self.under_way.lacking(), &mut Times::new())
    }
}

/// Over a queue pair of verbs, as many at once.
pub struct VerbsFlow {
    requests: [WorkRequest; 2],
    list: WrList,
    link: Link,
    stack: Arc<Stack>,
    under_way: UnderWay,
    next: usize,
}

impl VerbsFlow {
    /// Connects to a peer's memory, which has room for twice so many bytes. The client
    /// sleeps until a request has ended, or polls.
    pub fn connect(peer: &Ready, bytes: u32, sleeps: bool) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let memory = usize::try_from(bytes)?;
        let wait = if sleeps { Wait::Event } else { Wait::Poll };
        let stack = Stack::waiting(wait, &context, memory, MAX_SEND_WR)?;
        let exchange = Exchange::with(ExchangeKind::Tcp, peer);
        let link = Link::warm(stack.clone(), local, exchange)?;
        Ok(Self {
            requests: [
                link.request(Op::Read, bytes, 0),
                link.request(Op::Write, bytes, u64::from(bytes)),
            ],
            list: WrList::default(),
            link,
            stack,
            under_way: UnderWay::default(),
            next: 0,
        })
    }

    fn take(&mut self, times: &mut Times) -> Result<()> {
        let mut room = [weft_verbs::Wc::default(); DEPTH];
        let done = self.stack.take(&mut room)?;
        self.under_way.ended(done, times)
    }
}

impl Flow for VerbsFlow {
    fn step(&mut self, times: &mut Times) -> Result<()> {
        let lacking = self.under_way.lacking();
        self.list.clear();
        for turn in self.next..self.next + lacking {
            self.list.push(&self.requests[turn % 2], true);
        }
        self.under_way.posted(lacking);
        self.link.post_list(&mut self.list)?;
        self.next += lacking;
        self.take(times)
    }

    fn rest(&mut self) -> Result<()> {
        while self.under_way.lacking() < DEPTH {
            self.take(&mut Times::new())?;
        }
        Ok(())
    }
}
