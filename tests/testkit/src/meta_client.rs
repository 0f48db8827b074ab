// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node as the meta server sees it, but in user space: it connects by rdma_cm,
//! publishes by SEND and looks up by READ (krcore §4.2).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::errno::Errno;
use weft_core::gid::Gid;
use weft_core::kv::{Lookup, ReadAt, Step, BUCKET_BYTES};
use weft_core::meta::{Publication, Record, Welcome};
use weft_verbs::{Access, Cq, Mr, Op, Pages, Pd, RcQp, Route, Wc, WorkRequest};

use crate::pace::patient;

/// How long rdma_cm may take for each step.
const CM_PATIENCE: Duration = Duration::from_secs(2);
/// How long a request may take: soft-RoCE repeats one for ever whose peer has gone.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the client's memory, which holds a message or a bucket.
const MEMORY_BYTES: usize = 4096;
const _: () = assert!(BUCKET_BYTES <= MEMORY_BYTES);

/// Reserved ports, from which a node connects; the first to be tried differs from
/// process to process.
const RESERVED: std::ops::Range<u16> = 512..1024;

/// A connection to a meta server.
pub struct MetaClient {
    qp: RcQp,
    cq: Cq,
    memory: Mr,
    welcome: Welcome,
}

impl MetaClient {
    /// Connects as a reader, from any port, and checks that it is a meta server that
    /// answers. Anybody may.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or not a meta server of this version, or it has as many
    /// readers as it takes.
    pub fn connect(server: SocketAddr) -> Result<Self> {
        let route = Route::resolve(server, CM_PATIENCE);
        Self::over(route.with_context(|| unreachable(server))?, server)
    }

    /// As [`Self::connect`], from an address of this host.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`]; the address is not one of an RDMA device here.
    pub fn connect_from(source: IpAddr, server: SocketAddr) -> Result<Self> {
        let source = SocketAddr::new(source, 0);
        let route = Route::resolve_from(source, server, CM_PATIENCE);
        Self::over(route.with_context(|| unreachable(server))?, server)
    }

    /// Connects as a node does, from a reserved port, so that it may publish.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`]; `EACCES` without `CAP_NET_BIND_SERVICE`.
    pub fn connect_as_node(server: SocketAddr) -> Result<Self> {
        let count = RESERVED.end - RESERVED.start;
        // The remainder is less than `count`, which is a u16.
        let first = (std::process::id() % u32::from(count)) as u16;
        let mut steps = 0..count;
        let route = loop {
            let step = steps.next().context("all reserved ports are taken")?;
            let port = RESERVED.start + (first + step) % count;
            let source = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            match Route::resolve_from(source, server, CM_PATIENCE) {
                Err(error) if is_taken(&error) => {}
                route => break route.with_context(|| unreachable(server))?,
            }
        };
        Self::over(route, server)
    }

    fn over(route: Route, server: SocketAddr) -> Result<Self> {
        let context = route.context()?;
        let pd = Pd::new(&context)?;
        let cq = Cq::new(&context, 1)?;
        let memory = Mr::register(&pd, &Pages::zeroed(MEMORY_BYTES)?, Access::LocalWrite)?;
        let connected = route.connect(&pd, &cq, 1);
        let (qp, reply) = connected.with_context(|| unreachable(server))?;
        let welcome = Welcome::decode(&reply)
            .with_context(|| format!("what listens at {server} is not this version's weft-meta"))?;
        Ok(Self {
            qp,
            cq,
            memory,
            welcome,
        })
    }

    /// Where the server's table is.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Publishes or withdraws. The server has it when this returns, and applies it
    /// soon after.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn send(&mut self, publication: &Publication) -> Result<()> {
        self.send_with_token(publication, self.welcome.token)
    }

    /// The same with any token.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn send_with_token(&mut self, publication: &Publication, token: u64) -> Result<()> {
        self.send_bytes(&publication.encode(token))
    }

    /// Sends any bytes, up to a page.
    ///
    /// # Errors
    ///
    /// The connection broke, as it does when a message is longer than the server
    /// has room for.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let words = self.memory.pages().words();
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        self.complete(Op::Send, bytes.len(), 0)
    }

    /// Looks a node up. Answers with its record, if there is one, and with the READs
    /// that it took.
    ///
    /// # Errors
    ///
    /// The connection broke, or the table makes no sense.
    pub fn look_up(&mut self, gid: Gid) -> Result<(Option<Record>, u32)> {
        let mut lookup = Lookup::new(self.welcome.geometry, gid.0);
        loop {
            let bucket = self.read(lookup.next_read())?;
            let record = match lookup.feed(&bucket) {
                Step::Read(_) => continue,
                Step::Found(value) => Some(Record::from_value(&value)),
                Step::Absent => None,
                other => bail!("the look-up of {gid} gave up: {other:?}"),
            };
            return Ok((record, lookup.reads()));
        }
    }

    /// Tries to WRITE to the table, which nobody may.
    ///
    /// # Errors
    ///
    /// The server's NIC said no, as it should.
    pub fn write_table(&mut self) -> Result<()> {
        self.complete(Op::Write, 8, 0)
    }

    fn read(&mut self, at: ReadAt) -> Result<Vec<u8>> {
        let len = usize::try_from(at.len)?;
        self.complete(Op::Read, len, at.offset)?;
        let words = &self.memory.pages().words()[..len.div_ceil(8)];
        let bytes = words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        Ok(bytes.take(len).collect())
    }

    /// Does one operation on the client's memory and the table at `offset`.
    fn complete(&self, op: Op, len: usize, offset: u64) -> Result<()> {
        let remote = (self.welcome.table_addr + offset, self.welcome.table_rkey);
        let len = u32::try_from(len)?;
        self.qp
            .post(&WorkRequest::new(op, &self.memory, len, remote))?;
        let (mut room, start) = ([Wc::default()], Instant::now());
        while start.elapsed() < patient(REQUEST_PATIENCE) {
            if let [wc] = self.cq.poll(&mut room)? {
                return match wc.failure() {
                    Some(failure) => bail!("{op:?} failed: {failure}"),
                    None => Ok(()),
                };
            }
        }
        bail!("{op:?} failed: the server does not answer")
    }
}

fn unreachable(server: SocketAddr) -> String {
    format!("cannot connect to weft-meta at {server}")
}

/// Whether the source port is the reason.
fn is_taken(error: &weft_verbs::Error) -> bool {
    let errno = error.errno().map(Errno::from_raw);
    matches!(errno, Some(Errno::EADDRINUSE | Errno::EADDRNOTAVAIL))
}
