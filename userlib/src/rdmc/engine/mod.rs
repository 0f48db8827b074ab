// SPDX-License-Identifier: MIT OR Apache-2.0

//! All groups of a node, on its one polling thread (rdmc §4.2).

mod drive;
mod glance;
mod link;
mod notice;
mod peers;
mod remains;
mod session;
mod shared;
mod transfer;

use super::event::Event;
use super::layout::Layout;
use super::memory::{Arena, Buffer};
use super::words::Tag;
use crate::fabric::{Endpoint, Meeting};
use crate::multicast::View;
pub(super) use drive::{Drive, Driver};
pub(super) use notice::{Listener, Over};
use notice::{Notice, Outbox};
use peers::Peers;
use remains::Remains;
pub(super) use session::NewGroup;
use session::Session;
pub(super) use shared::{Command, GroupShared};
use std::sync::Arc;

/// What all groups of a node use.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) layout: Layout,
    pub(super) arena: Arc<Arena>,
}

impl Node {
    pub(super) fn is_shared(&self) -> bool {
        is_shared(&*self.endpoint)
    }
}

/// Whether nodes look into one another's memory: then what was posted is there,
/// and nobody need say so.
pub(super) fn is_shared(endpoint: &dyn Endpoint) -> bool {
    let other = usize::from(endpoint.rank() == 0);
    other >= endpoint.nodes() || endpoint.region_of(other).is_some()
}

/// The groups.
pub(super) struct Engine {
    node: Node,
    peers: Peers,
    /// By place.
    sessions: Vec<Option<Session>>,
    /// Groups whose place is not free yet, or that begin when this node has arrived.
    waiting: Vec<NewGroup>,
    /// Of groups that are over, what is not certain to be nobody's any more.
    remains: Vec<Remains>,
    /// Of groups that are over, those whose handles are still there: a thread that sends may
    /// not know that they are.
    over: Vec<Arc<Listener>>,
}

impl Engine {
    fn new(node: Node, meeting: Meeting) -> Self {
        Self {
            peers: Peers::new(meeting, node.layout.nodes),
            sessions: (0..node.layout.groups).map(|_| None).collect(),
            node,
            waiting: Vec::new(),
            remains: Vec::new(),
            over: Vec::new(),
        }
    }

    #[cfg(any(test, feature = "sim"))]
    fn has_arrived(&self) -> bool {
        self.peers.has_arrived()
    }

    /// Obeys, and does a little for each group. Says whether there was anything
    /// to do.
    fn step(&mut self, commands: Vec<Command>, outbox: &mut Outbox) -> bool {
        let mut fired = !commands.is_empty();
        for command in commands {
            self.obey(command, outbox);
        }
        fired |= self.receive() | self.peers.arrive(&self.node);
        if !self.waiting.is_empty() && self.peers.has_arrived() {
            fired |= self.start_waiting();
        }
        for place in &mut self.sessions {
            if let Some(session) = place {
                fired |= session.step(&self.node, &self.peers);
                session.give_notice(outbox);
                if session.is_over() {
                    self.over.extend(session.listener());
                    let remains = place.take().map(Session::into_remains);
                    self.remains.extend(remains);
                }
            }
        }
        fired | self.settle(outbox)
    }

    /// Takes in those who have called, and says whether there were any. With who had the seat
    /// before all is over first.
    fn receive(&mut self) -> bool {
        let mut fired = false;
        for seat in self.node.endpoint.callers().iter() {
            for session in self.sessions.iter_mut().flatten() {
                session.lose(&self.node, seat);
            }
            self.remains
                .iter_mut()
                .for_each(|remains| remains.lose(seat));
            fired |= self.peers.admit(&self.node, seat);
        }
        fired
    }

    /// Gives back memory of groups that are over, and says whether there was any.
    fn settle(&mut self, outbox: &mut Outbox) -> bool {
        let before = self.remains.len();
        let node = &self.node;
        self.remains
            .retain_mut(|remains| !remains.settle(node, outbox));
        self.remains.len() < before
    }

    /// Begins a message of a group that has nothing else to do, and offers its
    /// first blocks; or gives it back.
    fn begin(&mut self, group: u32, buffer: Buffer, size: usize) -> Result<(), Buffer> {
        let place = self.place_of(group);
        let session = self.sessions[place].as_mut();
        match session.filter(|session| session.number() == group && session.can_begin()) {
            Some(session) => {
                session.begin_now(&self.node, buffer, size);
                Ok(())
            }
            None => Err(buffer),
        }
    }

    /// Names the places of all words that a round goes by.
    fn listens_to(&self, mut place: impl FnMut(usize)) {
        self.peers.listens_to(&self.node, &mut place);
        for session in self.sessions.iter().flatten() {
            session.listens_to(&mut place);
        }
        for remains in &self.remains {
            remains.listens_to(&mut place);
        }
    }

    fn obey(&mut self, command: Command, outbox: &mut Outbox) {
        match command {
            Command::Create(new) => self.waiting.push(*new),
            Command::Send {
                group,
                buffer,
                size,
            } => {
                if let Some(new) = self.waiting(group) {
                    new.queue.push_back((buffer, size));
                } else if let Some(session) = self.session(group) {
                    session.submit(buffer, size);
                } else {
                    self.give_back(group, buffer, outbox);
                }
            }
            Command::Leave(group) => {
                if let Some(new) = self.waiting(group) {
                    new.is_leaving = true;
                } else if let Some(session) = self.session(group) {
                    session.leave();
                }
            }
            Command::Abandon(group) => {
                self.over.retain(|over| over.shared.number != group);
                self.waiting.retain(|new| new.config.number != group);
                let place = self.place_of(group);
                let session = self.sessions[place].as_mut();
                if let Some(session) = session.filter(|session| session.number() == group) {
                    session.abandon(&self.node);
                }
            }
            Command::View(view) => self.install(&view),
        }
    }

    fn install(&mut self, view: &View) {
        if self.peers.install(&self.node, view) {
            for session in self.sessions.iter_mut().flatten() {
                session.keep_to(&self.node, view);
            }
        }
    }

    /// The group has ended since its handle took the message.
    fn give_back(&self, group: u32, buffer: Buffer, outbox: &mut Outbox) {
        let over = self.over.iter().find(|over| over.shared.number == group);
        if let Some(listener) = over {
            outbox.put(listener, Notice::Event(Event::Returned(buffer)));
        }
    }

    fn place_of(&self, group: u32) -> usize {
        group as usize % self.sessions.len()
    }

    fn waiting(&mut self, group: u32) -> Option<&mut NewGroup> {
        let mut waiting = self.waiting.iter_mut();
        waiting.find(|new| new.config.number == group)
    }

    fn session(&mut self, group: u32) -> Option<&mut Session> {
        let place = self.place_of(group);
        let session = self.sessions[place].as_mut();
        session.filter(|session| session.number() == group)
    }

    fn start_waiting(&mut self) -> bool {
        let mut started = false;
        for new in std::mem::take(&mut self.waiting) {
            let number = new.config.number;
            let place = self.place_of(number);
            if self.sessions[place].is_some() {
                self.waiting.push(new);
                continue;
            }
            let nth = u64::from(number) / self.sessions.len() as u64;
            let mut session = Session::new(&self.node, place, Tag::of(nth), new);
            if let Some(view) = self.peers.view() {
                session.keep_to(&self.node, view);
            }
            self.sessions[place] = Some(session);
            started = true;
        }
        started
    }

    /// Ends all groups: the other members learn it, and nobody here waits for it.
    /// These commands came too late.
    fn close(mut self, commands: Vec<Command>, outbox: &mut Outbox) {
        for mut session in std::mem::take(&mut self.sessions).into_iter().flatten() {
            self.over.extend(session.listener());
            session.abandon(&self.node);
            session.step(&self.node, &self.peers);
            session.give_notice(outbox);
            self.remains.push(session.into_remains());
        }
        self.settle(outbox);
        let remains = std::mem::take(&mut self.remains);
        remains.into_iter().for_each(Remains::retire);
        let own = shared::deserted(self.node.endpoint.rank());
        for new in &self.waiting {
            new.listener.shared.has_ended(own);
        }
        for command in commands {
            match command {
                Command::Create(new) => new.listener.shared.has_ended(own),
                Command::Send { group, buffer, .. } => self.give_back(group, buffer, outbox),
                Command::Leave(_) | Command::Abandon(_) | Command::View(_) => {}
            }
        }
    }
}
