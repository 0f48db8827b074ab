// SPDX-License-Identifier: MIT OR Apache-2.0

//! A station of verbs: a queue pair for each client, which receive from one
//! shared queue. Answers go by a queue pair of their own, the other way, because
//! one that rdma_cm connects does not receive: as many packets, one more queue
//! pair.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use weft_verbs::{
    Access, CmEvent, ConnectRequest, Cq, EventChannel, EventCq, Listener, Mr, Op, Pages, Pd, RcQp,
    Route, ServerConnection, Srq, Wc, WorkRequest,
};

use super::{answer_addr, StationArgs};
use crate::peer::Region;

/// Completions taken at a time.
const BATCH: usize = 32;
/// Answers on the way to one client.
const MAX_SEND_WR: u32 = 64;
/// Connection requests that may wait.
const BACKLOG: u16 = 128;
/// How long rdma_cm may take for each step.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub struct Station {
    channel: EventChannel,
    _listener: Listener,
    args: StationArgs,
}

/// What is made on the device by which the first client comes.
struct Stack {
    pd: Pd,
    cq: EventCq,
    srq: Srq,
    /// What is answered.
    memory: Mr,
    connections: Vec<ServerConnection>,
    answers: HashMap<u32, Answers>,
}

/// The way back to a client.
struct Answers {
    qp: RcQp,
    cq: Cq,
}

impl Station {
    /// Listens for clients.
    pub fn listen(addr: SocketAddr, args: StationArgs) -> Result<Self> {
        let channel = EventChannel::new()?;
        Ok(Self {
            _listener: Listener::bind(&channel, addr, BACKLOG)?,
            channel,
            args,
        })
    }

    /// Waits for all clients, then serves as long as the process lives.
    pub fn serve(&mut self) -> Result<()> {
        let mut stack = None;
        for client in 0..self.args.clients {
            let request = next_request(&self.channel)?;
            let stack = match &mut stack {
                Some(stack) => stack,
                none => none.insert(Stack::on(&request, &self.args)?),
            };
            stack.accept(request, client, &self.args)?;
        }
        match &mut stack {
            Some(stack) => stack.serve(Duration::from_micros(self.args.spin_us)),
            None => Ok(()),
        }
    }
}

/// Waits for a client.
pub(super) fn next_request(channel: &EventChannel) -> Result<ConnectRequest> {
    loop {
        while let Some(event) = channel.next()? {
            if let CmEvent::ConnectRequest(request) = event {
                return Ok(request);
            }
        }
        sleep_on(channel)?;
    }
}

fn sleep_on(descriptor: &impl AsFd) -> Result<()> {
    let mut fds = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Stack {
    fn on(request: &ConnectRequest, args: &StationArgs) -> Result<Self> {
        let context = request.context()?;
        let pd = Pd::new(&context)?;
        let pages = Pages::zeroed(args.bytes as usize)?;
        Ok(Self {
            cq: EventCq::new(&context, args.buffers)?,
            srq: Srq::new(&pd, args.buffers, args.bytes)?,
            memory: Mr::register(&pd, &pages, Access::LocalWrite)?,
            pd,
            connections: Vec::new(),
            answers: HashMap::new(),
        })
    }

    fn accept(&mut self, request: ConnectRequest, client: u16, args: &StationArgs) -> Result<()> {
        let context = request.context()?;
        // One-sided requests are not served: there is no memory to name.
        let nowhere = Region { addr: 0, rkey: 0 }.encode();
        let connection = request.accept(&self.pd, self.cq.cq(), &self.srq, &nowhere)?;
        if args.reply.answers() {
            let cq = Cq::new(&context, MAX_SEND_WR)?;
            let route = Route::resolve(answer_addr(args.index, client), PATIENCE)?;
            let (qp, _) = route.connect(&self.pd, &cq, MAX_SEND_WR)?;
            self.answers.insert(connection.qp_num(), Answers { qp, cq });
        }
        self.connections.push(connection);
        Ok(())
    }

    fn serve(&mut self, spin: Duration) -> Result<()> {
        let mut room = [Wc::default(); BATCH];
        let mut last = Instant::now();
        loop {
            let mut taken = self.take(&mut room)?;
            if taken == 0 && last.elapsed() >= spin {
                self.cq.arm()?;
                // What came before is not told.
                taken = self.take(&mut room)?;
                if taken == 0 {
                    sleep_on(&self.cq)?;
                    self.cq.take_events()?;
                    last = Instant::now();
                }
            }
            if taken > 0 {
                last = Instant::now();
            }
        }
    }

    /// Serves the messages that are there; answers with how many.
    fn take(&self, room: &mut [Wc]) -> Result<usize> {
        let wcs = self.cq.cq().poll(room)?;
        for wc in wcs {
            if let Some(failure) = wc.failure() {
                bail!("a receive failed: {failure}");
            }
            if let Some(answers) = self.answers.get(&wc.qp_num()) {
                answers.send(&self.memory, wc.byte_len())?;
            }
            self.srq.post(wc.wr_id())?;
        }
        Ok(wcs.len())
    }
}

impl Answers {
    /// Sends as many bytes as came.
    fn send(&self, memory: &Mr, bytes: u32) -> Result<()> {
        reap(&self.cq)?;
        let request = WorkRequest::new(Op::Send, memory, bytes, (0, 0));
        self.qp.post(&request).context("cannot answer")
    }
}

/// Takes completions of what was sent, so that there is room for more.
pub(super) fn reap(cq: &Cq) -> Result<()> {
    let mut room = [Wc::default(); BATCH];
    for wc in cq.poll(&mut room)? {
        if let Some(failure) = wc.failure() {
            bail!("a message was not sent: {failure}");
        }
    }
    Ok(())
}
