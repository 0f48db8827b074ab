// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node as the meta server sees it, but in user space: it connects by rdma_cm,
//! publishes by SEND and looks up by READ (krcore §4.2).

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use weft_core::gid::Gid;
use weft_core::kv::{Lookup, ReadAt, Step, BUCKET_BYTES};
use weft_core::meta::{Publication, Record, Welcome};
use weft_verbs::{Access, Cq, Mr, Op, Pages, Pd, RcQp, Route, Wc, WorkRequest};

/// How long rdma_cm may take for each step.
const CM_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of the client's memory, which holds a message or a bucket.
const MEMORY_BYTES: usize = 4096;
const _: () = assert!(BUCKET_BYTES <= MEMORY_BYTES);

/// A connection to a meta server.
pub struct MetaClient {
    qp: RcQp,
    cq: Cq,
    memory: Mr,
    welcome: Welcome,
}

impl MetaClient {
    /// Connects, and checks that it is a meta server that answers.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or not a meta server of this version.
    pub fn connect(server: SocketAddr) -> Result<Self> {
        let unreachable = || format!("cannot connect to weft-meta at {server}");
        let route = Route::resolve(server, CM_PATIENCE).with_context(unreachable)?;
        let context = route.context()?;
        let pd = Pd::new(&context)?;
        let cq = Cq::new(&context, 1)?;
        let memory = Mr::register(&pd, &Pages::zeroed(MEMORY_BYTES)?, Access::LocalWrite)?;
        let (qp, reply) = route.connect(&pd, &cq, 1).with_context(unreachable)?;
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
        self.send_bytes(&publication.encode())
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
        let mut room = [Wc::default()];
        loop {
            if let [wc] = self.cq.poll(&mut room)? {
                return match wc.failure() {
                    Some(failure) => bail!("{op:?} failed: {failure}"),
                    None => Ok(()),
                };
            }
        }
    }
}
