// SPDX-License-Identifier: MIT OR Apache-2.0

//! A group: nodes that met with the same settings, and one polling thread.

use super::config::{self, Spec, Subgroup};
use super::deliverer::{Batch, Deliverer};
use super::deliveries::Deliveries;
use super::error::{ConfigError, Error};
use super::layout::Layout;
use super::member::{Delivery, Member, Upcall};
use super::metrics::Metrics;
use super::sender::Sender;
use super::shared::{Shared, Status};
use super::stay::Presence;
use super::watcher::{Ending, Event, EventUpcall, Watcher};
use crate::fabric::{Endpoint, Fabric, NodeSet};
use crate::predicates::{IdlePolicy, Outcome, Poller, Predicates};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long members wait for one another by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts a group together.
pub struct Builder<F> {
    fabric: F,
    subgroups: Vec<Subgroup>,
    upcalls: HashMap<String, Upcall>,
    on_event: Option<EventUpcall>,
    idle: IdlePolicy,
    timeout: Duration,
}

impl<F: fmt::Debug> fmt::Debug for Builder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("fabric", &self.fabric)
            .field("subgroups", &self.subgroups)
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> Builder<F> {
    /// Adds a subgroup. All nodes add the same ones in the same order, members
    /// or not.
    #[must_use]
    pub fn subgroup(mut self, subgroup: Subgroup) -> Self {
        self.subgroups.push(subgroup);
        self
    }

    /// Delivers a subgroup's messages to a closure, on the polling thread: it
    /// should be short, for everything waits for it (spindle §III.D). Without
    /// one, take [`Group::deliveries`].
    #[must_use]
    pub fn deliver(
        mut self,
        subgroup: &str,
        upcall: impl FnMut(&mut Batch<'_>) + Send + 'static,
    ) -> Self {
        self.upcalls.insert(subgroup.to_owned(), Box::new(upcall));
        self
    }

    /// Tells a closure, on the polling thread, who has left or failed.
    #[must_use]
    pub fn on_event(mut self, upcall: impl FnMut(Event) + Send + 'static) -> Self {
        self.on_event = Some(Box::new(upcall));
        self
    }

    /// How the polling thread waits.
    #[must_use]
    pub fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// How long to wait for the other members. 30 seconds by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Meets the other nodes and starts.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] before anything is done; [`Error::Fabric`] if not all
    /// came in time; [`Error::Mismatch`], at every member, if they disagree.
    pub fn join(self) -> Result<Group, Error> {
        let idle = self.idle;
        self.assemble(Status::default(), |endpoint, predicates| {
            let poller = Poller::start(endpoint, predicates, idle);
            poller.map_err(|error| Error::Thread(error.to_string()))
        })
    }

    /// As [`Self::join`], without a polling thread: an application's thread calls
    /// [`Group::step`] again and again. For a member with one processor: there a polling
    /// thread and a thread that sends take turns, which takes time, and messages have left
    /// the processor's caches when they are delivered.
    ///
    /// Closures are called within steps. Nothing goes on between two: others wait for
    /// this member meanwhile, no call to send waits for room ([`SendError::Full`]), and
    /// whoever waits for [`Deliveries`] waits for another thread's step.
    ///
    /// [`SendError::Full`]: super::SendError::Full
    ///
    /// ```no_run
    /// # use weft::{Group, SendError, Subgroup, fabric::shm::Shm};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let group = Group::builder(Shm::new("ticks", 0, 2)?)
    ///     .subgroup(Subgroup::new("ticks"))
    ///     .deliver("ticks", |batch| for message in batch { println!("{:?}", message.bytes) })
    ///     .join_stepped()?;
    /// let sender = group.sender("ticks")?;
    /// for tick in 0_u64.. {
    ///     while sender.send_value(&tick) == Err(SendError::Full) {
    ///         group.step_within(Duration::from_secs(1));
    ///     }
    ///     group.step();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Self::join`].
    pub fn join_stepped(self) -> Result<Group, Error> {
        self.assemble(Status::new(true), |endpoint, predicates| {
            Ok(Poller::stepped(endpoint, predicates))
        })
    }

    fn assemble(
        self,
        status: Status,
        start: impl FnOnce(Arc<dyn Endpoint>, Predicates) -> Result<Poller, Error>,
    ) -> Result<Group, Error> {
        let (rank, nodes) = (self.fabric.rank(), self.fabric.nodes());
        let specs = config::check(self.subgroups, nodes)?;
        if let Some(name) = self
            .upcalls
            .keys()
            .find(|name| specs.iter().all(|spec| spec.name != **name))
        {
            return Err(ConfigError::NoSuchSubgroup(name.clone()).into());
        }
        let layout = Layout::new(&specs, nodes)?;
        let hello = config::hello(&specs)?;
        let met = self
            .fabric
            .connect(layout.region_bytes[rank], &hello, self.timeout)?;
        config::agree(&met.hellos, rank)?;
        let mut upcalls = self.upcalls;
        let assembly = Assembly::new(
            specs,
            &layout,
            &met.endpoint,
            Arc::new(status),
            &mut upcalls,
        )?;
        assembly.start(self.on_event, start)
    }
}

/// A subgroup as the group holds it.
#[derive(Debug)]
struct Part {
    shared: Arc<Shared>,
    /// Where this node's ring is, if it sends.
    own_ring: Option<usize>,
    /// Until somebody takes them.
    deliveries: Mutex<Option<Deliveries>>,
}

/// A group on the way to being started.
struct Assembly {
    endpoint: Arc<dyn Endpoint>,
    status: Arc<Status>,
    presence: Arc<Presence>,
    parts: Vec<Part>,
    members: Vec<Member>,
}

impl Assembly {
    fn new(
        specs: Vec<Spec>,
        layout: &Layout,
        endpoint: &Arc<dyn Endpoint>,
        status: Arc<Status>,
        upcalls: &mut HashMap<String, Upcall>,
    ) -> Result<Self, Error> {
        let rank = endpoint.rank();
        let presence = Arc::new(Presence::new(endpoint, layout.nodes)?);
        let mut parts = Vec::new();
        let mut members = Vec::new();
        for (spec, places) in specs.into_iter().zip(&layout.subgroups) {
            if !spec.members.contains(&rank) {
                continue;
            }
            let index = spec.senders.iter().position(|&node| node == rank);
            let own_ring = index.and_then(|index| places.ring(rank, index));
            let upcall = upcalls.remove(&spec.name);
            let shared = Arc::new(Shared::new(spec, Arc::clone(endpoint), Arc::clone(&status)));
            let deliverer = Deliverer::new(Arc::clone(&shared), places)?;
            let (delivery, deliveries) = match upcall {
                Some(upcall) => (Delivery::Upcall(Box::new(deliverer), upcall), None),
                None => {
                    shared.stay.begin(Arc::clone(&presence));
                    let deliveries = Deliveries::new(Arc::clone(&shared), deliverer);
                    (Delivery::Elsewhere, Some(deliveries))
                }
            };
            members.push(Member::new(Arc::clone(&shared), places, delivery)?);
            parts.push(Part {
                shared,
                own_ring,
                deliveries: Mutex::new(deliveries),
            });
        }
        Ok(Self {
            endpoint: Arc::clone(endpoint),
            status,
            presence,
            parts,
            members,
        })
    }

    fn start(
        self,
        upcall: Option<EventUpcall>,
        start: impl FnOnce(Arc<dyn Endpoint>, Predicates) -> Result<Poller, Error>,
    ) -> Result<Group, Error> {
        let mut watcher = Watcher {
            endpoint: Arc::clone(&self.endpoint),
            presence: self.presence,
            status: Arc::clone(&self.status),
            subgroups: self
                .parts
                .iter()
                .map(|part| Arc::clone(&part.shared))
                .collect(),
            upcall,
            told: NodeSet::EMPTY,
            told_failed: NodeSet::EMPTY,
        };
        let mut predicates = Predicates::default();
        predicates.add(move || watcher.step())?;
        for mut member in self.members {
            predicates.add(move || member.step())?;
        }
        let poller = start(Arc::clone(&self.endpoint), predicates)?;
        Ok(Group {
            poller,
            endpoint: self.endpoint,
            status: self.status,
            parts: self.parts,
        })
    }
}

/// A member of a group. Dropping it leaves the group at once; [`Self::leave`]
/// sees to it first that what was sent is delivered.
#[derive(Debug)]
pub struct Group {
    // Dropped first: the polling thread's last act is to say that we left.
    poller: Poller,
    endpoint: Arc<dyn Endpoint>,
    status: Arc<Status>,
    parts: Vec<Part>,
}

impl Group {
    /// Starts to put a group together over the nodes of a fabric.
    pub fn builder<F: Fabric>(fabric: F) -> Builder<F> {
        Builder {
            fabric,
            subgroups: Vec::new(),
            upcalls: HashMap::new(),
            on_event: None,
            idle: IdlePolicy::default(),
            timeout: PATIENCE,
        }
    }

    /// This node's rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.endpoint.rank()
    }

    /// How many nodes met.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.endpoint.nodes()
    }

    /// Those who have left.
    #[must_use]
    pub fn left(&self) -> NodeSet {
        self.status.left()
    }

    /// Those who have failed.
    #[must_use]
    pub fn failed(&self) -> NodeSet {
        self.status.failed()
    }

    /// How a subgroup has ended, if a member of it has failed and its end is agreed on.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSubgroup`].
    pub fn ending(&self, subgroup: &str) -> Result<Option<Ending>, Error> {
        Ok(self.part(subgroup)?.shared.ending())
    }

    /// Sends in a subgroup.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSubgroup`], [`Error::NotSender`].
    pub fn sender(&self, subgroup: &str) -> Result<Sender, Error> {
        let part = self.part(subgroup)?;
        let base = part
            .own_ring
            .ok_or_else(|| Error::NotSender(subgroup.to_owned()))?;
        Ok(Sender::new(Arc::clone(&part.shared), base))
    }

    /// The messages of a subgroup that has no closure. Somebody has to take
    /// them: senders wait for all members.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSubgroup`], [`Error::NoDeliveries`].
    pub fn deliveries(&self, subgroup: &str) -> Result<Deliveries, Error> {
        let deliveries = &self.part(subgroup)?.deliveries;
        let mut deliveries = deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        deliveries
            .take()
            .ok_or_else(|| Error::NoDeliveries(subgroup.to_owned()))
    }

    /// This member's figures of a subgroup.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSubgroup`].
    pub fn metrics(&self, subgroup: &str) -> Result<Metrics, Error> {
        Ok(self.part(subgroup)?.shared.counts.snapshot())
    }

    /// One-sided writes that this node has posted, for all subgroups.
    #[must_use]
    pub fn posted(&self) -> u64 {
        self.endpoint.posted()
    }

    /// System calls that have handed this node's requests to the fabric
    /// ([`Endpoint::system_calls`]).
    #[must_use]
    pub fn system_calls(&self) -> Option<u64> {
        self.endpoint.system_calls()
    }

    /// Does what a polling thread does in a round, and says whether there was anything to
    /// do. For a group that was made with [`Builder::join_stepped`], by one thread at a
    /// time: for another group, on another thread or in a delivery it does nothing.
    pub fn step(&self) -> bool {
        self.end_step(self.poller.step())
    }

    /// As [`Self::step`], but sleeps until there is something to do, or the time is over.
    /// Where [`Self::step`] does nothing, it returns at once.
    pub fn step_within(&self, timeout: Duration) -> bool {
        self.end_step(self.poller.step_within(timeout))
    }

    fn end_step(&self, step: Option<bool>) -> bool {
        if step.is_some() {
            self.status.end_step();
        }
        step.unwrap_or(false)
    }

    /// How often the polling thread has gone to sleep.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.poller.sleeps()
    }

    /// Has the polling thread evaluate a further predicate.
    ///
    /// # Errors
    ///
    /// [`Error::Predicates`].
    pub fn add_predicate(
        &self,
        predicate: impl FnMut() -> Outcome + Send + 'static,
    ) -> Result<(), Error> {
        Ok(self.poller.add(predicate)?)
    }

    /// Waits until all that this node has sent so far was delivered by all members,
    /// whatever other threads send meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Unflushed`] after the time, or if a member has failed;
    /// [`Error::InDelivery`], at once, if it would wait for the delivery that it is called
    /// from.
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now() + timeout;
        for part in &self.parts {
            let shared = &part.shared;
            if part.own_ring.is_none() {
                continue;
            }
            let sent = shared.slots.taken();
            let is_flushed = || shared.has_flushed(sent);
            if !is_flushed() && shared.would_wait_for_itself() {
                return Err(Error::InDelivery);
            }
            self.wait_for(shared, end, || is_flushed() || shared.is_open().is_err());
            if !is_flushed() {
                return Err(Error::Unflushed {
                    failed: shared.failed(),
                });
            }
        }
        Ok(())
    }

    /// Waits for deliveries; steps meanwhile, if that is the application's part.
    fn wait_for(&self, shared: &Shared, end: Instant, done: impl Fn() -> bool) {
        while self.status.is_stepped && !done() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let step = self.poller.step_within(left);
            if step.is_none() {
                // Another thread steps.
                break;
            }
            self.end_step(step);
        }
        shared.delivered.wait_until(Some(end), done);
    }

    /// Leaves the group, after all that was sent has been delivered by all
    /// members or the time is over. The others go on without this node and
    /// nobody waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unflushed`]. The group has been left all the same.
    pub fn leave(self, timeout: Duration) -> Result<(), Error> {
        let flushed = self.flush(timeout);
        for part in &self.parts {
            let metrics = part.shared.counts.snapshot();
            tracing::debug!(subgroup = part.shared.spec.name, ?metrics, "leaving");
        }
        flushed
    }

    fn part(&self, subgroup: &str) -> Result<&Part, Error> {
        self.parts
            .iter()
            .find(|part| part.shared.spec.name == subgroup)
            .ok_or_else(|| Error::NoSuchSubgroup(subgroup.to_owned()))
    }
}
