// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process among those that have groups together.

use super::config::GroupConfig;
use super::engine::{self, Command, Drive, Driver, GroupShared, Listener, NewGroup, Over};
use super::event::{Event, Incoming};
use super::group::Group;
use super::layout::Layout;
use super::memory::{Arena, Buffer, Memory};
use super::words::TAGS;
use super::Error;
use crate::deadline::end_of;
use crate::fabric::{Endpoint, Fabric, Meeting, Newcomer, NodeSet};
use crate::multicast::View;
use crate::predicates::{IdlePolicy, Poller, Predicates};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How long the polling thread polls before it sleeps (rdmc §4.2).
const POLL: Duration = Duration::from_millis(50);
/// A yield that took so long says that others work. Members that only look, as
/// many as there may be on a processor, let each other through in less; who is
/// woken is later by more than that.
const CONTENDED: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(30);
const DEFAULT_BYTES: usize = 64 << 20;
const DEFAULT_GROUPS: usize = 16;

/// Puts a node together.
#[derive(Debug)]
pub struct Builder<F> {
    fabric: F,
    bytes: usize,
    groups: usize,
    idle: IdlePolicy,
    timeout: Duration,
}

impl<F: Fabric> Builder<F> {
    /// Memory for messages, in bytes: 64 MiB unless told. Over RDMA it is
    /// registered, and so pinned, and each group keeps room in it for a block. Nodes may
    /// differ.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Groups that a node can be in at a time: 16 unless told. The same at all
    /// nodes.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// How the polling thread waits: unless told it polls for 50 ms and then
    /// sleeps until it is rung (rdmc §4.2); where others work on its processor
    /// it sleeps at once.
    #[must_use]
    pub fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// How long to wait for the other nodes. 30 seconds unless told.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Meets the other nodes, and starts the polling thread. A newcomer, where the fabric has
    /// seats, has met one of them when this returns; it is taken in by all when it follows a
    /// view ([`Node::follow`]).
    ///
    /// # Errors
    ///
    /// [`Error::BadNode`], before anything is done; [`Error::Fabric`] if not all
    /// came in time; [`Error::NodesDiffer`]; [`Error::Thread`].
    pub fn join(self) -> Result<Node, Error> {
        let idle = self.idle;
        let (mut inner, mut driver) = self.meet()?;
        let (id, mut predicates) = (Arc::clone(&inner.poller_id), Predicates::default());
        let added = predicates.add(move || {
            id.get_or_init(|| thread::current().id());
            driver.step().into()
        });
        added.map_err(|error| Error::Thread(error.to_string()))?;
        let poller = Poller::start(Arc::clone(&inner.endpoint), predicates, idle)
            .map_err(|error| Error::Thread(error.to_string()))?;
        inner.poller = Some(poller);
        Ok(Node(Arc::new(inner)))
    }

    /// Meets the other nodes. Without a polling thread: its steps are the caller's to take.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn join_stepped(self) -> Result<(Node, Driver), Error> {
        let (inner, driver) = self.meet()?;
        Ok((Node(Arc::new(inner)), driver))
    }

    fn meet(self) -> Result<(Inner, Driver), Error> {
        let layout = Layout {
            nodes: self.fabric.nodes(),
            groups: self.groups,
        };
        let region_bytes = layout.region_bytes(self.bytes)?;
        // What other protocols say begins otherwise.
        let hello = format!("RDMC, {} groups", self.groups).into_bytes();
        // Cells are words. All else is in buffers: no node touches one that is with the
        // application; with a group, a member writes where it was told to, and says behind it
        // that it has. The application gets it back when no member touches it any more.
        //
        // SAFETY: all nodes run this module, and compare their layouts before they post anything;
        // so they keep to the above.
        let met = unsafe { self.fabric.connect(region_bytes, &hello, self.timeout) }?;
        let mut others = met.meeting.met().iter();
        if let Some(node) = others.find(|&node| met.hellos[node] != hello) {
            return Err(Error::NodesDiffer(node));
        }
        let endpoint = met.endpoint;
        let newcomer = match met.meeting {
            Meeting::Founders(_) => None,
            Meeting::Newcomer { incarnation, .. } => {
                Some(Newcomer::new(endpoint.rank(), incarnation))
            }
        };
        let arena = Arena::new(&endpoint, layout.memory());
        let node = engine::Node {
            endpoint: Arc::clone(&endpoint),
            layout,
            arena: Arc::clone(&arena),
        };
        let (drive, driver) = Drive::new(node, met.meeting);
        let inner = Inner {
            poller: None,
            poller_id: Arc::default(),
            drive,
            used: Mutex::new(vec![None; self.groups]),
            arena,
            endpoint,
            newcomer,
        };
        Ok((inner, driver))
    }
}

/// The closures and the count that a group begins with, besides its settings.
pub(super) struct Start {
    pub(super) memory: Box<dyn FnMut(Incoming) -> Option<Buffer> + Send>,
    pub(super) tell: Box<dyn FnMut(Event) + Send>,
    /// Messages that this node has sent in earlier groups, if it is the root.
    pub(super) before: u64,
    /// Told when the group has ended at all its members that are left, if somebody wants to know.
    pub(super) tell_over: Option<Box<dyn FnMut(Over) + Send>>,
}

/// What a node and its groups hold together.
pub(super) struct Inner {
    // Dropped first: the polling thread's last act is to say farewell. None while there is
    // no such thread yet, or its steps are taken by a simulation.
    poller: Option<Poller>,
    poller_id: Arc<OnceLock<ThreadId>>,
    drive: Arc<Drive>,
    /// The last number of each place.
    used: Mutex<Vec<Option<u32>>>,
    pub(super) arena: Arc<Arena>,
    endpoint: Arc<dyn Endpoint>,
    newcomer: Option<Newcomer>,
}

impl Inner {
    pub(super) fn command(&self, command: Command) -> Result<(), Command> {
        self.drive.command(command)?;
        self.endpoint.ring(self.endpoint.rank());
        Ok(())
    }

    /// Sends a message, or gives it back if the polling thread has ended.
    pub(super) fn send(&self, group: u32, buffer: Buffer, size: usize) -> Result<(), Buffer> {
        let begun = match self.is_poller() {
            true => Err(buffer),
            false => self.drive.begin(group, buffer, size),
        };
        let Err(buffer) = begun else {
            self.endpoint.ring(self.endpoint.rank());
            return Ok(());
        };
        let command = Command::Send {
            group,
            buffer,
            size,
        };
        match self.command(command) {
            Err(Command::Send { buffer, .. }) => Err(buffer),
            _ => Ok(()),
        }
    }

    /// Whether this is the polling thread.
    pub(super) fn is_poller(&self) -> bool {
        self.poller_id.get() == Some(&thread::current().id())
    }

    pub(super) fn rank(&self) -> usize {
        self.endpoint.rank()
    }

    pub(super) fn nodes(&self) -> usize {
        self.endpoint.nodes()
    }

    pub(super) fn follow(&self, view: &View) {
        // If nobody takes it, all groups have ended.
        let _ = self.command(Command::View(Box::new(view.clone())));
    }

    /// Begins to create a group, which is abandoned when what this answers with is dropped.
    pub(super) fn start_group(
        self: &Arc<Self>,
        config: &GroupConfig,
        start: Start,
    ) -> Result<Group, Error> {
        let (rank, number) = (self.rank(), config.number);
        config.check(rank, self.nodes())?;
        let index = config.members.iter().position(|&node| node == rank);
        let index = index.unwrap_or_default();
        // Nobody gives a block to the root.
        let landing = match index == 0 || engine::is_shared(&*self.endpoint) {
            true => None,
            false => Some(self.arena.allocate(config.block_bytes)?),
        };
        self.take_number(number)?;
        let others = config.set().minus(NodeSet::EMPTY.with(rank));
        let shared = Arc::new(GroupShared::new(number, index, others));
        let listener = Listener::new(Arc::clone(&shared), start.tell, start.tell_over);
        let new = NewGroup {
            config: config.clone(),
            listener: Arc::new(listener),
            memory: start.memory,
            landing,
            before: start.before,
            queue: VecDeque::new(),
            is_leaving: false,
        };
        let thread_ended = || Error::Thread("it has ended".to_owned());
        let sent = self.command(Command::Create(Box::new(new)));
        sent.map_err(|_| thread_ended())?;
        Ok(Group::new(Arc::clone(self), shared, config.clone()))
    }

    /// Takes a number, which nobody takes again.
    fn take_number(&self, number: u32) -> Result<(), Error> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = used.len();
        if u64::from(number) / groups as u64 >= TAGS {
            return Err(Error::BadGroup {
                group: number,
                what:
                    "its number is too high: it may be 65535 times the number of groups at a time",
            });
        }
        let last = &mut used[number as usize % groups];
        if last.is_some_and(|last| number <= last) {
            return Err(Error::NumberUsed(number));
        }
        *last = Some(number);
        Ok(())
    }
}

/// A process, or a part of one, among those that have groups together. It has
/// memory for messages and one thread that moves them. When it and its groups
/// are dropped, the thread has said farewell and ended, unless a callback keeps
/// one of them.
pub struct Node(Arc<Inner>);

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("endpoint", &self.0.endpoint)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Starts to make a node of a fabric.
    pub fn builder<F: Fabric>(fabric: F) -> Builder<F> {
        Builder {
            fabric,
            bytes: DEFAULT_BYTES,
            groups: DEFAULT_GROUPS,
            // Spinning would only hold up members on the same processor.
            idle: IdlePolicy {
                spins: 0,
                quiesce_after: POLL,
                contended_after: CONTENDED,
                ..IdlePolicy::default()
            },
            timeout: PATIENCE,
        }
    }

    /// This node's rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.endpoint.rank()
    }

    /// This node's seat and incarnation, if it came to others that had met before. With them it takes
    /// the same seat in a group ([`ShmSeats::newcomer_as`]).
    ///
    /// [`ShmSeats::newcomer_as`]: crate::fabric::shm::ShmSeats::newcomer_as
    #[must_use]
    pub fn newcomer(&self) -> Option<Newcomer> {
        self.0.newcomer
    }

    /// How many nodes there can be: those that met, and empty seats.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.0.endpoint.nodes()
    }

    /// The nodes that are known to be dead or gone.
    #[must_use]
    pub fn down(&self) -> NodeSet {
        self.0.endpoint.down()
    }

    /// The memory for messages, for callbacks.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory(Arc::clone(&self.0.arena))
    }

    /// Memory for a message of so many bytes. What it holds is undefined.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`].
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        self.0.arena.allocate(bytes)
    }

    /// Bytes for messages that are free, perhaps in pieces.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.arena.available()
    }

    /// How often the polling thread has gone to sleep.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.0.poller.as_ref().map_or(0, Poller::sleeps)
    }

    /// Creates a group, at the same time as all its other members (rdmc §4.1).
    /// `memory` gives memory for a message that comes, or none for now: then the
    /// message waits, and is asked for again when memory of the node was freed
    /// ([`Memory::wake`]). `tell` is told what happens. Both are called on the
    /// polling thread: they should be short, and may send, allocate and drop, but
    /// not wait. What they own of the node is best its [`Self::memory`].
    ///
    /// Where nodes do not see each other's memory, a group takes room for a block from the
    /// node's memory. A member that never created the group, nor a later one in its place,
    /// keeps that room from being used again.
    ///
    /// # Errors
    ///
    /// [`Error::BadGroup`], [`Error::NumberUsed`] and [`Error::NoMemory`], before
    /// anything is done; [`Error::Timeout`], [`Error::Mismatch`],
    /// [`Error::Ended`] if a member went meanwhile; [`Error::InCallback`].
    pub fn create_group(
        &self,
        config: &GroupConfig,
        timeout: Duration,
        memory: impl FnMut(Incoming) -> Option<Buffer> + Send + 'static,
        tell: impl FnMut(Event) + Send + 'static,
    ) -> Result<Group, Error> {
        if self.0.is_poller() {
            return Err(Error::InCallback);
        }
        let end = end_of(timeout);
        let start = Start {
            memory: Box::new(memory),
            tell: Box::new(tell),
            before: 0,
            tell_over: None,
        };
        let group = self.0.start_group(config, start)?;
        match group.wait_joined(end) {
            Some(outcome) => outcome.map(|()| group),
            None => Err(Error::Timeout {
                group: config.number,
                missing: group.missing(),
            }),
        }
    }

    /// Has the node keep to a view of a [`multicast::Group`], whose members have the same seats
    /// as their nodes here: for groups that are made with [`GroupConfig::in_view`]. To be called
    /// with each view, before its groups are created.
    ///
    /// Groups with a member that is not in the view end, with [`EndReason::Died`] if it has
    /// failed. Who has failed is cut off. A newcomer begins its groups, and takes in others, when
    /// all have taken it in who are in its first view; those that are not in a later one are not
    /// waited for.
    ///
    /// [`multicast::Group`]: crate::multicast::Group
    /// [`EndReason::Died`]: super::EndReason::Died
    pub fn follow(&self, view: &View) {
        self.0.follow(view);
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}
