// SPDX-License-Identifier: MIT OR Apache-2.0

//! Telling peers: the columns of the own row that have changed.

use super::super::rows::{AckRow, SubgroupRow};
use super::Member;
use crate::fabric::Write;
use crate::sst::Columns;

/// Columns that peers do not know yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Dirty {
    pub(super) sent: bool,
    pub(super) received: bool,
}

impl Member {
    pub(super) fn push_unless_coalescing(&mut self) {
        if !self.shared.spec.options.early_lock_release {
            self.push();
        }
    }

    /// Pushes what peers do not know of the own row: the columns between the
    /// first and the last that changed.
    pub(super) fn push(&mut self) -> bool {
        let delivered = self.table.own().delivered.get();
        let mut columns: Option<Columns<SubgroupRow>> = None;
        for (changed, column) in [
            (self.dirty.sent, SubgroupRow::sent()),
            (self.dirty.received, SubgroupRow::received()),
            (delivered != self.told_delivered, SubgroupRow::delivered()),
        ] {
            if changed {
                columns = Some(columns.map_or(column, |first| first.through(column)));
            }
        }
        self.dirty = Dirty::default();
        self.told_delivered = delivered;
        if let Some(columns) = columns {
            let write = self.table.write(columns);
            for peer in self.peers.iter() {
                self.post(peer, write);
            }
        }
        self.push_acks() || columns.is_some()
    }

    /// Tells each sender of an unordered subgroup, and only it, how much of it
    /// was delivered here.
    pub(super) fn push_acks(&mut self) -> bool {
        let Some(acks) = &self.acks else {
            return false;
        };
        let own = &acks.own().acks;
        let mut changed = Vec::new();
        for (index, told) in self.told_acks.iter_mut().enumerate() {
            let ack = own[index].get();
            if ack != *told {
                *told = ack;
                let write = acks.write(AckRow::acks().word(index));
                changed.push((self.senders[index].node, write));
            }
        }
        for &(node, write) in &changed {
            if self.peers.contains(node) {
                self.post(node, write);
            }
        }
        !changed.is_empty()
    }

    pub(super) fn post(&mut self, peer: usize, write: Write) {
        // Who is down is noticed by `Watcher`, not here.
        if self.shared.endpoint.post(peer, &[write]).is_ok() {
            self.shared.counts.posts.add(1);
        }
        self.rung = self.rung.with(peer);
    }
}
