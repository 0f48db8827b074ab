// SPDX-License-Identifier: MIT OR Apache-2.0

//! A station of verbs: a queue pair for each client, all of which receive from
//! one shared queue. An answer goes by the queue pair that the message came by.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use weft_verbs::{
    Access, CmEvent, ConnectRequest, EventChannel, EventCq, Listener, Mr, Op, Pages, Pd,
    ServerConnection, Srq, Wc, WorkRequest,
};

use super::StationArgs;
use crate::peer::Region;

/// Completions taken at a time.
const BATCH: usize = 32;
/// Answers on the way to one client.
const MAX_SEND_WR: u32 = 64;
/// One answer of so many to a client makes a completion, which frees the queue.
const SIGNAL_EVERY: u64 = MAX_SEND_WR as u64 / 4;
/// Connection requests that may wait.
const BACKLOG: u16 = 128;

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
    /// By the number of the queue pair.
    clients: HashMap<u32, Client>,
}

/// A client that is connected.
struct Client {
    connection: ServerConnection,
    /// Answers that were sent to it, and those that are known to be done.
    sent: Cell<u64>,
    done: Cell<u64>,
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
        for _ in 0..self.args.clients {
            let request = next_request(&self.channel)?;
            let stack = match &mut stack {
                Some(stack) => stack,
                none => none.insert(Stack::on(&request, &self.args)?),
            };
            stack.accept(request)?;
        }
        match &mut stack {
            Some(stack) => stack.serve(Duration::from_micros(self.args.spin_us), &self.args),
            None => Ok(()),
        }
    }
}

/// Waits for a client.
fn next_request(channel: &EventChannel) -> Result<ConnectRequest> {
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
            // Receives, and the completions of answers.
            cq: EventCq::new(
                &context,
                args.buffers + u32::from(args.clients) * MAX_SEND_WR,
            )?,
            srq: Srq::new(&pd, args.buffers, args.bytes)?,
            memory: Mr::register(&pd, &pages, Access::LocalWrite)?,
            pd,
            clients: HashMap::new(),
        })
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        // One-sided requests are not served: there is no memory to name.
        let nowhere = Region { addr: 0, rkey: 0 }.encode();
        let (cq, srq) = (self.cq.cq(), &self.srq);
        let connection = request.accept_sending(&self.pd, cq, srq, MAX_SEND_WR, &nowhere)?;
        let client = Client {
            connection,
            sent: Cell::new(0),
            done: Cell::new(0),
        };
        self.clients.insert(client.connection.qp_num(), client);
        Ok(())
    }

    fn serve(&mut self, spin: Duration, args: &StationArgs) -> Result<()> {
        let mut room = [Wc::default(); BATCH];
        let mut last = Instant::now();
        loop {
            let mut taken = self.take(&mut room, args)?;
            if taken == 0 && last.elapsed() >= spin {
                self.cq.arm()?;
                // What came before is not told.
                taken = self.take(&mut room, args)?;
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

    /// Serves the messages that are there; answers with how many completions that
    /// were.
    fn take(&self, room: &mut [Wc], args: &StationArgs) -> Result<usize> {
        let wcs = self.cq.cq().poll(room)?;
        for wc in wcs {
            if let Some(failure) = wc.failure() {
                bail!("a message or an answer failed: {failure}");
            }
            let client = self.clients.get(&wc.qp_num());
            let client = client.context("a completion of an unknown queue pair")?;
            if !wc.is_recv() {
                client.done.set(client.done.get() + SIGNAL_EVERY);
                continue;
            }
            if args.reply.answers() {
                client.answer(&self.memory, wc.byte_len())?;
            }
            self.srq.post(wc.wr_id())?;
        }
        Ok(wcs.len())
    }
}

impl Client {
    /// Sends as many bytes as came. A client waits for the answer before it sends
    /// more messages than the queue has room for answers.
    fn answer(&self, memory: &Mr, bytes: u32) -> Result<()> {
        let request = WorkRequest::new(Op::Send, memory, bytes, (0, 0));
        let sent = self.sent.get() + 1;
        ensure!(
            sent - self.done.get() <= u64::from(MAX_SEND_WR),
            "too many answers are on the way"
        );
        self.sent.set(sent);
        match sent % SIGNAL_EVERY {
            0 => self.connection.post(&request),
            _ => self.connection.post_unsignaled(&request),
        }
        .context("cannot answer")
    }
}
