// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a group that has views.

use super::super::handle::SubgroupHandle;
use super::super::membership::Membership;
use super::super::views::{State, View};
use super::Builder;
use crate::fabric::Fabric;
use std::time::Duration;

impl<F: Fabric> Builder<F> {
    /// Makes a group that goes on when members leave or fail, in a new [`View`], as long as
    /// a majority of the last one is there. All nodes say so, or none.
    ///
    /// All members are in all subgroups, unless [`Self::members_by_view`] says otherwise.
    /// Subgroups have total order and deliver to closures. A member that leaves does so by
    /// [`Group::leave`]; one that only goes counts as failed. Messages that were not delivered in
    /// one view are delivered in a later one, as long as their sender stays; those of a sender that
    /// goes may be delivered nowhere.
    ///
    /// Over a fabric with seats ([`ShmSeats`], `WeftSeats`, `VerbsSeats`) nodes join a group that
    /// has begun, one with each view, and take seats that are empty or whose members have gone.
    /// A group that has state gives it to them: see [`Self::state`].
    ///
    /// [`Group::leave`]: crate::multicast::Group::leave
    /// [`ShmSeats`]: crate::fabric::shm::ShmSeats
    #[must_use]
    pub fn with_views(mut self) -> Self {
        self.has_views = true;
        self
    }

    /// Tells a closure, on the polling thread, of each view: behind the deliveries of the
    /// one before, before any of its own, and before the events of those who are not in it.
    /// Makes the group one with views ([`Self::with_views`]).
    #[must_use]
    pub fn on_view(mut self, upcall: impl FnMut(&View) + Send + 'static) -> Self {
        self.on_view = Some(Box::new(upcall));
        self.with_views()
    }

    /// Lets a subgroup's members and senders follow from the view, by a function of it alone:
    /// shards, a few members that keep a copy, a subgroup of those who came first. It is called
    /// when a view begins, and when members leave, for views that may follow: on the polling
    /// thread, but for the view that the group begins with, which a founder computes while it
    /// joins. All nodes give the same function; nodes whose functions say different things of a
    /// view take each other for failed when it begins.
    ///
    /// Members that the view does not have are left out, and so are senders that are not
    /// members or that [`Subgroup::senders`] does not allow. There may be none of both.
    ///
    /// [`View::subgroup`] says who is in, and since when. One that enters the subgroup, which
    /// may have been in the group for long, is delivered every message from the view's
    /// [`SubgroupView::sequence`] on. What came before it is given by [`Self::subgroup_state`],
    /// or by the application, which hears who has it ([`SubgroupView::before`]): [`Self::state`]
    /// is given to who joins the group, by a member that need not be in the subgroup.
    ///
    /// A sender that is none in a view is answered with [`SendError::NotSender`]. What it has
    /// sent and was not delivered is sent first when it is a sender again; until then
    /// [`Group::flush`] and [`Group::leave`] answer with [`Error::Unflushed`] without waiting,
    /// and it comes to nothing if the node leaves or fails before that.
    ///
    /// Makes the group one with views ([`Self::with_views`]).
    ///
    /// ```no_run
    /// # use weft::{Group, Membership, Subgroup, fabric::shm::ShmSeats};
    /// # fn example(node: ShmSeats) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = Group::builder(node);
    /// let log = builder.subgroup(Subgroup::new("log"));
    /// // The three lowest members keep the log.
    /// let group = builder
    ///     .members_by_view(log, |view| Membership::all_send(view.members.iter().take(3).collect()))
    ///     .deliver(log, |batch| for message in batch { println!("{:?}", message.bytes) })
    ///     .on_view(move |view| println!("{:?}", view.subgroup(log)))
    ///     .join()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Subgroup::senders`]: crate::multicast::Subgroup::senders
    /// [`SubgroupView::sequence`]: crate::multicast::SubgroupView::sequence
    /// [`SubgroupView::before`]: crate::multicast::SubgroupView::before
    /// [`SendError::NotSender`]: crate::multicast::SendError::NotSender
    /// [`Group::flush`]: crate::multicast::Group::flush
    /// [`Group::leave`]: crate::multicast::Group::leave
    /// [`Error::Unflushed`]: crate::multicast::Error::Unflushed
    #[must_use]
    pub fn members_by_view(
        mut self,
        subgroup: SubgroupHandle,
        members: impl Fn(&View) -> Membership + Send + 'static,
    ) -> Self {
        match self.id.index(subgroup) {
            Some(index) => drop(self.members_of.insert(index, Box::new(members))),
            None => self.is_mixed_up = true,
        }
        self.with_views()
    }

    /// Gives newcomers the application's state, of at most so many bytes. All nodes say so, or
    /// none.
    ///
    /// When a newcomer joins, `take` is called at one member, on its polling thread: behind
    /// all deliveries before the newcomer's first view, and before that member hears of the
    /// view. The newcomer gets the bytes in `restore`, then hears of the view, and is
    /// delivered every message behind the cut. Members go on meanwhile, until their windows
    /// are full. If that member fails, another one's state is taken, at the beginning of a
    /// later view.
    ///
    /// The bytes are reserved in each member's region. A state that is longer is given to
    /// nobody, and the newcomer is not taken in ([`Error::NotAdmitted`]).
    ///
    /// Makes the group one with views ([`Self::with_views`]).
    ///
    /// [`Error::NotAdmitted`]: crate::multicast::Error::NotAdmitted
    #[must_use]
    pub fn state(
        mut self,
        max_bytes: usize,
        take: impl FnMut() -> Vec<u8> + Send + 'static,
        restore: impl FnMut(&[u8]) + Send + 'static,
    ) -> Self {
        self.state = Some(State::new(max_bytes, take, restore));
        self.with_views()
    }

    /// Gives those who enter a subgroup its state, of at most so many bytes, whether they have just
    /// joined the group or were in it before. All nodes say so, or none.
    ///
    /// When some enter, `take` is called at a member that has the state, on its polling thread:
    /// behind all deliveries of the view before, and before it hears of the view. Each that
    /// enters hears of the view, gets the bytes in `restore`, and is then delivered every message
    /// of the view. What it had of the subgroup from an earlier time is void. Members deliver
    /// meanwhile, until the windows are full. If the member that gives the state fails, another
    /// one's is taken at the beginning of a later view.
    ///
    /// If the function of the view names nobody who has the state, those who have it stay members,
    /// until a view begins in which somebody has it whom the function names. The last member that
    /// has it hands it over when it leaves the group: if the function names others without it, it
    /// stays for as long as they wait ([`View::leaving`]). If all who have it have failed, or
    /// nobody was named when the last one left, [`SubgroupView::before`] is empty: members begin
    /// with nothing, and `restore` is not called.
    ///
    /// The bytes are reserved in each member's region. If a state is longer, those who enter are
    /// put out of the group.
    ///
    /// Makes the group one with views ([`Self::with_views`]).
    ///
    /// [`SubgroupView::before`]: crate::multicast::SubgroupView::before
    /// [`View::leaving`]: crate::multicast::View::leaving
    #[must_use]
    pub fn subgroup_state(
        mut self,
        subgroup: SubgroupHandle,
        max_bytes: usize,
        take: impl FnMut() -> Vec<u8> + Send + 'static,
        restore: impl FnMut(&[u8]) + Send + 'static,
    ) -> Self {
        let state = State::new(max_bytes, take, restore);
        match self.id.index(subgroup) {
            Some(index) => drop(self.states.insert(index, state)),
            None => self.is_mixed_up = true,
        }
        self.with_views()
    }

    /// Lets states be read in pieces of so many bytes, so that a run sees many.
    #[cfg(any(test, feature = "sim"))]
    pub(in super::super) fn in_pieces_of(mut self, bytes: usize) -> Self {
        for state in self.state.iter_mut().chain(self.states.values_mut()) {
            state.piece_bytes = bytes;
        }
        self
    }

    /// Suspects a member whose polling thread does nothing for so long: its process is stopped,
    /// a closure of it hangs, or its host does. The others go on without it in a new view; when it
    /// runs again it finds itself out ([`Ending::Excluded`]). The death of a process is noticed
    /// without that, at once.
    ///
    /// By default nobody is suspected for that. A member that gets no processor for so long, or
    /// whose closure takes so long, is put out wrongly: choose many times what may happen on a
    /// busy machine, seconds rather than milliseconds; 10 ms to a day are possible. Members count
    /// four times in this time, and look at the others' counts, so an idle group does not sleep for
    /// longer. All nodes say the same. Makes the group one with views ([`Self::with_views`]).
    ///
    /// [`Ending::Excluded`]: crate::multicast::Ending::Excluded
    #[must_use]
    pub fn suspect_after(mut self, term: Duration) -> Self {
        self.term = Some(term);
        self.with_views()
    }
}
