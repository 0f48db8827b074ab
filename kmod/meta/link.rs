// SPDX-License-Identifier: GPL-2.0

//! One RC connection to a meta server.

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::gid::Gid;
use weft_core::kv::{Lookup, ReadAt, Step};
use weft_core::meta::{Publication, Record, Welcome};

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::rdma::Connection;
use crate::sync::lock_interruptible;

/// How long a READ or SEND may take before the link counts as broken.
const REQUEST_NS: u64 = 2_000_000_000;

/// The result of a look-up, and how many READs it took.
pub(crate) struct Answer {
    pub(crate) record: Option<Record>,
    pub(crate) reads: u32,
}

/// How long before a look-up the READ of its bucket may have been posted.
const AHEAD_NS: u64 = 10_000_000;

/// A READ that was posted ahead of the look-up that it is for.
struct Ahead {
    at: ReadAt,
    posted_ns: u64,
}

struct State {
    connection: Connection,
    /// A request has failed: the queue pair is in error.
    broken: bool,
    /// The connection's last request, if it is one of these.
    ahead: Option<Ahead>,
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
                state <- kernel::new_mutex!(State { connection, broken: false, ahead: None }, "weft_meta_link"),
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
        self.find(gid, || COUNTERS.meta_reads.bump())
    }

    /// Whether the server still answers, and what its table holds of a node: a look-up
    /// in the background that does not count as one.
    ///
    /// # Errors
    ///
    /// As [`Link::look_up`].
    pub(crate) fn probe(&self, gid: &Gid) -> Result<Option<Record>> {
        self.find(gid, || {}).map(|answer| answer.record)
    }

    /// Posts the first READ of a look-up that will come soon, without waiting for it. Answers
    /// whether the link can be used; if it is in use, nothing is posted.
    pub(crate) fn begin(&self, gid: &Gid) -> bool {
        let Some(mut state) = self.state.try_lock() else {
            return true;
        };
        if state.broken {
            return false;
        }
        let at = Lookup::new(self.welcome.geometry, gid.0).next_read();
        let (addr, rkey) = self.place_of(&at);
        match state.connection.begin_read(addr, rkey, at.len) {
            Ok(true) => {
                state.ahead = Some(Ahead {
                    at,
                    posted_ns: now_ns(),
                });
            }
            Ok(false) => {}
            Err(_) => state.broken = true,
        }
        !state.broken
    }

    fn place_of(&self, at: &ReadAt) -> (u64, u32) {
        let addr = self.welcome.table_addr.wrapping_add(at.offset);
        (addr, self.welcome.table_rkey)
    }

    /// Looks a node up, and tells `on_read` of each READ.
    fn find(&self, gid: &Gid, on_read: impl Fn()) -> Result<Answer> {
        let mut lookup = Lookup::new(self.welcome.geometry, gid.0);
        let mut at = lookup.next_read();
        let mut state = lock_interruptible(&self.state)?;
        if state.broken {
            return Err(crate::errno::not_conn());
        }
        loop {
            on_read();
            let (addr, rkey) = self.place_of(&at);
            let bucket = match state.take_ahead(&at) {
                true => state.request(|connection| connection.finish_read(at.len, REQUEST_NS)),
                false => {
                    state.request(|connection| connection.read(addr, rkey, at.len, REQUEST_NS))
                }
            }?;
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
        let mut state = self.state.lock();
        state.ahead = None;
        state.guarded(|connection| {
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

    /// Whether the last request is a READ for this that was posted just before. Either way
    /// it is nobody's any more.
    fn take_ahead(&mut self, at: &ReadAt) -> bool {
        let ahead = self.ahead.take();
        let is_it = ahead.is_some_and(|ahead| {
            ahead.at == *at && now_ns().saturating_sub(ahead.posted_ns) < AHEAD_NS
        });
        if is_it {
            COUNTERS.lookups_ahead.bump();
        }
        is_it
    }

    /// Carries out a READ of a link that is not broken; if it fails, the link is.
    fn request<'a>(
        &'a mut self,
        read: impl FnOnce(&'a mut Connection) -> Result<&'a [u8]>,
    ) -> Result<&'a [u8]> {
        match read(&mut self.connection) {
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
