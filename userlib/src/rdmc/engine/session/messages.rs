// SPDX-License-Identifier: MIT OR Apache-2.0

//! A message's way through a member: it begins, its blocks come and go, it ends.

use super::super::super::config::Plan;
use super::super::super::event::{End, EndReason, Event, Incoming, Message};
use super::super::super::memory::Buffer;
use super::super::super::schedule::{self, Schedule};
use super::super::link::Link;
use super::super::notice::Notice;
use super::super::transfer::Transfer;
use super::super::Node;
use super::Session;

/// Blocks that a group has under way at a time, where posting is not the whole
/// transfer: one that travels, one behind it, and some for the answers' way.
const SEND_WINDOW: u64 = 4;

/// What a look for something to send has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Nothing,
    /// A block: now it is another group's turn.
    Block,
    /// Where a block is, which takes no time: others can go with it.
    Offered,
}

/// A message that cannot begin: how the group ends by it, and the memory that was to be its.
struct Unfit {
    end: End,
    buffer: Option<Buffer>,
}

impl Unfit {
    fn new(end: End, buffer: Buffer) -> Self {
        Self {
            end,
            buffer: Some(buffer),
        }
    }
}

impl From<End> for Unfit {
    fn from(end: End) -> Self {
        Self { end, buffer: None }
    }
}

impl Session {
    /// The root's next message.
    pub(super) fn begin_own(&mut self) -> bool {
        if self.active.is_some() {
            return false;
        }
        let Some((buffer, size)) = self.new.queue.pop_front() else {
            return false;
        };
        match self.part(size) {
            Some((schedule, plan)) => {
                let number = self.completed + 1;
                self.active = Some(Transfer::new(schedule, plan, number, size, buffer));
            }
            // `Group::send` has seen that there is one.
            None => self.notices.push(Notice::Event(Event::Returned(buffer))),
        }
        true
    }

    /// A message whose first block is here.
    pub(super) fn begin_incoming(&mut self, node: &Node) -> bool {
        if self.active.is_some() {
            return false;
        }
        let come = self.relayers.iter().copied().find(|&at| {
            let link = self.links[at].as_ref();
            link.is_some_and(|link| link.sent() > link.seen)
        });
        let Some(from) = come else {
            return false;
        };
        // Before it is asked, so that no change is missed.
        let changes = Some(node.arena.changes());
        if self.had_none == changes {
            return false;
        }
        self.had_none = None;
        match self.begin(node, from) {
            Ok(Some(transfer)) => {
                self.active = Some(transfer);
                self.has_told_done = false;
            }
            Ok(None) => {
                self.had_none = changes;
                return false;
            }
            Err(Unfit { end, buffer }) => {
                self.end(node, end, false);
                // No member was told of it.
                let returned = buffer.map(|buffer| Notice::Event(Event::Returned(buffer)));
                self.notices.extend(returned);
            }
        }
        true
    }

    /// Begins a message, unless there is no memory for it now.
    fn begin(&mut self, node: &Node, from: usize) -> Result<Option<Transfer>, Unfit> {
        let corrupt = self.end_of(from, EndReason::Corrupt);
        let number = self.completed + 1;
        let link = self.links[from].as_ref().ok_or(corrupt)?;
        let (size, at) = link.first(number).ok_or(corrupt)?;
        let (schedule, plan) = self.part(size).ok_or(corrupt)?;
        let Some(buffer) = self.memory(node, size)? else {
            return Ok(None);
        };
        let mut transfer = Transfer::new(schedule, plan, number, size, buffer);
        if self.take_first(node, from, at, &mut transfer).is_none() {
            return Err(Unfit::new(corrupt, transfer.buffer));
        }
        for source in transfer.sources.iter().filter(|source| source.has_more()) {
            if let Some(link) = &mut self.links[source.from] {
                link.tell_place(&*node.endpoint, number, transfer.buffer.offset());
            }
        }
        Ok(Some(transfer))
    }

    /// This member's part in a message of this size, if there can be one.
    fn part(&self, size: usize) -> Option<(Schedule, Plan)> {
        let plan = self.new.config.plan(size)?;
        let schedule = plan.schedule(self.index, self.links.len()).ok()?;
        Some((schedule, plan))
    }

    /// The application's memory for the next message, if it has any now.
    fn memory(&mut self, node: &Node, size: usize) -> Result<Option<Buffer>, Unfit> {
        let number = self.shared().before() + self.completed + 1;
        let buffer = (self.new.memory)(Incoming { number, size });
        match buffer {
            Some(buffer) if buffer.len() < size || !buffer.is_of(&node.arena) => {
                Err(Unfit::new(self.own_end(EndReason::Refused), buffer))
            }
            buffer => Ok(buffer),
        }
    }

    /// Copies a message's first block to its place. It is in this node's region, or, if this node
    /// can look into the sender's, at this offset there. None if no first block comes from there.
    fn take_first(
        &mut self,
        node: &Node,
        from: usize,
        at: usize,
        transfer: &mut Transfer,
    ) -> Option<()> {
        let link = self.links[from].as_mut()?;
        let region = node.endpoint.region_of(link.node);
        let (region, at) = match (region, &self.new.landing) {
            (None, Some(landing)) => (node.endpoint.region(), landing.offset()),
            (region, _) => (region.unwrap_or(node.endpoint.region()), at),
        };
        let (source, block) = transfer.first_from(from)?;
        let len = transfer.write(block, 0).len;
        let place = region.range(at, len).ok()?;
        // SAFETY: so many bytes are there. The sender does not touch them until
        // this node has the message, and no other one writes where first blocks
        // arrive.
        unsafe { transfer.copy_in(block, place) };
        link.seen += transfer.take(source, 1);
        if !node.is_shared() {
            link.tell_taken(&*node.endpoint);
        }
        Some(())
    }

    /// Notes the blocks that have come.
    pub(super) fn receive(&mut self, node: &Node) -> bool {
        let Some(transfer) = &mut self.active else {
            return false;
        };
        let mut fired = false;
        for at in 0..transfer.sources.len() {
            let Some(link) = &mut self.links[transfer.sources[at].from] else {
                continue;
            };
            let taken = transfer.take(at, link.sent().saturating_sub(link.seen));
            if taken > 0 {
                fired = true;
                link.seen += taken;
                if !node.is_shared() {
                    link.tell_taken(&*node.endpoint);
                }
            }
        }
        if self.index != 0 && transfer.is_whole() && !self.has_told_done {
            self.has_told_done = true;
            fired = true;
            let sources = transfer.sources.iter().map(|source| source.from);
            let told: Vec<usize> = sources.chain(self.relayers.iter().copied()).collect();
            for (at, link) in self.links.iter_mut().enumerate() {
                if let Some(link) = link.as_mut().filter(|_| told.contains(&at)) {
                    link.tell_done(&*node.endpoint, transfer.number);
                }
            }
        }
        fired
    }

    /// Sends the next block, if it is here and its target is ready.
    pub(super) fn send(&mut self, node: &Node) -> Sent {
        let Some(transfer) = &mut self.active else {
            return Sent::Nothing;
        };
        let Some(next) = transfer.next_send() else {
            return Sent::Nothing;
        };
        if !node.is_shared() {
            let links = self.links.iter().flatten();
            if links.map(Link::under_way).sum::<u64>() >= SEND_WINDOW {
                return Sent::Nothing;
            }
        }
        let Some(link) = &mut self.links[next.peer] else {
            return Sent::Nothing;
        };
        let number = transfer.number;
        let is_first = !transfer.targets.contains(&next.peer)
            && schedule::first_relayer(
                transfer.plan.algorithm,
                next.peer,
                self.new.config.members.len(),
            ) == Ok(Some(self.index));
        if is_first {
            if link.done() + 1 < number {
                return Sent::Nothing;
            }
            let block = transfer.write(next.block, 0);
            link.give_first(&*node.endpoint, number, transfer.size, block);
        } else {
            let Some(place) = link.place(number) else {
                return Sent::Nothing;
            };
            link.give(&*node.endpoint, transfer.write(next.block, place));
        }
        transfer.sent();
        match is_first && node.is_shared() {
            true => Sent::Offered,
            false => Sent::Block,
        }
    }

    /// Ends the message if nothing of it is left to do.
    pub(super) fn finish(&mut self) -> bool {
        let is_done = |transfer: &mut Transfer| {
            let targets = transfer.targets.iter();
            let number = transfer.number;
            let mut links = targets.filter_map(|&at| self.links[at].as_ref());
            transfer.has_sent()
                && (self.index == 0 || transfer.is_whole())
                && links.all(|link| link.done() >= number)
        };
        let Some(transfer) = self.active.take_if(is_done) else {
            return false;
        };
        self.completed = transfer.number;
        let message = Message {
            number: transfer.number,
            size: transfer.size,
            buffer: transfer.buffer,
        };
        self.notices.push(Notice::Event(match self.index {
            0 => Event::Sent(message),
            _ => Event::Received(message),
        }));
        true
    }
}
