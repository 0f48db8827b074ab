// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's part in one multicast, as far as it has come.
//!
//! A member sends in the order of its steps, one block at a time, each when it
//! has the block and the target has said `ready_for_block` for it; a target that
//! is late holds up the sends behind (rdmc §5.2.1, figure 5). Receives are posted
//! in the order of the receiver's steps, a few at a time (rdmc §4.2), whoever
//! they are from, and posting one says `ready_for_block` to its sender. Steps
//! have no other meaning: a member runs ahead of others as far as receives are
//! posted for it (rdmc App. A, item 2).
//!
//! Nobody waits for ever. Of all transfers that are not done, take one of the
//! lowest step: its sender and its receiver have done all that comes before it.

use std::iter::Peekable;

use weft::rdmc::schedule::{Schedule, Transfer};

use super::network::Ns;

type Transfers<'a> = Box<dyn Iterator<Item = (usize, Transfer)> + 'a>;

/// A member of one multicast.
pub struct Member<'a> {
    sends: Peekable<Transfers<'a>>,
    receives: Transfers<'a>,
    /// Which blocks it has; empty at the root, which has all.
    has: Vec<bool>,
    missing: usize,
    posted: Vec<Posted>,
    /// A block is on its way out.
    sending: bool,
    has_sent: bool,
    stalls: Stalls,
}

/// A receive that is posted.
struct Posted {
    transfer: Transfer,
    /// When the sender knows.
    ready_ns: Ns,
}

/// What keeps a member from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It does not have the block.
    Block,
    /// The target is not ready for it.
    Target,
}

/// For how long a member could not send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Waiting for a block, since it had its first.
    pub block_ns: Ns,
    /// Waiting for a target.
    pub target_ns: Ns,
    /// What it waits for, and since when.
    current: Option<(Stall, Ns)>,
}

impl<'a> Member<'a> {
    /// A member that has nothing, or everything if it is the root.
    pub fn new(part: &'a Schedule, rank: usize, blocks: usize) -> Self {
        let sends: Transfers<'a> = Box::new(part.sends());
        let missing = if rank == 0 { 0 } else { blocks };
        Self {
            sends: sends.peekable(),
            receives: Box::new(part.receives()),
            has: vec![false; missing],
            missing,
            posted: Vec::new(),
            sending: false,
            has_sent: false,
            stalls: Stalls::default(),
        }
    }

    /// The block that is to be sent, or is being sent.
    pub fn current(&mut self) -> Option<Transfer> {
        self.sends.peek().map(|&(_, transfer)| transfer)
    }

    pub fn is_sending(&self) -> bool {
        self.sending
    }

    pub fn has(&self, block: usize) -> bool {
        self.has.get(block).is_none_or(|&has| has)
    }

    /// Whether the sender knows that a receive is posted for its block.
    pub fn is_ready_for(&self, sender: usize, block: usize, now: Ns) -> bool {
        let wanted = Transfer {
            peer: sender,
            block,
        };
        let posted = self.posted.iter();
        let mut ready = posted.filter(|posted| posted.ready_ns <= now);
        ready.any(|posted| posted.transfer == wanted)
    }

    /// Posts the next receive, if any is left and no more than `most` are
    /// posted with it: whom to tell.
    pub fn post_receive(&mut self, most: usize, ready_ns: Ns) -> Option<usize> {
        // How long the message is, is known with its first block; until then
        // there is a receive for that one alone (rdmc §4.2).
        let most = if self.has_none() { 1 } else { most };
        if self.posted.len() >= most {
            return None;
        }
        let (_, transfer) = self.receives.next()?;
        self.posted.push(Posted { transfer, ready_ns });
        Some(transfer.peer)
    }

    /// A block has come: whether it was the last one.
    pub fn receive(&mut self, block: usize) -> bool {
        self.posted.retain(|posted| posted.transfer.block != block);
        self.has[block] = true;
        self.missing -= 1;
        self.missing == 0
    }

    pub fn begin_send(&mut self) {
        self.sending = true;
        self.has_sent = true;
    }

    pub fn end_send(&mut self) {
        self.sending = false;
        self.sends.next();
    }

    /// From now on it cannot send, or can.
    pub fn stall(&mut self, stall: Option<Stall>, now: Ns) {
        // Who has nothing yet is not held up by anything.
        let stall = stall.filter(|_| !self.has_none());
        self.stalls.set(stall, now);
    }

    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    pub fn stalls(&self) -> Stalls {
        self.stalls
    }

    fn has_none(&self) -> bool {
        self.missing > 0 && self.missing == self.has.len()
    }
}

impl Stalls {
    fn set(&mut self, stall: Option<Stall>, now: Ns) {
        match self.current {
            Some((Stall::Block, since)) => self.block_ns += now - since,
            Some((Stall::Target, since)) => self.target_ns += now - since,
            None => {}
        }
        self.current = stall.map(|stall| (stall, now));
    }

    /// Adds another member's.
    pub fn add(&mut self, other: Self) {
        self.block_ns += other.block_ns;
        self.target_ns += other.target_ns;
    }

    /// The mean, if this is the sum of so many.
    pub fn mean(self, count: u64) -> Self {
        Self {
            block_ns: self.block_ns / count.max(1),
            target_ns: self.target_ns / count.max(1),
            current: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::rdmc::schedule::Algorithm;

    fn part(rank: usize) -> Schedule {
        Schedule::new(Algorithm::Chain, rank, 3, 4).expect("within limits")
    }

    #[test]
    fn one_receive_is_posted_until_the_length_is_known_and_then_a_few() {
        let part = part(1);
        let mut member = Member::new(&part, 1, 4);
        assert_eq!(member.post_receive(3, 0), Some(0));
        assert_eq!(member.post_receive(3, 0), None);

        assert!(!member.receive(0));
        let posted = (0..4).filter(|_| member.post_receive(3, 7).is_some());
        assert_eq!(posted.count(), 3);
        assert!(
            !member.is_ready_for(0, 1, 6),
            "the sender does not know yet"
        );
        assert!(member.is_ready_for(0, 1, 7));
        assert!(!member.is_ready_for(2, 1, 7), "it is another's block");

        assert!(!member.receive(1) && !member.receive(2));
        assert!(member.receive(3), "that was the last one");
    }

    #[test]
    fn stalls_count_from_the_first_block() {
        let part = part(1);
        let mut member = Member::new(&part, 1, 4);
        member.stall(Some(Stall::Block), 10);
        member.receive(0);
        member.stall(Some(Stall::Target), 20);
        member.stall(None, 25);
        member.stall(Some(Stall::Block), 40);
        member.stall(None, 42);
        let stalls = member.stalls();
        assert_eq!((stalls.block_ns, stalls.target_ns), (2, 5));
    }
}
