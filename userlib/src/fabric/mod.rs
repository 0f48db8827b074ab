// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one trait below everything: memory that peers write, and posts to
//! theirs.
//!
//! A *node* is one participant, by its rank from 0 on. Each has one *region*,
//! which every other node may read and write one-sidedly. The protocols above
//! (SST, SMC: spindle §II.B, §II.C) need no more than this, so that they run
//! the same over shared memory ([`shm`]), Weft's virtual queue pairs (`weft`)
//! and plain verbs (`verbs`). The first is always there; the others are features
//! of this crate: `weft` by default, because it needs no library, `verbs` on
//! request, because it links librdmacm and libibverbs.
//!
//! # What every fabric promises
//!
//! 1. *Order.* Writes that one thread posts to one peer become visible there
//!    in the order of posting. Who sees a byte of a later write (by an acquire
//!    load of a word of it) sees every byte of all earlier ones. Between two
//!    peers, or two threads, there is no order. (Over RDMA: see below.)
//! 2. *Words.* A write of at most [`WORD_ATOMIC_BYTES`] whose two offsets and
//!    length are multiples of 8 is seen word by word: each aligned 8-byte word
//!    is old or new, never a mixture. There is no order among the words of one
//!    write. Larger writes promise nothing about their words; put a small one
//!    behind that says that they are there. (Over RDMA: see below.)
//! 3. *Sources.* The source of a write is read at some time between the post
//!    and the next [`Endpoint::fence`]. Whoever changes it before sends the old
//!    or the new word, which monotonic state does not mind (spindle §III.C). Of
//!    a write of words of at most [`COPIED_BYTES`] it is read before the post
//!    returns.
//! 4. *Death.* A peer that dies, even by SIGKILL, appears in
//!    [`Endpoint::down`] soon and without anything being posted to it, and the
//!    local node's sleep ends. What was posted to it may be lost silently or
//!    answered with [`FabricError::PeerDown`]; nothing hangs. A child that a node's process has
//!    forked keeps all that the node holds open: until the child ends too, or executes another
//!    program, the node is not down.
//! 5. *Refusal.* A range outside of a region is an error before anything has
//!    been transferred.
//! 6. *Seats*, if nodes may come after the meeting ([`Fabric::has_seats`]). A seat is given to
//!    a newcomer ([`Endpoint::admit`]) only when nothing that the node before it had posted
//!    arrives any more. Of a newcomer nothing arrives before it learns that it may post, and
//!    nothing that was posted to the node before it reaches the newcomer.
//!
//! [`conformance`] holds these promises as one test suite for any fabric.
//!
//! # Which devices keep the first two
//!
//! InfiniBand promises neither: by its rules a receiver may look at what was
//! written once a completion has told it to, not before (`ibv_reg_mr(3)`,
//! "Ordering semantics"). Devices differ (ARCHITECTURE.md, "What is expected of a
//! device"):
//!
//! - *Order.* Weft's own transport (DC) and soft-RoCE keep it: their processors
//!   store one write after the other. RoCE adapters keep it for memory without
//!   relaxed ordering, which is what `verbs` registers, because PCI Express keeps
//!   writes of one device in order; but not ConnectX-5 and later where packets may
//!   be placed out of order (adaptive routing). Over `weft`, with an mlx5 adapter,
//!   it is *not* kept when the module takes RC: the driver allows relaxed ordering
//!   for all memory that the kernel registers. Load the module with `pool=dc`
//!   there, and pin no peer. `ibv_query_qp_data_in_order(3)` is no answer: it speaks
//!   of the bytes of one write. The library runs over no other kind of device: iWARP and EFA, whose
//!   writes may land in any order, have no port that it finds by an IP address.
//! - *Words.* Adapters move aligned words of 8 bytes whole, though no specification
//!   says so. Of what copies in software, DC stores a word by one instruction, and
//!   soft-RoCE does if the word is an ATOMIC WRITE (`Words`). A WRITE that the
//!   module gives to soft-RoCE's RC (`pool=rc`, or a pinned peer) is copied by
//!   `memcpy`: on processors with fast short string moves nothing promises that
//!   its words are whole.

pub mod conformance;
mod error;
mod newcomer;
mod polling;
#[cfg(any(feature = "verbs", feature = "weft"))]
mod rdma;
mod region;
mod set;
pub mod shm;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod thread;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(feature = "weft")]
pub mod weft;

pub use error::FabricError;
pub use newcomer::Newcomer;
#[cfg(any(feature = "verbs", feature = "weft"))]
pub use rdma::words::Words;
pub use region::Region;
pub use set::NodeSet;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Most nodes of a fabric: a set of them is a word.
pub const MAX_NODES: usize = 64;
/// Most bytes of a node's region.
pub const MAX_REGION_BYTES: usize = 1 << 34;
/// Most bytes that nodes tell one another when they connect.
pub const MAX_HELLO_BYTES: usize = 1 << 16;
/// Longest write whose words are atomic.
pub const WORD_ATOMIC_BYTES: usize = 256;
/// Longest write of words whose source may be changed as soon as it is posted.
pub const COPIED_BYTES: usize = 64;

/// Highest number of an incarnation: it has to fit into a word beside a rank.
pub const MAX_INCARNATION: u64 = u64::MAX >> 6;

/// A one-sided write: a range of the own region to the same length at an
/// offset of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// Offset in the own region.
    pub local: usize,
    /// Offset in the peer's region.
    pub remote: usize,
    /// Bytes.
    pub len: usize,
}

/// A node that has not yet met the others: where they meet, and which it is.
///
/// # Safety
///
/// What [`Self::connect`] answers with is as [`Endpoint`] says.
pub unsafe trait Fabric {
    /// This node's rank, below [`Self::nodes`].
    fn rank(&self) -> usize;

    /// How many nodes meet, this one included: 1 to [`MAX_NODES`].
    fn nodes(&self) -> usize;

    /// Whether nodes may come after the meeting, so that some ranks may be empty seats at
    /// first.
    fn has_seats(&self) -> bool {
        false
    }

    /// Whether nodes can look into one another's memory ([`Endpoint::sight_of`]).
    fn has_sight(&self) -> bool {
        false
    }

    /// Allocates the node's region (bytes zero, aligned to a page), meets
    /// every other node, and exchanges regions and hellos with it. Regions may
    /// differ in length from node to node.
    ///
    /// The hello is the caller's: at most [`MAX_HELLO_BYTES`], handed to the
    /// others before any write of this node can arrive. All hellos are
    /// exchanged before this returns, so that nodes that disagree all learn it.
    ///
    /// # Errors
    ///
    /// [`FabricError::Timeout`] with those who did not come within `timeout`;
    /// [`FabricError::NodesDiffer`], [`FabricError::RankTaken`], and what the
    /// system says.
    ///
    /// # Safety
    ///
    /// Nodes write each other's memory, and no type watches over that. Whoever connects
    /// answers for all that is done with the endpoint, and for all nodes of the meeting
    /// together: they run protocols that agree on what each byte of each region is for at a
    /// time. Either it is part of a word, which all touch by atomic operations and by writes
    /// and reads of whole words ([`Region::word`], [`WORD_ATOMIC_BYTES`]); or it is payload,
    /// and then nobody writes it, by a post, a read into it, or a store, while somebody else
    /// reads or writes it or has a reference to it. Nodes of another protocol, or of the same
    /// with other settings, are told by their hellos, before anything is posted.
    ///
    /// The protocols of this crate keep to that by themselves:
    /// [`multicast::Group`](crate::multicast::Group) and [`rdmc::Node`](crate::rdmc::Node)
    /// take a fabric, connect it, and are safe to use.
    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError>;
}

/// What [`Fabric::connect`] answers with.
#[derive(Debug)]
pub struct Connected {
    /// The node among the others.
    pub endpoint: Arc<dyn Endpoint>,
    /// The hello of each node, by rank. The own one is among them; that of a seat that is empty
    /// has no bytes.
    pub hellos: Vec<Vec<u8>>,
    /// The nodes that this one has met.
    pub meeting: Meeting,
}

/// Whom a node has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// These nodes, this one among them, have all met each other. Other ranks are empty seats.
    Founders(NodeSet),
    /// This node has come to others who had met before.
    Newcomer {
        /// Tells it apart from all that have had its rank before, or will have it later: 1 to
        /// [`MAX_INCARNATION`].
        incarnation: u64,
        /// The others of whom it knows by now.
        met: NodeSet,
    },
}

impl Meeting {
    /// All nodes of a fabric to which nobody comes later.
    #[must_use]
    pub fn of_all(nodes: usize) -> Self {
        Self::Founders((0..nodes).collect())
    }

    /// Those who were met.
    #[must_use]
    pub fn met(self) -> NodeSet {
        match self {
            Self::Founders(met) | Self::Newcomer { met, .. } => met,
        }
    }
}

/// A node that is connected to all others.
///
/// All methods may be called from any thread. Dropping the last handle
/// disconnects: the others see the node as down.
///
/// Its methods are safe to call because [`Fabric::connect`], which is the only way to one, is
/// not: there is written what may be posted and read where.
///
/// # Safety
///
/// It keeps the promises that this module lists. Its own rank, number of nodes and regions
/// never change; a region stays mapped while the endpoint lives; memory of the nodes is
/// touched by what is posted and read alone; and a node among [`Self::severed`] is cut off.
pub unsafe trait Endpoint: Send + Sync + fmt::Debug {
    /// This node's rank.
    fn rank(&self) -> usize;

    /// How many nodes there are, this one included.
    fn nodes(&self) -> usize;

    /// The node's own region.
    fn region(&self) -> &Region;

    /// A peer's region, where this node can look into it: all that the peer stored
    /// there before a post is visible to whoever has seen what was posted. So bytes
    /// that the peer keeps in place need not be posted at all. Either all nodes see
    /// all others' regions, or, with a network in between, none does.
    fn region_of(&self, peer: usize) -> Option<&Region> {
        let _ = peer;
        None
    }

    /// The region of the node that has the rank now, where this node can look into it: as
    /// [`Self::region_of`], but also where seats change hands. When a seat is given to a newcomer
    /// ([`Self::admit`]) the region may become that one's. It stays mapped as long as the answer
    /// lives.
    fn sight_of(&self, peer: usize) -> Option<Region> {
        self.region_of(peer).cloned()
    }

    /// Posts writes to a peer, in this order. It may return before they are
    /// visible, but never waits for the peer's processor: a full send queue is
    /// waited for, a dead peer is not.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRange`], [`FabricError::NoSuchPeer`] (the node itself
    /// is none of its peers), both before anything was transferred;
    /// [`FabricError::PeerDown`].
    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError>;

    /// Runs `posts`. What this thread posts in there, to any peers, may be on its way only
    /// when `posts` has returned: a fabric that pays for each call hands all of it over in
    /// one. Order and sources are as ever.
    fn together(&self, posts: &mut dyn FnMut()) {
        posts();
    }

    /// Reads `len` bytes at `remote` of the peer's region into the own region
    /// at `local`, and returns when they are there. It sees every write that
    /// this thread posted to that peer before.
    ///
    /// # Errors
    ///
    /// As [`Self::post`].
    fn read(&self, peer: usize, local: usize, remote: usize, len: usize)
        -> Result<(), FabricError>;

    /// Returns when all that this thread posted to the peer is in the peer's
    /// memory and the sources may be reused.
    ///
    /// # Errors
    ///
    /// [`FabricError::NoSuchPeer`], [`FabricError::PeerDown`].
    fn fence(&self, peer: usize) -> Result<(), FabricError>;

    /// Gives the fabric the processor for a moment: it reaps completions and
    /// notices deaths. The polling thread calls it once a round; a fabric that
    /// has nothing to reap does nothing.
    fn poll(&self);

    /// The nodes that are known to have died or disconnected. Grows, until the seat of one is
    /// given to a newcomer ([`Self::admit`]).
    fn down(&self) -> NodeSet;

    /// Seats for which a newcomer has called that can be admitted: what the node before it had
    /// posted here has arrived or is lost, and it posts no more; the newcomer can post. None,
    /// if all nodes meet at the beginning.
    fn callers(&self) -> NodeSet {
        NodeSet::EMPTY
    }

    /// Takes the newcomer that has called for a seat as the node of that rank, and answers
    /// with its incarnation. What is posted to the rank goes to it from now on. It posts
    /// nothing here before it learns that it may; what the node before it has left in this
    /// region is for the caller to erase.
    ///
    /// # Errors
    ///
    /// [`FabricError::NoCaller`].
    fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        Err(FabricError::NoCaller(seat))
    }

    /// Takes a peer for down that others have put out, though it may run: nothing is posted to it
    /// any more, and it is cut off, where the fabric can do that.
    fn evict(&self, peer: usize) {
        let _ = peer;
    }

    /// For a newcomer, when the others have taken it in: further newcomers can call it from
    /// now on, and it calls nobody any more.
    fn settle(&self) {}

    /// The nodes of [`Self::down`] that are cut off: nothing that such a node has posted, or
    /// posts yet, reads or writes this node's memory any more.
    ///
    /// Nor does what this node has posted to it read this node's memory, except over VQPs: there
    /// writes that are under way are sent, and sent again, until they end, each time with the bytes
    /// that are in memory then. So one that runs may get bytes that were stored after the cut in the
    /// place of those that were posted.
    ///
    /// A node may be taken for down though it runs: then it is not among these before it
    /// has been cut off for good. A fabric that cannot do that never says so.
    fn severed(&self) -> NodeSet;

    /// Rings a node's doorbell: if its polling thread is in [`Self::sleep`],
    /// it returns, after all that this thread has posted to it is visible. For
    /// one that is awake this must be next to free, because it is called after
    /// every round of posts. A node may ring itself.
    fn ring(&self, node: usize);

    /// Puts the calling thread to sleep until a peer or a thread of this node
    /// rings, a peer dies or is cut off, or the time is over. At most one thread sleeps.
    ///
    /// `ready` is asked once, after the sleep has been announced to whoever
    /// rings: it answers whether there is something to do after all, in which
    /// case there is no sleep. A write with a ring behind it is seen by either
    /// `ready` or the sleep.
    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool);

    /// One-sided writes posted so far, for measurements.
    fn posted(&self) -> u64;

    /// System calls that have handed requests to the fabric so far, or waited for
    /// their ends, for measurements. Those of [`Self::ring`] and [`Self::sleep`] are
    /// not among them. None where something else than this library makes them, as a
    /// provider of verbs does.
    fn system_calls(&self) -> Option<u64> {
        None
    }
}
