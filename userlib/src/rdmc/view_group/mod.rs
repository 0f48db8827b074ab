// SPDX-License-Identifier: MIT OR Apache-2.0

//! A root's messages through the groups of one view after the other.
//!
//! Each view has a group of its own. The root asks its group of the last view to end when all is
//! done that was begun; one of which a member is not in the new view ends at once. When it has
//! ended at all members that are left, the root knows how many messages all of them have, and
//! begins its next group there: each member counts messages across groups, and keeps to itself
//! what it is sent a second time.

mod event;
mod receiving;
mod sending;
#[cfg(all(test, not(loom)))]
mod tests;

pub use event::ViewEvent;

use super::config::GroupConfig;
use super::engine::Over;
use super::error::{Error, SendError};
use super::event::{EndReason, Incoming};
use super::group::Group;
use super::memory::Buffer;
use super::node::{Inner, Node, Start};
use crate::multicast::View;
use receiving::Receiving;
use sending::Sending;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type Settings = Box<dyn Fn(&View) -> Option<GroupConfig> + Send + Sync>;
type Tell = Box<dyn FnMut(ViewEvent) + Send>;

/// The RDMC group of a view, and of each view that follows: see [`Node::view_group`].
///
/// Dropping it leaves its group at once, whatever is on its way.
pub struct ViewGroup(Arc<Shared>);

struct Shared {
    node: Arc<Inner>,
    settings: Settings,
    receiving: Arc<Receiving>,
    // Not locked while the application is told.
    tell: Mutex<Tell>,
    state: Mutex<State>,
}

/// Locked before anything of the node's.
struct State {
    /// The last one that was installed, and whose group was created, or is to be.
    view: Option<View>,
    has_group: bool,
    /// The groups in which this node receives that are not over, by the number of their views.
    groups: Vec<(u64, Group)>,
    sending: Sending,
}

impl fmt::Debug for ViewGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewGroup")
            .field("view", &self.0.lock().view)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Groups of a root's, one for each view, in which its messages go on: a message is
    /// received once by each member, whatever members come or go meanwhile.
    ///
    /// `settings` says which group there is in a view ([`GroupConfig::in_view`]), the same at all
    /// members; none, if there is none. The root may be another one in another view. Its messages
    /// count from 1 on, also if it was the root before as another incarnation. Groups of later
    /// views have higher numbers.
    /// `memory` and `tell` are called on the node's polling thread, as those of
    /// [`Self::create_group`].
    pub fn view_group(
        &self,
        settings: impl Fn(&View) -> Option<GroupConfig> + Send + Sync + 'static,
        memory: impl FnMut(Incoming) -> Option<Buffer> + Send + 'static,
        tell: impl FnMut(ViewEvent) + Send + 'static,
    ) -> ViewGroup {
        ViewGroup(Arc::new(Shared {
            node: Arc::clone(self.inner()),
            settings: Box::new(settings),
            receiving: Arc::new(Receiving::new(self.memory(), Box::new(memory))),
            tell: Mutex::new(Box::new(tell)),
            state: Mutex::new(State {
                view: None,
                has_group: false,
                groups: Vec::new(),
                sending: Sending::default(),
            }),
        }))
    }
}

impl ViewGroup {
    /// Goes over to a view, and has the node keep to it ([`Node::follow`]). To be called with
    /// each view of a [`multicast::Group`](crate::multicast::Group), as its `on_view` is. It does
    /// not wait for the other members.
    ///
    /// # Errors
    ///
    /// [`Error::BadGroup`] and [`Error::NumberUsed`] if `settings` says what cannot be;
    /// [`Error::NoMemory`] if there is no room for a block: then the same view can be installed
    /// again.
    pub fn install(&self, view: &View) -> Result<(), Error> {
        self.0.node.follow(view);
        let mut state = self.0.lock();
        let last = state.view.as_ref().map_or(0, |last| last.number);
        if view.number < last || (view.number == last && state.has_group) {
            return Ok(());
        }
        state.view = Some(view.clone());
        state.has_group = false;
        let rank = self.0.node.rank();
        let config = (self.0.settings)(view).filter(|config| config.members.contains(&rank));
        self.0.join(&mut state, view.number, config)?;
        state.has_group = true;
        Ok(())
    }

    /// Sends the first `size` bytes of a buffer to all other members, as message `number` of
    /// this root: the first has 1, and each later one the [next](Self::next). While the group of a
    /// view that was installed is still to be created the message waits for it. The buffer comes
    /// back with [`ViewEvent::Sent`] or [`ViewEvent::Returned`].
    ///
    /// # Errors
    ///
    /// [`SendError`], with the buffer. When a member has failed no message is taken before
    /// [`ViewEvent::Ended`] has said which are to be sent again, and before the next view was
    /// installed.
    pub fn send(&self, number: u64, buffer: Buffer, size: usize) -> Result<(), SendError> {
        let sending = &mut self.0.lock().sending;
        sending.send(&self.0.node, number, buffer, size)
    }

    /// The number of the next message, if this node is the root.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.0.lock().sending.next
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in here can only be an assertion's.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the group of a view, if there is one, or has it created when the one before is over
    /// in which this node sends.
    fn join(
        self: &Arc<Self>,
        state: &mut State,
        view: u64,
        config: Option<GroupConfig>,
    ) -> Result<(), Error> {
        let rank = self.node.rank();
        let is_root = |config: &GroupConfig| config.members.first() == Some(&rank);
        let (sends, receives) = match config {
            Some(config) if is_root(&config) => (Some((view, config)), None),
            other => (None, other),
        };
        if let Some((_, config)) = &sends {
            config.check(rank, self.node.nodes())?;
        }
        state.sending.install(sends);
        if let Some(config) = receives {
            let group = self.create(view, &config, 0)?;
            state.groups.push((view, group));
        }
        self.begin(&mut state.sending)
    }

    /// Creates the next group in which this node sends, if it is its time.
    fn begin(self: &Arc<Self>, sending: &mut Sending) -> Result<(), Error> {
        let Some((view, config)) = sending.next_group() else {
            return Ok(());
        };
        let group = self.create(view, &config, sending.grouped())?;
        sending.begin(group);
        Ok(())
    }

    fn create(
        self: &Arc<Self>,
        view: u64,
        config: &GroupConfig,
        before: u64,
    ) -> Result<Group, Error> {
        // A group without members is refused when it starts.
        let root = config.all_members().next().unwrap_or_default();
        let of = |of: &Arc<Self>| Arc::downgrade(of);
        let (shared, told) = (of(self), of(self));
        let receiving = Arc::clone(&self.receiving);
        let start = Start {
            memory: Box::new(move |incoming| receiving.memory(root, incoming)),
            tell: Box::new(move |event| {
                if let Some(shared) = told.upgrade() {
                    let event = shared.receiving.news(root, event);
                    event.into_iter().for_each(|event| shared.tell(event));
                }
            }),
            before,
            tell_over: Some(Box::new(move |over| Self::is_over(&shared, view, over))),
        };
        self.node.start_group(config, start)
    }

    fn tell(&self, event: ViewEvent) {
        let mut tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        tell(event);
    }

    /// A group has ended at all members that are left: the root begins the next one.
    fn is_over(shared: &Weak<Self>, view: u64, over: Over) {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut state = shared.lock();
        let place = state.groups.iter().position(|(of, _)| *of == view);
        let received = place.map(|at| state.groups.swap_remove(at));
        let root = received.as_ref().map(|(_, group)| group.root());
        let is_as_asked = over.end.reason == EndReason::Left
            && over.end.node == root.unwrap_or(shared.node.rank());
        let mut returned = Vec::new();
        let mut is_all = true;
        if received.is_none() {
            (is_all, returned) = state.sending.is_over(over);
            if let Err(error) = shared.begin(&mut state.sending) {
                tracing::error!(%error, view, "the group of the next view cannot be created");
            }
        }
        drop(state);
        // It is left without the lock.
        drop(received);
        for buffer in returned {
            shared.tell(ViewEvent::Returned(buffer));
        }
        if !is_as_asked || !is_all {
            shared.tell(ViewEvent::Ended {
                view,
                end: over.end,
                received: over.received,
            });
        }
    }
}
