// SPDX-License-Identifier: GPL-2.0

//! One RC connection to a meta server.

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::gid::Gid;
use weft_core::kv::{Lookup, Step};
use weft_core::meta::{Publication, Record, Welcome};

use crate::counters::{Counted, COUNTERS};
use crate::rdma::Connection;
use crate::sync::lock_interruptible;

/// How long a READ or SEND may take before the link counts as broken.
const REQUEST_NS: u64 = 2_000_000_000;

/// What a look-up found, and how many READs it took.
pub(crate) struct Answer {
    pub(crate) record: Option<Record>,
    pub(crate) reads: u32,
}

struct State {
    connection: Connection,
    /// A request has failed: the queue pair is in error.
    broken: bool,
}

/// A connection to a meta server, used by one thread at a time.
#[pin_data]
pub(crate) struct Link {
    welcome: Welcome,
    #[pin]
    state: Mutex<State>,
    _count: Counted,
}

impl Link {
    /// A link over a connection that a meta server has accepted.
    ///
    /// # Errors
    ///
    /// `EPROTO`: whoever accepted is not a meta server of our version.
    pub(crate) fn new(connection: Connection) -> Result<Arc<Self>> {
        let welcome = Welcome::decode(connection.private()).ok_or_else(crate::errno::proto)?;
        Arc::pin_init(
            pin_init!(Self {
                welcome,
                state <- kernel::new_mutex!(State { connection, broken: false }, "weft_meta_link"),
                _count: Counted::one(&COUNTERS.meta_links),
            }),
            GFP_KERNEL,
        )
    }

    /// Buckets of the server's table.
    pub(crate) fn buckets(&self) -> u32 {
        self.welcome.geometry.total_buckets()
    }

    /// Whether it can still be used.
    pub(crate) fn is_alive(&self) -> bool {
        let state = self.state.lock();
        !state.broken && state.connection.is_established()
    }

    /// Looks a node up: one READ, seldom more.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the record was being written all the while. `ENOTCONN`: the link was
    /// broken before. `ETIMEDOUT`, `EIO`: it broke now. `EINTR`: a
    /// signal came.
    pub(crate) fn look_up(&self, gid: &Gid) -> Result<Answer> {
        COUNTERS.meta_reads.bump();
        let answer = self.find(gid)?;
        (1..answer.reads).for_each(|_| COUNTERS.meta_reads.bump());
        Ok(answer)
    }

    /// Whether the server still answers, and what its table holds of a node: a look-up
    /// in the background that does not count as one.
    ///
    /// # Errors
    ///
    /// As [`Link::look_up`].
    pub(crate) fn probe(&self, gid: &Gid) -> Result<Option<Record>> {
        self.find(gid).map(|answer| answer.record)
    }

    fn find(&self, gid: &Gid) -> Result<Answer> {
        let mut lookup = Lookup::new(self.welcome.geometry, gid.0);
        let mut at = lookup.next_read();
        let mut state = lock_interruptible(&self.state)?;
        loop {
            let addr = self.welcome.table_addr.wrapping_add(at.offset);
            let bucket = state.read(addr, self.welcome.table_rkey, at.len)?;
            let record = match lookup.feed(bucket) {
                Step::Read(next) => {
                    at = next;
                    continue;
                }
                Step::Found(value) => Some(Record::from_value(&value)),
                Step::Absent => None,
                Step::GaveUp => return Err(EAGAIN),
            };
            return Ok(Answer {
                record,
                reads: lookup.reads(),
            });
        }
    }

    /// Tells the server something about this node.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EIO`: the link is broken.
    pub(crate) fn tell(&self, publication: &Publication) -> Result {
        self.state.lock().guarded(|connection| {
            connection.send(&publication.encode(self.welcome.token), REQUEST_NS)
        })
    }
}

impl State {
    fn guarded(&mut self, f: impl FnOnce(&mut Connection) -> Result) -> Result {
        if self.broken {
            return Err(EIO);
        }
        f(&mut self.connection).inspect_err(|_| self.broken = true)
    }

    fn read(&mut self, addr: u64, rkey: u32, len: u32) -> Result<&[u8]> {
        if self.broken {
            return Err(crate::errno::not_conn());
        }
        match self.connection.read(addr, rkey, len, REQUEST_NS) {
            Ok(bytes) => Ok(bytes),
            // A signal ended the wait; the link is as good as before.
            Err(EINTR) => Err(EINTR),
            Err(error) => {
                self.broken = true;
                Err(error)
            }
        }
    }
}
