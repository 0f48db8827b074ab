// SPDX-License-Identifier: MIT OR Apache-2.0

//! One group at one member, on the polling thread.
//!
//! A message is at a member from its first block on (at the root: from its
//! turn on) until it is whole, all sends are done, and all whom it was given to
//! have all of it. So a message's memory is the application's again when nobody
//! reads or writes it any more. What was in transfer when the group ended is kept
//! until that is certain: see [`super::remains`].

mod messages;

use super::super::config::GroupConfig;
use super::super::event::{End, EndReason, Event, Incoming};
use super::super::memory::Buffer;
use super::super::words::{Bye, Tag};
use super::super::Error;
use super::link::{Hello, Link};
use super::notice::{Listener, Notice, Outbox, Over};
use super::peers::Peers;
use super::remains::Remains;
use super::shared::GroupShared;
use super::transfer::Transfer;
use super::Node;
use crate::multicast::View;
use messages::Sent;
use std::collections::VecDeque;
use std::sync::Arc;

pub(in crate::rdmc) type Memory = Box<dyn FnMut(Incoming) -> Option<Buffer> + Send>;

/// A group that is to be created.
pub(in crate::rdmc) struct NewGroup {
    pub(in crate::rdmc) config: GroupConfig,
    pub(in crate::rdmc) listener: Arc<Listener>,
    pub(in crate::rdmc) memory: Memory,
    /// Where first blocks arrive, unless they can be looked at where they are.
    pub(in crate::rdmc) landing: Option<Buffer>,
    /// Messages that this node has sent in earlier groups, if it is the root.
    pub(in crate::rdmc) before: u64,
    /// Messages that are sent before it begins.
    pub(in crate::rdmc) queue: VecDeque<(Buffer, usize)>,
    /// Whether it is to be left as soon as they are done.
    pub(in crate::rdmc) is_leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not all members have created it.
    Joining,
    Open,
    /// It has ended here, and not at all others.
    Closing,
    /// Its cells are free.
    Over,
}

pub(super) struct Session {
    state: State,
    new: NewGroup,
    hello: Hello,
    /// This member's index.
    index: usize,
    /// By index; none at the own one.
    links: Vec<Option<Link>>,
    /// Members, by index, that first blocks may come from.
    relayers: Vec<usize>,
    active: Option<Transfer>,
    has_told_done: bool,
    /// Changes of the memory when there was none for the next message.
    had_none: Option<u64>,
    completed: u64,
    /// Somebody leaves after so many messages.
    stop: Option<Bye>,
    /// How it has ended here.
    end: Option<End>,
    /// Its handle is gone: nobody will send.
    is_abandoned: bool,
    limbo: Option<Buffer>,
    /// What the application is to be told.
    notices: Vec<Notice>,
}

impl Session {
    pub(super) fn new(node: &Node, place: usize, tag: Tag, new: NewGroup) -> Self {
        let config = &new.config;
        let rank = node.endpoint.rank();
        let links = config.all_members().map(|member| {
            (member.0 != rank).then(|| Link::new(&*node.endpoint, node.layout, place, tag, member))
        });
        let index = new.listener.shared.index;
        if index == 0 {
            new.listener.shared.set_before(new.before);
        }
        Self {
            state: State::Joining,
            hello: Hello {
                number: config.number,
                settings: config.digest(),
                landing: new.landing.as_ref().map_or(0, Buffer::offset),
                before: new.before,
            },
            index,
            links: links.collect(),
            relayers: config.first_relayers(index).collect(),
            active: None,
            has_told_done: false,
            had_none: None,
            completed: 0,
            stop: None,
            end: None,
            is_abandoned: false,
            limbo: None,
            notices: Vec::new(),
            new,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.new.config.number
    }

    /// Whether its place is free again.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Does what there is to do, and says whether there was anything.
    pub(super) fn step(&mut self, node: &Node, peers: &Peers) -> bool {
        let mut fired = false;
        node.endpoint.together(&mut || {
            fired = match self.state {
                State::Joining => self.join(node, peers),
                State::Open => self.advance(node),
                State::Closing => self.close(node),
                State::Over => false,
            };
        });
        for link in self.links.iter_mut().flatten() {
            link.ring(&*node.endpoint);
        }
        fired
    }

    /// Names the places of the words that it hears.
    pub(super) fn listens_to(&self, mut place: impl FnMut(usize)) {
        let links = self.links.iter().flatten();
        links.for_each(|link| link.listens_to(&mut place));
    }

    /// Takes a message of the application's.
    pub(super) fn submit(&mut self, buffer: Buffer, size: usize) {
        if matches!(self.state, State::Closing | State::Over) {
            self.notices.push(Notice::Event(Event::Returned(buffer)));
        } else {
            self.new.queue.push_back((buffer, size));
        }
    }

    /// Whether a message could begin at once.
    pub(super) fn can_begin(&self) -> bool {
        self.state == State::Open && self.is_idle()
    }

    /// Begins a message, as far as it goes without a callback.
    pub(super) fn begin_now(&mut self, node: &Node, buffer: Buffer, size: usize) {
        self.new.queue.push_back((buffer, size));
        self.begin_own();
        node.endpoint
            .together(&mut || while self.send(node) == Sent::Offered {});
        for link in self.links.iter_mut().flatten() {
            link.ring(&*node.endpoint);
        }
    }

    /// Leaves as soon as all is done that was begun.
    pub(super) fn leave(&mut self) {
        self.new.is_leaving = true;
    }

    /// Ends if one of its members is not in a view.
    pub(super) fn keep_to(&mut self, node: &Node, view: &View) {
        for at in 0..self.links.len() {
            let Some(link) = &mut self.links[at] else {
                continue;
            };
            if link.is_left_out(view) && self.end.is_none() {
                let reason = match (view.left.contains(link.node), self.is_idle()) {
                    (false, _) => EndReason::Died,
                    (true, true) => EndReason::Left,
                    (true, false) => EndReason::Deserted,
                };
                self.end(node, self.end_of(at, reason), false);
            }
        }
    }

    /// The former holder of a seat is cut off, and another node takes the seat.
    pub(super) fn lose(&mut self, node: &Node, seat: usize) {
        for at in 0..self.links.len() {
            let link = self.links[at].as_mut();
            let is_lost = link.is_some_and(|link| link.loses(seat));
            if is_lost && matches!(self.state, State::Joining | State::Open) {
                self.end(node, self.end_of(at, EndReason::Died), false);
            }
        }
    }

    /// Leaves now.
    pub(super) fn abandon(&mut self, node: &Node) {
        self.is_abandoned = true;
        if matches!(self.state, State::Joining | State::Open) {
            let end = self.own_end(match self.is_idle() {
                true => EndReason::Left,
                false => EndReason::Deserted,
            });
            self.end(node, end, true);
        }
    }

    /// Gives away what the application is to be told.
    pub(super) fn give_notice(&mut self, outbox: &mut Outbox) {
        for notice in self.notices.drain(..) {
            outbox.put(&self.new.listener, notice);
        }
    }

    fn shared(&self) -> &GroupShared {
        &self.new.listener.shared
    }

    fn is_idle(&self) -> bool {
        self.active.is_none() && self.new.queue.is_empty()
    }

    fn own_end(&self, reason: EndReason) -> End {
        self.end_of(self.index, reason)
    }

    fn end_of(&self, index: usize, reason: EndReason) -> End {
        End {
            node: self.new.config.members[index],
            reason,
        }
    }

    /// Greets those that are there by now.
    fn greet(&mut self, node: &Node, peers: &Peers) -> bool {
        let mut fired = false;
        for link in self.links.iter_mut().flatten() {
            if link.comes(node, peers) {
                link.greet(&*node.endpoint, self.hello);
                fired = true;
            }
        }
        fired
    }

    fn join(&mut self, node: &Node, peers: &Peers) -> bool {
        // All of them first: one that disagrees is to hear it from each.
        let mut fired = self.greet(node, peers);
        for at in 0..self.links.len() {
            let Some(link) = &mut self.links[at] else {
                continue;
            };
            if link.is_here {
                continue;
            }
            if let Some(agrees) = link.is_greeted(self.hello) {
                fired = true;
                if at == 0 {
                    self.new.listener.shared.set_before(link.before());
                }
                self.shared().is_here(self.new.config.members[at]);
                if !agrees {
                    let mismatch = Error::Mismatch {
                        group: self.number(),
                        node: self.new.config.members[at],
                    };
                    self.shared().has_joined(Err(mismatch));
                    self.end(node, self.own_end(EndReason::Left), true);
                    return true;
                }
            }
        }
        if self.hear_farewells(node) {
            return true;
        }
        if self.links.iter().flatten().all(|link| link.is_here) {
            self.state = State::Open;
            self.shared().has_joined(Ok(()));
            return true;
        }
        fired
    }

    fn advance(&mut self, node: &Node) -> bool {
        if self.hear_farewells(node) {
            return true;
        }
        let mut fired = self.begin_own() || self.begin_incoming(node);
        fired |= self.receive(node);
        loop {
            let sent = self.send(node);
            fired |= sent != Sent::Nothing;
            if sent != Sent::Offered {
                break;
            }
        }
        fired |= self.finish();
        if self.new.is_leaving && self.state == State::Open && self.is_idle() {
            self.end(node, self.own_end(EndReason::Left), true);
            fired = true;
        }
        fired
    }

    /// Looks who has left or died. Says whether the group has ended by it.
    fn hear_farewells(&mut self, node: &Node) -> bool {
        let down = node.endpoint.down();
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_ref().filter(|link| link.is_connected()) else {
                continue;
            };
            // Looked at first: its farewell came before, and may be overwritten.
            let has_moved_on = link.has_moved_on(self.hello);
            match link.bye(self.completed) {
                Some(bye) if bye.end.reason == EndReason::Left => {
                    let is_first = self.stop.is_none_or(|stop| bye.messages < stop.messages);
                    if is_first {
                        self.stop = Some(bye);
                    }
                }
                Some(bye) => {
                    self.end(node, bye.end, false);
                    return true;
                }
                // It takes this node for dead, or has not waited for it.
                None if has_moved_on => {
                    self.end(node, self.end_of(at, EndReason::Deserted), false);
                    return true;
                }
                None if down.contains(link.node) => {
                    self.end(node, self.end_of(at, EndReason::Died), false);
                    return true;
                }
                None => {}
            }
        }
        match self.stop {
            // Who has created it and left was there: all others are waited for,
            // so that the group ends in the same way everywhere.
            Some(stop) if self.state == State::Open && self.completed >= stop.messages => {
                self.end(node, stop.end, false);
                true
            }
            _ => false,
        }
    }

    /// Ends the group here, and tells the others; the application too, unless it
    /// is its own doing.
    fn end(&mut self, node: &Node, end: End, is_own: bool) {
        let messages = self.completed;
        for link in self.links.iter_mut().flatten() {
            link.tell_bye(&*node.endpoint, Bye { end, messages });
        }
        let was_open = self.state == State::Open;
        self.state = State::Closing;
        self.end = Some(end);
        tracing::debug!(group = self.number(), %end, "ended");
        self.notices.push(Notice::Ended(end));
        if was_open && !is_own {
            self.notices.push(Notice::Event(Event::Ended(end)));
        }
        for (buffer, _) in std::mem::take(&mut self.new.queue) {
            self.notices.push(Notice::Event(Event::Returned(buffer)));
        }
        self.limbo = self.active.take().map(|transfer| transfer.buffer);
    }

    /// Waits until all others have ended it, so that its cells can be used again.
    fn close(&mut self, node: &Node) -> bool {
        let down = node.endpoint.down();
        let is_left =
            |link: &&Link| link.is_here && link.is_connected() && !down.contains(link.node);
        let left = || self.links.iter().flatten().filter(is_left);
        if !left().all(|link| link.has_ended(self.hello)) {
            return false;
        }
        // One whose farewell a later group's has overwritten may have received nothing.
        let bye = |link: &Link| link.bye(self.completed);
        let received = left().map(|link| bye(link).map_or(0, |bye| bye.messages));
        let received = received.chain([self.completed]).min().unwrap_or(0);
        self.notices.extend(self.end.map(|end| {
            Notice::Over(Over {
                end,
                received: self.shared().before() + received,
            })
        }));
        self.state = State::Over;
        true
    }

    /// Who is told of what was sent too late, as long as somebody may send.
    pub(super) fn listener(&self) -> Option<Arc<Listener>> {
        (!self.is_abandoned).then(|| Arc::clone(&self.new.listener))
    }

    /// What is left of a group that has ended here.
    pub(super) fn into_remains(self) -> Remains {
        let links = self.links.into_iter().flatten();
        Remains {
            links: links.filter(Link::may_touch).collect(),
            hello: self.hello,
            transfer: self.limbo,
            landing: self.new.landing,
            listener: self.new.listener,
        }
    }
}
