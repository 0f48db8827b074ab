// SPDX-License-Identifier: MIT OR Apache-2.0

//! How a group is put together: its settings, the meeting, its start.

mod assembly;
mod views;

use super::config::{self, Kind, Subgroup};
use super::deliverer::Batch;
use super::error::{ConfigError, Error};
use super::group::Group;
use super::handle::{GroupId, SubgroupHandle};
use super::layout::Layout;
use super::member::Upcall;
use super::membership::MembersOf;
use super::shared::Status;
use super::views::{pulse, State, Upcalls, ViewUpcall};
use super::watcher::{Event, EventUpcall};
use crate::deadline::end_of;
use crate::fabric::{Endpoint, Fabric};
use crate::predicates::{IdlePolicy, Poller, Predicates};
use assembly::Assembly;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long members wait for one another by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts a group together.
pub struct Builder<F> {
    fabric: F,
    id: GroupId,
    subgroups: Vec<Subgroup>,
    /// By the subgroups' numbers.
    upcalls: HashMap<usize, Upcall>,
    /// It was given a handle of another group.
    is_mixed_up: bool,
    members_of: HashMap<usize, MembersOf>,
    states: HashMap<usize, State>,
    on_event: Option<EventUpcall>,
    on_view: Option<ViewUpcall>,
    has_views: bool,
    term: Option<Duration>,
    state: Option<State>,
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
    pub(super) fn new(fabric: F) -> Self {
        Self {
            fabric,
            id: GroupId::new(),
            subgroups: Vec::new(),
            upcalls: HashMap::new(),
            is_mixed_up: false,
            members_of: HashMap::new(),
            states: HashMap::new(),
            on_event: None,
            on_view: None,
            has_views: false,
            term: None,
            state: None,
            idle: IdlePolicy::default(),
            timeout: PATIENCE,
        }
    }

    /// Adds a subgroup, and answers with its handle. All nodes add the same ones in the same
    /// order, members or not.
    pub fn subgroup(&mut self, subgroup: Subgroup) -> SubgroupHandle {
        self.subgroups.push(subgroup);
        self.id.handle(self.subgroups.len() - 1)
    }

    /// Delivers a subgroup's messages to a closure, on the polling thread: it
    /// should be short, for everything waits for it (spindle §III.D). Without
    /// one, take [`Group::deliveries`]. With a handle of another group, [`Self::join`] answers
    /// with [`ConfigError::ForeignHandle`].
    ///
    /// A closure that sends in its own group does not wait for room ([`SendError::Full`]). In
    /// another group it does, and holds its own one up meanwhile. Two groups whose closures send
    /// into each other can wait for each other for ever: use [`Sender::try_send`] there, and
    /// leave [`Options::early_lock_release`] on.
    ///
    /// [`SendError::Full`]: super::SendError::Full
    /// [`Sender::try_send`]: super::Sender::try_send
    /// [`Options::early_lock_release`]: super::Options::early_lock_release
    #[must_use]
    pub fn deliver(
        mut self,
        subgroup: SubgroupHandle,
        upcall: impl FnMut(&mut Batch<'_>) + Send + 'static,
    ) -> Self {
        match self.id.index(subgroup) {
            Some(index) => drop(self.upcalls.insert(index, Box::new(upcall))),
            None => self.is_mixed_up = true,
        }
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

    /// Meets the other nodes and starts. In a group with views it returns when the node was told
    /// of its first view ([`Self::on_view`]): a newcomer ([`ShmSeats::newcomer`]) is in the group
    /// then, and has its state.
    ///
    /// [`ShmSeats::newcomer`]: crate::fabric::shm::ShmSeats::newcomer
    ///
    /// # Errors
    ///
    /// [`Error::Config`] before anything is done; [`Error::Fabric`] if not all
    /// came in time; [`Error::Mismatch`], at every member, if they disagree;
    /// [`Error::NotAdmitted`] if the node was told of no view in time: a newcomer that was not
    /// taken in, or a node whose closure hangs or panics with the first view;
    /// [`Error::Thread`] if the polling thread cannot start.
    pub fn join(self) -> Result<Group, Error> {
        let mut idle = self.idle;
        let longest = self.term.map(pulse::longest_sleep);
        idle.longest_sleep = idle.longest_sleep.into_iter().chain(longest).min();
        let end = end_of(self.timeout);
        let status = Status::new(false, self.has_views);
        let group = self.assemble(status, |endpoint, predicates| {
            let poller = Poller::start(endpoint, predicates, idle);
            poller.map_err(|error| Error::Thread(error.to_string()))
        })?;
        group.wait_until_in(end)?;
        Ok(group)
    }

    /// As [`Self::join`], without a polling thread: an application's thread calls
    /// [`Group::step`] again and again. For a member with one processor: there a polling
    /// thread and a thread that sends take turns, which takes time, and messages have left
    /// the processor's caches when they are delivered.
    ///
    /// Closures are called within steps, but for a function that says a subgroup's members
    /// ([`Self::members_by_view`]): a founder calls it here for the first view. Nothing goes on
    /// between two steps: others wait for this member meanwhile, no call to send waits for room
    /// ([`SendError::Full`]), and whoever waits for [`Deliveries`] waits for another thread's
    /// step. A newcomer is in when it has a view ([`Group::view`]).
    ///
    /// [`SendError::Full`]: super::SendError::Full
    /// [`Deliveries`]: super::Deliveries
    ///
    /// ```no_run
    /// # use weft::{Group, SendError, Subgroup, fabric::shm::Shm};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = Group::builder(Shm::new("ticks", 0, 2)?);
    /// let ticks = builder.subgroup(Subgroup::new("ticks"));
    /// let group = builder
    ///     .deliver(ticks, |batch| for message in batch { println!("{:?}", message.bytes) })
    ///     .join_stepped()?;
    /// let sender = group.sender(ticks)?;
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
    /// As [`Self::join`], but [`Error::Thread`].
    pub fn join_stepped(self) -> Result<Group, Error> {
        let status = Status::new(true, self.has_views);
        self.assemble(status, |endpoint, predicates| {
            Ok(Poller::stepped(endpoint, predicates))
        })
    }

    fn assemble(
        self,
        status: Status,
        start: impl FnOnce(Arc<dyn Endpoint>, Predicates) -> Result<Poller, Error>,
    ) -> Result<Group, Error> {
        let (rank, nodes) = (self.fabric.rank(), self.fabric.nodes());
        let kind = self.kind();
        let mut specs = config::check(self.subgroups, nodes)?;
        for (index, spec) in specs.iter_mut().enumerate() {
            spec.by_view = self.members_of.contains_key(&index);
            spec.state_bytes = self.states.get(&index).map(|state| state.max_bytes);
        }
        if self.is_mixed_up {
            return Err(ConfigError::ForeignHandle.into());
        }
        if self.has_views {
            config::check_views(&specs, nodes, |index| self.upcalls.contains_key(&index))?;
        }
        if self.fabric.has_seats() && !kind.has_views() {
            return Err(ConfigError::SeatsWithoutViews.into());
        }
        if let Some(term) = self.term.filter(|term| !pulse::TERMS.contains(term)) {
            return Err(ConfigError::BadTerm(term).into());
        }
        let layout = Layout::new(&specs, nodes, kind, self.fabric.has_sight())?;
        let hello = config::hello(&specs, kind)?;
        let region_bytes = layout.region_bytes[rank];
        // All nodes are members of groups of this module, whose settings are compared before
        // anything is posted.
        // SAFETY: rows of the table are words. A record of a ring is its sender's until the row
        // behind it says that it is there; then nobody writes its message before all say that
        // they are done with it, or have gone for certain (`views::ring`).
        let met = unsafe { self.fabric.connect(region_bytes, &hello, self.timeout) }?;
        config::agree(&met.hellos, met.meeting.met(), rank)?;
        let mut upcalls = self.upcalls;
        let assembly = Assembly::new(
            self.id,
            specs,
            &layout,
            &met.endpoint,
            Arc::new(status),
            &mut upcalls,
        )?;
        let upcalls = Upcalls {
            event: self.on_event,
            view: self.on_view,
        };
        match kind {
            Kind::Fixed => assembly.start_fixed(&layout, upcalls.event, start),
            Kind::Views { .. } => {
                let own = ((self.members_of, self.states), self.state, self.term);
                assembly.start_with_views(&layout, met.meeting, upcalls, own, start)
            }
        }
    }

    fn kind(&self) -> Kind {
        match self.has_views {
            true => Kind::Views {
                state_bytes: self.state.as_ref().map(|state| state.max_bytes),
                term: self.term,
            },
            false => Kind::Fixed,
        }
    }
}
