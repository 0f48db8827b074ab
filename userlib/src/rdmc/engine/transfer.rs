// SPDX-License-Identifier: MIT OR Apache-2.0

//! One message at one member: which blocks are here, which come next from whom,
//! and which goes next to whom.

use super::super::config::Plan;
use super::super::memory::Buffer;
use super::super::schedule::{Schedule, Transfer as Block};
use crate::fabric::Write;
use std::collections::VecDeque;

/// What comes from one member, as indices of blocks.
#[derive(Debug)]
pub(super) struct Source {
    /// Its index among the members.
    pub(super) from: usize,
    left: VecDeque<usize>,
}

impl Source {
    /// Whether blocks are still to come from it.
    pub(super) fn has_more(&self) -> bool {
        !self.left.is_empty()
    }
}

/// A message on its way through this member.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Its number in the group, from 1.
    pub(super) number: u64,
    pub(super) size: usize,
    pub(super) buffer: Buffer,
    pub(super) plan: Plan,
    schedule: Schedule,
    /// A bit for each block that is here.
    here: Vec<u64>,
    /// Blocks that are still to come.
    missing: usize,
    pub(super) sources: Vec<Source>,
    /// The step of the next send, and the send.
    step: usize,
    next: Option<Block>,
    /// Members, by index, that were given blocks.
    pub(super) targets: Vec<usize>,
}

impl Transfer {
    /// Message `number` at the member whose part this is. The root has all blocks.
    pub(super) fn new(
        schedule: Schedule,
        plan: Plan,
        number: u64,
        size: usize,
        buffer: Buffer,
    ) -> Self {
        let mut sources: Vec<Source> = Vec::new();
        let mut missing = 0;
        for (_, Block { peer, block }) in schedule.receives() {
            missing += 1;
            match sources.iter_mut().find(|source| source.from == peer) {
                Some(source) => source.left.push_back(block),
                None => sources.push(Source {
                    from: peer,
                    left: VecDeque::from([block]),
                }),
            }
        }
        let all_here = if missing == 0 { u64::MAX } else { 0 };
        let mut transfer = Self {
            number,
            size,
            buffer,
            plan,
            schedule,
            here: vec![all_here; plan.blocks.div_ceil(64)],
            missing,
            sources,
            step: 0,
            next: None,
            targets: Vec::new(),
        };
        transfer.find_send();
        transfer
    }

    /// What is to be sent next, if that block is here.
    pub(super) fn next_send(&self) -> Option<Block> {
        self.next.filter(|next| self.has(next.block))
    }

    /// Whether all has been sent.
    pub(super) fn has_sent(&self) -> bool {
        self.next.is_none()
    }

    /// Whether all blocks are here.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// The next send was done.
    pub(super) fn sent(&mut self) {
        if let Some(block) = self.next {
            if !self.targets.contains(&block.peer) {
                self.targets.push(block.peer);
            }
        }
        self.step += 1;
        self.find_send();
    }

    fn find_send(&mut self) {
        let steps = self.schedule.steps();
        self.next = None;
        while self.next.is_none() && self.step < steps {
            self.next = self.schedule.send(self.step);
            if self.next.is_none() {
                self.step += 1;
            }
        }
    }

    /// Blocks, up to `most`, have come from a source; answers how many of them
    /// were expected.
    pub(super) fn take(&mut self, source: usize, most: u64) -> u64 {
        let left = &mut self.sources[source].left;
        let count = left.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        for block in left.drain(..count) {
            self.here[block / 64] |= 1 << (block % 64);
        }
        self.missing -= count;
        count as u64
    }

    /// The first block from a source, which is the first of all.
    pub(super) fn first_from(&self, from: usize) -> Option<(usize, usize)> {
        let sources = self.sources.iter().enumerate();
        let (at, source) = sources.filter(|(_, source)| source.from == from).last()?;
        Some((at, *source.left.front()?))
    }

    fn has(&self, block: usize) -> bool {
        self.here[block / 64] & (1 << (block % 64)) != 0
    }

    /// A block in the own region, to go to the same block of a message at
    /// `place` in another one's.
    pub(super) fn write(&self, block: usize, place: usize) -> Write {
        let start = block * self.plan.block_bytes;
        Write {
            local: self.buffer.offset() + start,
            remote: place + start,
            len: self.plan.block_bytes.min(self.size - start),
        }
    }

    /// Copies a block, from where it arrived, into the message.
    ///
    /// # Safety
    ///
    /// `from` is as long as the block, and nobody writes it meanwhile.
    pub(super) unsafe fn copy_in(&mut self, block: usize, from: std::ptr::NonNull<u8>) {
        let start = block * self.plan.block_bytes;
        let len = self.plan.block_bytes.min(self.size - start);
        let to = &mut self.buffer[start..start + len];
        // SAFETY: the caller's promise; the buffer is this transfer's.
        unsafe { from.copy_to_nonoverlapping(std::ptr::NonNull::from(to).cast(), len) };
    }
}
