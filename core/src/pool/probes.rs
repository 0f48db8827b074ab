// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Round trips by DC to a peer whose requests take RC: they show when DC gets better.

/// Round trips of which the shortest is what later ones are compared with: one alone may have
/// met anything.
const FIRST: u32 = 10;
/// Round trips in a row that take half of what they took before, until DC is better; and how
/// many have to be known before.
const IN_A_ROW: u32 = 3;

/// Compares round trips with those that the node measured when it chose RC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probes {
    /// The shortest of the first ones.
    shortest_ns: u64,
    /// How many of the first ones were seen.
    seen: u32,
    /// Those in a row that took half of it, and the longest of them.
    better: u32,
    better_ns: u64,
}

impl Probes {
    /// None was seen.
    pub(super) const NEW: Self = Self {
        shortest_ns: u64::MAX,
        seen: 0,
        better: 0,
        better_ns: 0,
    };

    /// A round trip took so long.
    pub(super) fn see(&mut self, took_ns: u64) {
        // DC may get better while the first ones are being seen, too.
        if self.seen >= IN_A_ROW && took_ns <= self.shortest_ns / 2 {
            self.better = self.better.saturating_add(1);
            self.better_ns = self.better_ns.max(took_ns);
            return;
        }
        let shortest_ns = match self.better {
            0 => took_ns,
            _ => took_ns.min(self.better_ns),
        };
        (self.better, self.better_ns) = (0, 0);
        if self.seen < FIRST {
            self.seen += 1;
            self.shortest_ns = self.shortest_ns.min(shortest_ns);
        }
    }

    /// Whether DC takes half of what it took.
    pub(super) fn are_better(&self) -> bool {
        self.better >= IN_A_ROW
    }

    /// DC was tried, and RC is still the better one. What was seen before still counts: DC may
    /// get better before ten more are seen.
    pub(super) fn after_trial(self) -> Self {
        if !self.are_better() {
            return Self {
                better: 0,
                better_ns: 0,
                ..self
            };
        }
        // It did get better, only not enough: from now on that counts.
        Self {
            shortest_ns: self.better_ns,
            seen: FIRST,
            ..Self::NEW
        }
    }
}
