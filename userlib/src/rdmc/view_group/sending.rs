// SPDX-License-Identifier: MIT OR Apache-2.0

//! The root's part: the group that it sends in, and what waits for the next one.

use super::super::config::GroupConfig;
use super::super::engine::Over;
use super::super::error::{SendError, SendReason};
use super::super::event::End;
use super::super::group::{refusal, Group};
use super::super::memory::Buffer;
use super::super::node::Inner;
use super::super::MAX_QUEUED;
use std::collections::VecDeque;

/// The group that was created last, until it is over.
#[derive(Debug)]
struct Current {
    group: Group,
    /// It is to end: messages wait for the next one.
    is_ending: bool,
}

impl Current {
    fn end(&mut self) {
        if !self.is_ending {
            self.is_ending = true;
            self.group.leave();
        }
    }
}

/// See the module.
///
/// # Invariants
///
/// Where messages wait there is a group that is to be created, or the last one has ended and is not
/// over.
#[derive(Debug)]
pub(super) struct Sending {
    current: Option<Current>,
    /// The number of the next message.
    pub(super) next: u64,
    /// The last ones before it, which are in no group yet.
    waiting: VecDeque<(Buffer, usize)>,
    /// Groups that are to be created, one behind the other, of views by number: the other members
    /// wait for each of them.
    groups: VecDeque<(u64, GroupConfig)>,
    /// This node is the root in the view that was installed last.
    is_root: bool,
    /// How the last group has ended.
    end: Option<End>,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            current: None,
            next: 1,
            waiting: VecDeque::new(),
            groups: VecDeque::new(),
            is_root: false,
            end: None,
        }
    }
}

impl Sending {
    /// Sends a message, or has it wait, if there is a group or one comes.
    pub(super) fn send(
        &mut self,
        node: &Inner,
        number: u64,
        buffer: Buffer,
        size: usize,
    ) -> Result<(), SendError> {
        let reason = self.refusal(node, number, &buffer, size);
        if let Some(reason) = reason {
            return Err(SendError { reason, buffer });
        }
        match self.current.as_ref().filter(|current| !current.is_ending) {
            Some(current) => current.group.send(buffer, size)?,
            None => self.waiting.push_back((buffer, size)),
        }
        self.next += 1;
        Ok(())
    }

    /// Why it cannot be sent, if so; a group that takes messages says that itself.
    fn refusal(
        &self,
        node: &Inner,
        number: u64,
        buffer: &Buffer,
        size: usize,
    ) -> Option<SendReason> {
        if number != self.next {
            return Some(SendReason::NotNext(self.next));
        }
        let is_open = |current: &Current| !current.is_ending;
        if self.current.as_ref().is_some_and(is_open) {
            return None;
        }
        match (self.groups.back(), self.end) {
            (Some(_), _) if self.waiting.len() as u64 >= MAX_QUEUED => Some(SendReason::QueueFull),
            (Some((_, config)), _) => refusal(config, node, buffer, size),
            (None, Some(end)) if self.is_root => Some(SendReason::Ended(end)),
            (None, _) => Some(SendReason::NotRoot),
        }
    }

    /// A view is installed: with the group of the one before it is over when all is done that was
    /// begun. In the new one this node is the root of this group, or not.
    pub(super) fn install(&mut self, group: Option<(u64, GroupConfig)>) {
        self.current.iter_mut().for_each(Current::end);
        self.is_root = group.is_some();
        self.groups.extend(group);
    }

    /// The settings of the group that is to be created now, and the number of its view.
    pub(super) fn next_group(&mut self) -> Option<(u64, GroupConfig)> {
        match self.current {
            Some(_) => None,
            None => self.groups.pop_front(),
        }
    }

    /// Messages that are, or were, in a group.
    pub(super) fn grouped(&self) -> u64 {
        self.next - 1 - self.waiting.len() as u64
    }

    /// The group was created: what has waited is sent, unless there is one behind it. If its view is
    /// not the last one, it is to end.
    pub(super) fn begin(&mut self, group: Group) {
        let mut current = Current {
            group,
            is_ending: false,
        };
        while self.groups.is_empty() {
            let Some((buffer, size)) = self.waiting.pop_front() else {
                break;
            };
            if let Err(refused) = current.group.send(buffer, size) {
                // It has ended, and the root is told that when it is over.
                self.waiting.push_front((refused.buffer, size));
                break;
            }
        }
        if !self.is_root || !self.groups.is_empty() {
            current.end();
        }
        self.current = Some(current);
    }

    /// The group is over, and so many messages are with all. Says whether they are all that there
    /// were; if not, answers with the memory of those that wait, which have to come behind.
    pub(super) fn is_over(&mut self, over: Over) -> (bool, Vec<Buffer>) {
        self.current = None;
        self.end = Some(over.end);
        let go_on = self.waiting.is_empty() || !self.groups.is_empty();
        if over.received == self.grouped() && go_on {
            return (true, Vec::new());
        }
        self.next = over.received + 1;
        let waiting = self.waiting.drain(..);
        (false, waiting.map(|(buffer, _)| buffer).collect())
    }
}
