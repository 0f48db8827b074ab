// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether a round could find something to do: all that it goes by is what
//! others have written, who is down, cut off or calls, and the node's own memory. If a round has
//! found nothing and none of that has changed, the next one would not either.
//!
//! So a thread that waits looks at a few words, and does not hold the engine
//! while others take the processor from it.

use super::{Engine, Node};
use crate::fabric::NodeSet;
use std::sync::atomic::Ordering;

/// What a round that found nothing went by.
pub(super) struct Glance {
    node: Node,
    /// There was such a round.
    is_kept: bool,
    /// The last one found nothing, so that this one may be it.
    is_quiet: bool,
    down: NodeSet,
    severed: NodeSet,
    callers: NodeSet,
    /// Changes of the memory for messages.
    changes: u64,
    /// What others had written, by its place in the region.
    heard: Vec<(usize, u64)>,
}

impl Glance {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            is_kept: false,
            is_quiet: false,
            down: NodeSet::EMPTY,
            severed: NodeSet::EMPTY,
            callers: NodeSet::EMPTY,
            changes: 0,
            heard: Vec::new(),
        }
    }

    /// Whether all is as it was in a round that found nothing.
    pub(super) fn sees_nothing_new(&self) -> bool {
        let region = self.node.endpoint.region();
        self.is_kept
            && self.down == self.node.endpoint.down()
            && self.severed == self.node.endpoint.severed()
            && self.callers == self.node.endpoint.callers()
            && self.changes == self.node.arena.changes()
            && self.heard.iter().all(|&(place, value)| {
                let word = region.word(place);
                word.is_ok_and(|word| word.load(Ordering::Acquire) == value)
            })
    }

    /// Notes what a round is about to go by. Not in rounds among others that find
    /// something, which have no use for it.
    pub(super) fn look(&mut self, engine: &Engine) {
        if !self.is_quiet {
            return;
        }
        self.down = self.node.endpoint.down();
        self.severed = self.node.endpoint.severed();
        self.callers = self.node.endpoint.callers();
        self.changes = self.node.arena.changes();
        self.heard.clear();
        let region = self.node.endpoint.region();
        engine.listens_to(|place| {
            // A place that is not there never looks the same.
            let word = region.word(place);
            let value = word.map_or(0, |word| word.load(Ordering::Acquire));
            self.heard.push((place, value));
        });
    }

    /// The round is over, and has found nothing, or something.
    pub(super) fn keep(&mut self, found_nothing: bool) {
        self.is_kept = self.is_quiet && found_nothing;
        self.is_quiet = found_nothing;
    }
}
