// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who looks at what the fabric touches: whether memory is read or written by peers while
//! its owner thinks that nobody does.

use super::link::Arrival;
use super::Sim;
use crate::fabric::Region;
use std::fmt;

/// A part of a write reads its source, or arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Whose region it is.
    pub node: usize,
    /// Who has posted the write.
    pub writer: usize,
    /// Offset in the region.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

type Look = Box<dyn FnMut(Touch) + Send>;

/// Whom to show each touch, if anybody wants to see them.
#[derive(Default)]
pub(super) struct Watcher(Option<Look>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.is_some()).finish()
    }
}

impl Watcher {
    /// With the region that `from` has: who had its seat before may have posted it.
    pub(super) fn sees(
        &mut self,
        (from, region): (usize, Option<&Region>),
        to: usize,
        arrival: &Arrival<'_>,
    ) {
        let Some(look) = &mut self.0 else {
            return;
        };
        let Arrival { write, part, reads } = arrival;
        let touch = |node, start| Touch {
            node,
            writer: from,
            offset: start + part.start,
            len: part.len(),
        };
        look(touch(to, write.remote));
        let is_own = |source: &&Region| region.is_some_and(|own| own.addr() == source.addr());
        if reads.is_some_and(|source| is_own(&source)) {
            look(touch(from, write.local));
        }
    }
}

impl Sim {
    /// Shows each touch to `look`, before it happens. It must not call the simulation.
    pub fn watch(&self, look: impl FnMut(Touch) + Send + 'static) {
        self.world.lock().watcher.0 = Some(Box::new(look));
    }
}
