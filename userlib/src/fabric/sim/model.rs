// SPDX-License-Identifier: MIT OR Apache-2.0

//! For models that are enumerated: nothing is left to chance, and states can be compared.

use super::Sim;
use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;

impl Sim {
    /// Nothing arrives but by [`Self::arrive`].
    pub(crate) fn be_still(&self) {
        self.world.lock().restless = false;
    }

    /// Lets the next write from one node to another arrive.
    pub(crate) fn arrive(&self, from: usize, to: usize) {
        let mut state = self.world.lock();
        let at = from * state.nodes.len() + to;
        if let Some(target) = state.nodes[to].region.clone() {
            state.links[at].arrive_first(&target);
        }
    }

    /// Loses what is under way from one node to another.
    pub(crate) fn lose_all(&self, from: usize, to: usize) {
        self.world.lock().lose_all(from, to);
    }

    /// Writes that a node has posted.
    pub(crate) fn posted_by(&self, node: usize) -> u64 {
        self.world.lock().nodes[node].posted
    }

    /// All memory, and all that is under way.
    pub(crate) fn fingerprint(&self, hasher: &mut impl Hasher) {
        let state = self.world.lock();
        for node in &state.nodes {
            let region = node.region.as_ref();
            for at in (0..region.map_or(0, |region| region.len() / 8)).map(|word| word * 8) {
                let word = region.and_then(|region| region.word(at).ok());
                word.map_or(0, |word| word.load(Ordering::Relaxed))
                    .hash(hasher);
            }
            let knows = node.takes_down();
            (node.crashed, node.posts_left, knows, &node.seat).hash(hasher);
        }
        state.links.hash(hasher);
    }
}
