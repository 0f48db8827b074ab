// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client as a good verbs program is today: it makes no object that it does not
//! need, and either polls its completions or sleeps until the completion channel
//! tells of one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use weft_verbs::{
    Access, Batch, Context, Cq, Endpoint, EventCq, InitQp, LocalGid, Mr, Op, Pages, PathMtu, Pd,
    QpConfig, RcQp, Route, Wc, WorkRequest, WrList,
};

use crate::cli::ExchangeKind;
use crate::peer::{Ready, Region};
use crate::wait::Wait;

/// Bytes of a client's registered memory, where it needs no more.
pub const REGION_BYTES: usize = 4096;
/// Requests that a client has outstanding.
pub const MAX_SEND_WR: u32 = 16;
/// How long rdma_cm may take for each step.
pub const CM_PATIENCE: Duration = Duration::from_secs(2);

/// What connections are made from.
pub struct Stack {
    pd: Pd,
    mr: Mr,
    completions: Completions,
    max_send_wr: u32,
    /// Of its queue pairs; see [`QpConfig`].
    max_reads: Option<u8>,
}

impl Stack {
    /// Protection domain, registered memory of so many bytes and a completion queue on a device,
    /// for this many outstanding requests.
    pub fn with(context: &Context, bytes: usize, max_send_wr: u32) -> Result<Arc<Self>> {
        Self::waiting(Wait::Poll, context, bytes, max_send_wr)
    }

    /// The same for clients that wait in this way.
    pub fn waiting(
        wait: Wait,
        context: &Context,
        bytes: usize,
        max_send_wr: u32,
    ) -> Result<Arc<Self>> {
        let completions = Completions::new(wait, context, max_send_wr)?;
        let (pd, mr) = register(context, bytes)?;
        // A client that posts many at a time asks the device how many READs it takes, as
        // perftest does. One that connects for a request has no use for that.
        let max_reads = match max_send_wr > MAX_SEND_WR {
            true => Some(context.max_reads()?),
            false => None,
        };
        Ok(Arc::new(Self {
            pd,
            mr,
            completions,
            max_send_wr,
            max_reads,
        }))
    }

    /// Of a protection domain and memory that were made before: makes the completion
    /// queue.
    pub fn of(memory: (Pd, Mr), wait: Wait) -> Result<Arc<Self>> {
        let (pd, mr) = memory;
        Ok(Arc::new(Self {
            completions: Completions::new(wait, pd.context(), MAX_SEND_WR)?,
            pd,
            mr,
            max_send_wr: MAX_SEND_WR,
            max_reads: None,
        }))
    }

    /// A queue pair that waits for its peer's address.
    pub fn new_qp(&self, local: LocalGid) -> Result<InitQp> {
        let config = QpConfig {
            max_send_wr: self.max_send_wr,
            max_reads: self.max_reads,
            ..QpConfig::default()
        };
        Ok(InitQp::with_config(
            &self.pd,
            self.completions.cq(),
            local,
            &config,
        )?)
    }

    /// Waits until some operations that were posted are done, and answers how many.
    pub fn take(&self, room: &mut [Wc]) -> Result<usize> {
        self.completions.take(room)
    }

    /// Waits until as many operations that were posted are done as there is room for.
    pub fn take_all(&self, room: &mut [Wc]) -> Result<()> {
        let mut done = 0;
        while done < room.len() {
            done += self.take(&mut room[done..])?;
        }
        Ok(())
    }

    /// Its memory.
    pub fn memory(&self) -> &Pages {
        self.mr.pages()
    }

    /// Its memory, for a peer.
    pub fn region(&self) -> Region {
        let (addr, rkey) = (self.mr.pages().addr(), self.mr.rkey());
        Region { addr, rkey }
    }
}

/// A completion queue, and how clients wait for what completes to it.
pub struct Completions {
    cq: Cq,
    /// The same queue, if they sleep.
    events: Option<EventCq>,
}

impl Completions {
    /// For so many completions at a time.
    pub fn new(wait: Wait, context: &Context, entries: u32) -> Result<Self> {
        Ok(match wait {
            Wait::Poll => Self {
                cq: Cq::new(context, entries)?,
                events: None,
            },
            Wait::Event => {
                let events = EventCq::blocking(context, entries)?;
                Self {
                    cq: events.cq().clone(),
                    events: Some(events),
                }
            }
            Wait::Call => bail!("no call of verbs waits"),
        })
    }

    /// The queue, for queue pairs.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Waits until some requests are done, and answers how many.
    pub fn take(&self, room: &mut [Wc]) -> Result<usize> {
        loop {
            let done = self.reap(room)?;
            if done > 0 {
                return Ok(done);
            }
            let Some(events) = &self.events else { continue };
            events.arm()?;
            // What was done before makes no event.
            let done = self.reap(room)?;
            if done > 0 {
                return Ok(done);
            }
            events.wait()?;
        }
    }

    /// Takes requests that are done, without waiting, and answers how many.
    fn reap(&self, room: &mut [Wc]) -> Result<usize> {
        let done = self.cq.poll(room)?;
        if let Some(failure) = done.iter().find_map(Wc::failure) {
            bail!("a request on a verbs queue pair failed: {failure}");
        }
        Ok(done.len())
    }

    /// Posts what makes one completion, and waits for that.
    fn posted(&self, post: impl FnOnce() -> weft_verbs::Result<()>) -> Result<()> {
        let Some(events) = &self.events else {
            post()?;
            return wait(&self.cq);
        };
        events.arm()?;
        post()?;
        events.wait()?;
        wait(&self.cq)
    }
}

/// How addresses are exchanged with the peer.
#[derive(Clone, Copy)]
pub enum Exchange {
    /// Over a TCP connection to this address, made for it.
    Tcp(SocketAddr),
    /// By rdma_cm to this address.
    RdmaCm(SocketAddr),
}

impl Exchange {
    /// The peer's service of this kind.
    pub fn with(kind: ExchangeKind, peer: &Ready) -> Self {
        match kind {
            ExchangeKind::Tcp => Self::Tcp(peer.tcp),
            ExchangeKind::RdmaCm => Self::RdmaCm(peer.rdma_cm),
        }
    }
}

/// A connection to the peer.
pub struct Link {
    qp: RcQp,
    stack: Arc<Stack>,
    remote: Region,
    /// The peer keeps its queue pair until this closes.
    _tcp: Option<TcpStream>,
}

impl Link {
    /// Connects with `stack` made before.
    pub fn warm(stack: Arc<Stack>, local: LocalGid, exchange: Exchange) -> Result<Self> {
        Ok(Self::timed(stack, local, exchange)?.0)
    }

    /// The same, and how long making the queue pair and connecting it took. By
    /// rdma_cm both are connecting.
    pub fn timed(
        stack: Arc<Stack>,
        local: LocalGid,
        exchange: Exchange,
    ) -> Result<(Self, [Duration; 2])> {
        let begin = Instant::now();
        match exchange {
            Exchange::Tcp(addr) => {
                // First of all, so that the peer makes its queue pair meanwhile.
                let tcp = dial(addr)?;
                let dialled = Instant::now();
                let qp = stack.new_qp(local)?;
                let create = dialled.elapsed();
                let link = Self::over_tcp(tcp, qp, stack)?;
                Ok((link, [create, begin.elapsed().saturating_sub(create)]))
            }
            Exchange::RdmaCm(addr) => {
                let link = Self::over_route(Route::resolve(addr, CM_PATIENCE)?, stack)?;
                Ok((link, [Duration::ZERO, begin.elapsed()]))
            }
        }
    }

    /// Connects a queue pair that is made from `stack` with the one that the peer made
    /// when it was called.
    pub fn over_tcp(mut tcp: TcpStream, qp: InitQp, stack: Arc<Stack>) -> Result<Self> {
        tcp.write_all(&qp.endpoint().encode())?;
        let mut answer = [0; Endpoint::BYTES + Region::BYTES];
        tcp.read_exact(&mut answer)
            .context("the peer did not answer with its queue pair")?;
        let (endpoint, region) = answer.split_at(Endpoint::BYTES);
        let qp = qp.connect(&Endpoint::decode(endpoint.try_into()?)?)?;
        let remote = Region::decode(region)?;
        Ok(Self {
            qp,
            stack,
            remote,
            _tcp: Some(tcp),
        })
    }

    /// Connects by a route, with a stack on its device.
    pub fn over_route(route: Route, stack: Arc<Stack>) -> Result<Self> {
        let (qp, reply) = route.connect(&stack.pd, stack.completions.cq(), stack.max_send_wr)?;
        let remote = Region::decode(&reply)?;
        Ok(Self {
            qp,
            stack,
            remote,
            _tcp: None,
        })
    }

    /// A connection that was made elsewhere, with a stack's objects.
    pub fn over(qp: RcQp, stack: Arc<Stack>, remote: Region) -> Self {
        Self {
            qp,
            stack,
            remote,
            _tcp: None,
        }
    }

    /// What it was made from.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The path MTU of its queue pair.
    pub fn path_mtu(&self) -> Result<PathMtu> {
        Ok(self.qp.path_mtu()?)
    }

    /// Does one operation on 8 bytes and waits until it is done.
    pub fn do8(&self, op: Op) -> Result<()> {
        self.run(&self.request(op, 8, 0))
    }

    /// An operation between the start of the client's memory and the peer's at
    /// this offset.
    pub fn request(&self, op: Op, bytes: u32, offset: u64) -> WorkRequest {
        let remote = (self.remote.addr + offset, self.remote.rkey);
        WorkRequest::new(op, &self.stack.mr, bytes, remote)
    }

    /// Does one operation and waits until it is done.
    pub fn run(&self, request: &WorkRequest) -> Result<()> {
        self.stack.completions.posted(|| self.qp.post(request))
    }

    /// Does all operations of a list and waits until the last is done.
    pub fn run_batch(&self, batch: &Batch) -> Result<()> {
        let post = || self.qp.post_batch(batch);
        self.stack.completions.posted(post)
    }

    /// Posts all operations of a list, whose completions somebody waits for.
    pub fn post_list(&self, list: &mut WrList) -> Result<()> {
        Ok(self.qp.post_list(list)?)
    }

    /// Posts one operation, whose completion somebody waits for.
    pub fn post(&self, request: &WorkRequest) -> Result<()> {
        Ok(self.qp.post(request)?)
    }
}

/// Polls until one completion arrives, and checks it. Without a pause between
/// polls, as in perftest: an emulated processor takes long over one.
pub fn wait(cq: &Cq) -> Result<()> {
    let mut room = [Wc::default()];
    loop {
        if let [wc] = cq.poll(&mut room)? {
            if let Some(failure) = wc.failure() {
                bail!("a request on a verbs queue pair failed: {failure}");
            }
            return Ok(());
        }
    }
}

/// Protection domain and registered memory of so many bytes on a device.
pub fn register(context: &Context, bytes: usize) -> Result<(Pd, Mr)> {
    let pd = Pd::new(context)?;
    let mr = Mr::register(&pd, &Pages::zeroed(bytes)?, Access::All)?;
    Ok((pd, mr))
}

/// Calls the peer's service by TCP.
pub fn dial(addr: SocketAddr) -> Result<TcpStream> {
    let tcp = TcpStream::connect(addr)
        .with_context(|| format!("cannot reach the peer at {addr} by TCP"))?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
