// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Which operation gives the next chunk: flows take turns, and each keeps its order.

use super::parts::{Chunk, OpSlot, FRESH_CHUNK};
use super::Initiator;
use crate::dc::{before, BURST, MAX_ATOMICS, WINDOW};

impl Initiator {
    /// Cuts the next chunk off the next operation, if the window has room.
    pub(super) fn cut_chunk(&mut self) -> Option<u32> {
        if self.next.wrapping_sub(self.base) as usize >= WINDOW {
            return None;
        }
        let number = self.next_to_cut()?;
        let chunk_bytes = self.chunk_bytes;
        let is_atomic = self.op(number).op.kind.is_atomic();
        if is_atomic && self.atomics_in_window() >= MAX_ATOMICS {
            return None;
        }
        let slot = self.op_mut(number);
        let offset = slot.cut;
        let len = (slot.op.len - offset).min(chunk_bytes);
        slot.cut += len;
        slot.cut_all = slot.cut == slot.op.len;
        slot.open += 1;
        let psn = self.next;
        self.chunks[psn as usize % WINDOW] = Chunk {
            op: number,
            is_atomic,
            offset,
            len,
            ..FRESH_CHUNK
        };
        // INVARIANT: the window had room; the new chunk is not done.
        self.next = psn.wrapping_add(1);
        self.pass_cut();
        Some(psn)
    }

    /// Notes which operations are cut to their end.
    fn pass_cut(&mut self) {
        while self.cut_op != self.next_op && self.op(self.cut_op).cut_all {
            self.cut_op = self.cut_op.wrapping_add(1);
        }
    }

    /// The operation that gives the next chunk: that of before, unless it has had
    /// its turn and another flow waits. So a long operation holds up nobody.
    fn next_to_cut(&mut self) -> Option<u32> {
        self.pass_cut();
        if self.cut_op == self.next_op {
            return None;
        }
        let turn = self.turn;
        let is_there = !before(turn, self.cut_op) && before(turn, self.next_op);
        let goes_on = is_there && !self.op(turn).cut_all;
        if goes_on && self.burst < BURST {
            self.burst += 1;
            return Some(turn);
        }
        let after = if is_there {
            turn.wrapping_add(1)
        } else {
            self.cut_op
        };
        let found = self
            .first_in_turn(after, self.next_op)
            .or_else(|| self.first_in_turn(self.cut_op, after));
        // The operation of before is its flow's first, so that there is always one.
        self.turn = found?;
        self.burst = 1;
        found
    }

    /// The first operation of `from..to` that is not cut to its end, and the first
    /// such one of its flow.
    fn first_in_turn(&self, from: u32, to: u32) -> Option<u32> {
        let mut number = from;
        while number != to {
            let slot = self.op(number);
            let waits = |other: &OpSlot| other.op.flow == slot.op.flow && !other.cut_all;
            if !slot.cut_all && !self.any_before(number, self.cut_op, waits) {
                return Some(number);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// Chunks of atomic operations from the first one on that may still be repeated.
    fn atomics_in_window(&self) -> usize {
        let (mut psn, mut count) = (self.base, 0);
        while psn != self.next {
            count += usize::from(self.chunk(psn).is_atomic);
            psn = psn.wrapping_add(1);
        }
        count
    }
}
