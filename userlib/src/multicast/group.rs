// SPDX-License-Identifier: MIT OR Apache-2.0

//! A group: nodes that met with the same settings, and one polling thread.

use super::builder::Builder;
use super::deliveries::Deliveries;
use super::error::Error;
use super::handle::{GroupId, SubgroupHandle};
use super::metrics::Metrics;
use super::sender::Sender;
use super::shared::{Shared, Status};
use super::views::{Board, View};
use super::watcher::Ending;
use crate::deadline::end_of;
use crate::fabric::{Endpoint, Fabric, NodeSet};
use crate::predicates::{Outcome, Poller};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A subgroup as the group holds it, whose member this node is, or may be.
#[derive(Debug)]
pub(super) struct Part {
    /// Its number among the group's subgroups.
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    /// Where this node's ring is, if it sends.
    pub(super) own_ring: Option<usize>,
    /// Until somebody takes them.
    pub(super) deliveries: Mutex<Option<Deliveries>>,
}

/// A member of a group. Dropping it leaves the group at once; [`Self::leave`]
/// sees to it first that what was sent is delivered.
#[derive(Debug)]
pub struct Group {
    // Dropped first: the polling thread's last act is to say that we left.
    pub(super) poller: Poller,
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) status: Arc<Status>,
    pub(super) id: GroupId,
    /// The names of all subgroups.
    pub(super) names: Vec<String>,
    pub(super) parts: Vec<Part>,
    /// If it has views.
    pub(super) board: Option<Arc<Board>>,
}

impl Group {
    /// Starts to put a group together over the nodes of a fabric.
    pub fn builder<F: Fabric>(fabric: F) -> Builder<F> {
        Builder::new(fabric)
    }

    /// This node's rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.endpoint.rank()
    }

    /// How many nodes there can be: all that met, and empty seats.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.endpoint.nodes()
    }

    /// The view that this node has installed last, if the group has views. None at a newcomer
    /// that is not in yet.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.board.as_ref()?.view()
    }

    /// Those who have left, and whose seats nobody has taken since.
    #[must_use]
    pub fn left(&self) -> NodeSet {
        self.status.left()
    }

    /// Those who have failed, and whose seats nobody has taken since.
    #[must_use]
    pub fn failed(&self) -> NodeSet {
        self.status.failed()
    }

    /// How a subgroup has ended, if a member of it has failed and its end is agreed on. In a
    /// group with views it ends when this node is out.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignHandle`], [`Error::NotMember`].
    pub fn ending(&self, subgroup: SubgroupHandle) -> Result<Option<Ending>, Error> {
        Ok(self.part(subgroup)?.shared.ending())
    }

    /// Sends in a subgroup.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignHandle`], [`Error::NotMember`], [`Error::NotSender`].
    pub fn sender(&self, subgroup: SubgroupHandle) -> Result<Sender, Error> {
        let part = self.part(subgroup)?;
        let base = part
            .own_ring
            .ok_or_else(|| Error::NotSender(part.shared.spec.name.clone()))?;
        Ok(Sender::new(Arc::clone(&part.shared), base))
    }

    /// The messages of a subgroup that has no closure. Somebody has to take
    /// them: senders wait for all members.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignHandle`], [`Error::NotMember`], [`Error::NoDeliveries`].
    pub fn deliveries(&self, subgroup: SubgroupHandle) -> Result<Deliveries, Error> {
        let part = self.part(subgroup)?;
        let deliveries = part.deliveries.lock();
        let mut deliveries = deliveries.unwrap_or_else(PoisonError::into_inner);
        deliveries
            .take()
            .ok_or_else(|| Error::NoDeliveries(part.shared.spec.name.clone()))
    }

    /// This member's figures of a subgroup.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignHandle`], [`Error::NotMember`].
    pub fn metrics(&self, subgroup: SubgroupHandle) -> Result<Metrics, Error> {
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
        let end = end_of(timeout);
        for (shared, sent) in self.sent() {
            let is_flushed = || shared.has_flushed(sent);
            if !is_flushed() && shared.would_wait_for_itself() {
                return Err(Error::InDelivery);
            }
            self.wait_for(shared, end, || is_flushed() || shared.is_stuck());
            if !is_flushed() {
                return Err(Error::Unflushed {
                    failed: shared.failed(),
                });
            }
        }
        Ok(())
    }

    /// As [`Self::flush`], for a task, of any executor; it can be dropped while it waits. In a
    /// group that is stepped it waits until others have stepped.
    ///
    /// # Errors
    ///
    /// [`Error::Unflushed`] if a member has failed.
    pub async fn flush_async(&self) -> Result<(), Error> {
        for (shared, sent) in self.sent() {
            let is_flushed = || shared.has_flushed(sent);
            let is_over = || is_flushed() || shared.is_stuck();
            shared.delivered.wait(is_over).await;
            if !is_flushed() {
                return Err(Error::Unflushed {
                    failed: shared.failed(),
                });
            }
        }
        Ok(())
    }

    /// The subgroups in which this node sends, each with how many messages it has sent there.
    fn sent(&self) -> Vec<(&Arc<Shared>, u32)> {
        let own = self.parts.iter().filter(|part| part.own_ring.is_some());
        own.map(|part| {
            let shared = &part.shared;
            (shared, shared.slots.taken())
        })
        .collect()
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

    /// Has a member put out of the group. This is for what the application knows and the group
    /// does not: an RDMC group has lost its connection to the member, say, or the member does
    /// not do its part. The group goes on as if this node had found it dead (spindle §II.D): the
    /// next view is without it, and it is cut off if it runs. It may join again.
    ///
    /// `view` is the number of the view in which the member was seen. If that view is over
    /// nothing happens: another node may have the seat by now.
    ///
    /// Of two that suspect each other the lower seat is believed. So a node that suspects a lower
    /// seat which runs is put out itself; one that suspects half of the members stops.
    ///
    /// # Errors
    ///
    /// [`Error::NoViews`], [`Error::NotInView`].
    pub fn suspect(&self, member: usize, view: u64) -> Result<(), Error> {
        let board = self.board.as_ref().ok_or(Error::NoViews)?;
        let current = board.view().filter(|current| current.number == view);
        if let Some(current) = current {
            if member == self.rank() || !current.members.contains(member) {
                return Err(Error::NotInView { member, view });
            }
            board.accuse(member, view);
            self.endpoint.ring(self.rank());
        }
        Ok(())
    }

    /// Leaves the group, after all that was sent has been delivered by all
    /// members or the time is over. The others go on without this node and
    /// nobody waits for it. In a group with views, this waits for the view without this node
    /// as long again; if there is none by then, the others take this node for failed. That view
    /// comes later if this node alone has a state that others are to have
    /// ([`Builder::subgroup_state`]): first they are given it.
    ///
    /// A closure of the group that calls this waits for nothing, because nothing goes on before it
    /// returns: in a group with views, if there is a polling thread, another thread does all of
    /// the above then.
    ///
    /// [`Builder::subgroup_state`]: super::Builder::subgroup_state
    ///
    /// # Errors
    ///
    /// [`Error::Unflushed`]; [`Error::InDelivery`] as of [`Self::flush`]. The group has been left
    /// all the same.
    pub fn leave(self, timeout: Duration) -> Result<(), Error> {
        let flushed = self.flush(timeout);
        if let Some(board) = &self.board {
            if self.status.is_polling_thread() && !self.status.is_stepped {
                self.leave_elsewhere(timeout);
                return flushed;
            }
            self.leave_view(board, end_of(timeout));
        }
        for part in &self.parts {
            let metrics = part.shared.counts.snapshot();
            tracing::debug!(subgroup = part.shared.spec.name, ?metrics, "leaving");
        }
        flushed
    }

    /// Leaves on another thread, so that the polling thread goes on.
    fn leave_elsewhere(self, timeout: Duration) {
        let thread = std::thread::Builder::new().name("weft-leave".to_owned());
        let leaving = thread.spawn(move || {
            if let Err(error) = self.leave(timeout) {
                tracing::debug!(%error, "left");
            }
        });
        if let Err(error) = leaving {
            // The group was dropped.
            tracing::warn!(%error, "the others take this node for failed");
        }
    }

    /// As [`Self::leave`] in a group with views, for who steps it until [`Self::is_out`].
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn ask_to_leave(&self) {
        if let Some(board) = &self.board {
            board.ask_to_leave();
        }
    }

    /// Whether this node is in no view any more.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn is_out(&self) -> bool {
        self.board.as_ref().is_some_and(|board| board.is_out())
    }

    /// What decides what this member of a group with views does next, besides its region.
    #[cfg(test)]
    pub(super) fn fingerprint(&self) -> u64 {
        self.board.as_ref().map_or(0, |board| board.fingerprint())
    }

    /// Waits until the application was told of the first view: a newcomer is in then, even if
    /// it is out again soon after.
    pub(super) fn wait_until_in(&self, end: Instant) -> Result<(), Error> {
        let Some(board) = &self.board else {
            return Ok(());
        };
        match board.wait_until_in(end) {
            true => Ok(()),
            false => Err(Error::NotAdmitted {
                ending: self.parts.first().and_then(|part| part.shared.ending()),
            }),
        }
    }

    /// Waits until this node is in no view any more; steps meanwhile, if that is the
    /// application's part.
    fn leave_view(&self, board: &Board, end: Instant) {
        board.ask_to_leave();
        self.endpoint.ring(self.rank());
        if !self.status.is_stepped {
            board.wait_until_out(end);
        }
        while self.status.is_stepped && !board.is_out() {
            let left = end.saturating_duration_since(Instant::now());
            let step = self.poller.step_within(left);
            if step.is_none() || left.is_zero() {
                return;
            }
            self.end_step(step);
        }
    }

    fn part(&self, subgroup: SubgroupHandle) -> Result<&Part, Error> {
        let index = self.id.index(subgroup).ok_or(Error::ForeignHandle)?;
        let part = self.parts.iter().find(|part| part.index == index);
        part.ok_or_else(|| Error::NotMember(self.names.get(index).cloned().unwrap_or_default()))
    }
}
