// SPDX-License-Identifier: MIT OR Apache-2.0

//! A group, as the application holds it.

use super::config::GroupConfig;
use super::engine::{Command, GroupShared};
use super::error::{SendError, SendReason};
use super::event::{End, EndReason};
use super::memory::Buffer;
use super::node::Inner;
use super::Error;
use crate::deadline::end_of;
use crate::fabric::NodeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A group that this node is a member of. Dropping it leaves it at once;
/// [`Self::destroy`] sees to it first that what was begun is done.
pub struct Group {
    node: Arc<Inner>,
    shared: Arc<GroupShared>,
    config: GroupConfig,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("config", &self.config)
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

impl Group {
    pub(super) fn new(node: Arc<Inner>, shared: Arc<GroupShared>, config: GroupConfig) -> Self {
        Self {
            node,
            shared,
            config,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// The one that sends, by node.
    pub(super) fn root(&self) -> usize {
        self.config.members[0]
    }

    /// Whether this node is the one that sends.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.shared.index == 0
    }

    /// Why it has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.shared.end()
    }

    /// Messages that this node has done with: sent, or received and relayed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.shared.completed()
    }

    /// Sends the first `size` bytes of a buffer to all other members, behind all
    /// that was sent before; an idle group begins on the calling thread. The
    /// buffer comes back with [`Event::Sent`](super::Event::Sent), or with
    /// [`Event::Returned`](super::Event::Returned) if the group ends before, also if
    /// it is just over.
    ///
    /// # Errors
    ///
    /// [`SendError`], with the buffer.
    pub fn send(&self, buffer: Buffer, size: usize) -> Result<(), SendError> {
        if let Some(reason) = self.refusal(&buffer, size) {
            return Err(SendError { reason, buffer });
        }
        self.submit(buffer, size)
    }

    /// Hands over a message that was not refused. Meanwhile the group may have ended.
    pub(super) fn submit(&self, buffer: Buffer, size: usize) -> Result<(), SendError> {
        let sent = self.node.send(self.number(), buffer, size);
        sent.map_err(|buffer| {
            let end = self.end().unwrap_or(End {
                node: self.node.rank(),
                reason: EndReason::Deserted,
            });
            let reason = SendReason::Ended(end);
            SendError { reason, buffer }
        })
    }

    /// Why it cannot be sent, if so. Otherwise it counts among those that wait.
    pub(super) fn refusal(&self, buffer: &Buffer, size: usize) -> Option<SendReason> {
        if !self.is_root() {
            Some(SendReason::NotRoot)
        } else if let Some(end) = self.end() {
            Some(SendReason::Ended(end))
        } else if let Some(reason) = refusal(&self.config, &self.node, buffer, size) {
            Some(reason)
        } else if !self.shared.admit() {
            Some(SendReason::QueueFull)
        } else {
            None
        }
    }

    /// Waits until all that was sent so far is done, whatever other threads send
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Unfinished`] after the time; [`Error::Ended`];
    /// [`Error::InCallback`].
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let sent = self.shared.submitted();
        self.wait(timeout, || self.shared.completed() >= sent)
    }

    /// Leaves the group as soon as all that was begun is done: the others'
    /// groups end then, too. Returns when this node's has.
    ///
    /// # Errors
    ///
    /// [`Error::Unfinished`] after the time: the group has been left all the
    /// same; [`Error::Ended`] if it had ended in another way before;
    /// [`Error::InCallback`].
    pub fn destroy(self, timeout: Duration) -> Result<(), Error> {
        if self.node.is_poller() {
            return Err(Error::InCallback);
        }
        self.leave();
        let own = End {
            node: self.node.rank(),
            reason: EndReason::Left,
        };
        let left = || self.end() == Some(own);
        match self.wait(timeout, left) {
            Err(Error::Ended {
                end:
                    End {
                        reason: EndReason::Left,
                        ..
                    },
                ..
            }) if self.shared.outstanding() == 0 => Ok(()),
            outcome => outcome,
        }
    }

    /// Waits until all members have created it, or it is clear that they will not.
    pub(super) fn wait_joined(&self, end: Instant) -> Option<Result<(), Error>> {
        let joined = || self.shared.joined();
        self.shared
            .gate()
            .wait_until(Some(end), || joined().is_some());
        joined()
    }

    /// Members that have not created it.
    pub(super) fn missing(&self) -> NodeSet {
        self.shared.missing()
    }

    /// Whether all members have created it, so far as this one knows, and it has not ended.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn is_open(&self) -> bool {
        self.shared.joined() == Some(Ok(()))
    }

    /// Has it left as soon as all that was begun is done.
    pub(super) fn leave(&self) {
        // If nobody takes it, it has ended.
        let _ = self.node.command(Command::Leave(self.number()));
    }

    fn wait(&self, timeout: Duration, done: impl Fn() -> bool) -> Result<(), Error> {
        if self.node.is_poller() {
            return Err(Error::InCallback);
        }
        let group = self.number();
        let end = end_of(timeout);
        let gate = self.shared.gate();
        gate.wait_until(Some(end), || done() || self.end().is_some());
        match self.end() {
            _ if done() => Ok(()),
            Some(end) => Err(Error::Ended { group, end }),
            None => Err(Error::Unfinished {
                group,
                left: self.shared.outstanding(),
            }),
        }
    }
}

/// Why a message cannot be one of a group with these settings, if so.
pub(super) fn refusal(
    config: &GroupConfig,
    node: &Inner,
    buffer: &Buffer,
    size: usize,
) -> Option<SendReason> {
    if size == 0 {
        Some(SendReason::Empty)
    } else if size > buffer.len() {
        Some(SendReason::TooLong)
    } else if config.plan(size).is_none() {
        Some(SendReason::TooManyBlocks)
    } else if !buffer.is_of(&node.arena) {
        Some(SendReason::ForeignBuffer)
    } else {
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If nobody takes it, it has ended.
        let _ = self.node.command(Command::Abandon(self.number()));
    }
}
