// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A peer that is to get an RC queue pair: when to offer one, how long to wait for the
//! answer, when to try again, and when to stop.
//!
//! Each wanted peer is a state machine of its own, without clock or I/O, so that one
//! that does not answer delays no other.

mod room;

use super::handshake::{Hello, Role};
use super::links::{Lane, Seen};
use crate::gid::Gid;

pub use room::{makes_room, passes_to};

/// How long a peer may take to answer an offer: a message each way, and the making of
/// a queue pair in between.
const ANSWER_NS: u64 = 2_000_000_000;
/// The pause after the first failure. It doubles with each further one, and up to a
/// quarter of it is taken off at random, so that peers that fail together do not try
/// again together.
const FIRST_RETRY_NS: u64 = 500_000_000;
/// The longest pause between two offers: how late a peer that comes back is found.
const MAX_RETRY_NS: u64 = 8_000_000_000;
/// How often it is looked whether a queue pair that the peer has offered is up.
const LOOK_NS: u64 = 50_000_000;
/// A peer that nobody pinned is no longer wanted if it was not used for so long.
const IDLE_NS: u64 = 30_000_000_000;
/// A peer that nobody pinned is no longer wanted if no queue pair came up for so long.
/// Its next use wants it anew.
const UNREACHABLE_NS: u64 = 60_000_000_000;

/// What is to be done for a wanted peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then, or until something happens if there is no time.
    Wait(Option<u64>),
    /// Let go of what the peer has offered ([`super::half_open`]), so that no two come up of which
    /// each end would use another. Then make an offer, and report it with [`Want::offered`] or
    /// [`Want::failed`].
    Offer,
    /// Connect with this answer, and report with [`Want::connected`] or
    /// [`Want::failed`].
    Finish(Hello),
    /// The peer is no longer wanted.
    Forget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No offer is out; the next one may go from then on.
    Resting { until_ns: u64 },
    /// An offer is being made.
    Offering,
    /// An offer is out.
    Offered { token: u64, until_ns: u64 },
    /// It was answered.
    Answered(Hello),
    /// The answer is being taken.
    Finishing,
}

/// On whose behalf a peer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedBy {
    /// An administrator has pinned it: it stays wanted however little it is used.
    Pin,
    /// The pool has found that it is used much: it stays wanted until the pool says otherwise.
    Pool,
    /// This user uses it.
    User(u32),
    /// A processor of this host has requests for a peer that has a queue pair. It is wanted
    /// until it is up, for `UNREACHABLE_NS` at most, and makes room for any other want.
    Processor,
}

/// A wanted peer.
pub struct Want {
    lane: Lane,
    by: WantedBy,
    used_ns: u64,
    state: State,
    /// Offers since the last queue pair was up that came to nothing.
    failures: u32,
    /// There was a queue pair when it was last looked at.
    is_up: bool,
    /// Since when there has been no queue pair; while there is one, when that was last
    /// seen.
    missing_since_ns: u64,
}

impl Want {
    /// A queue pair that is wanted from now on.
    #[must_use]
    pub fn new(lane: Lane, by: WantedBy, now_ns: u64) -> Self {
        Self {
            lane,
            by,
            used_ns: now_ns,
            state: State::Resting { until_ns: now_ns },
            failures: 0,
            is_up: false,
            missing_since_ns: now_ns,
        }
    }

    /// The queue pair.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// On whose behalf it is wanted.
    #[must_use]
    pub fn by(&self) -> WantedBy {
        self.by
    }

    /// It is wanted on another's behalf from now on.
    pub fn pass_to(&mut self, by: WantedBy) {
        self.by = by;
    }

    /// The peer is in use.
    pub fn used(&mut self, now_ns: u64) {
        self.used_ns = self.used_ns.max(now_ns);
    }

    /// Whether an offer is out or under way.
    #[must_use]
    pub fn has_offer(&self) -> bool {
        !matches!(self.state, State::Resting { .. })
    }

    /// Whether the offer of this node, whose GID is `own`, counts, and the peer's does not: of two
    /// that cross, that of the lower GID.
    #[must_use]
    pub fn prevails(&self, own: &Gid) -> bool {
        self.has_offer() && own.0 < self.lane.gid.0
    }

    /// How long there has been no queue pair. `None`: there is one, or the peer has
    /// answered.
    fn missing_ns(&self, now_ns: u64) -> Option<u64> {
        let has_answer = matches!(self.state, State::Answered(_) | State::Finishing);
        let is_missing = !self.is_up && !has_answer;
        is_missing.then(|| now_ns.saturating_sub(self.missing_since_ns))
    }

    /// Answers with the next thing to do.
    pub fn step(&mut self, seen: Seen, now_ns: u64, random: u32) -> Step {
        let is_connected = seen.is_connected;
        if is_connected || self.is_up || seen.is_closing {
            self.missing_since_ns = now_ns;
        }
        self.is_up = is_connected;
        if is_connected {
            self.failures = 0;
            if self.has_offer() {
                self.connected(now_ns);
            }
        }
        let leaves_ns = self.leaves_ns();
        if leaves_ns.is_some_and(|leaves_ns| leaves_ns <= now_ns) {
            return Step::Forget;
        }
        if is_connected {
            return Step::Wait(leaves_ns);
        }
        match self.state {
            State::Resting { until_ns } if until_ns <= now_ns => {
                if self.yields(seen, until_ns, now_ns) {
                    return Step::Wait(Some(now_ns.saturating_add(LOOK_NS)));
                }
                self.state = State::Offering;
                return Step::Offer;
            }
            State::Answered(answer) => {
                self.state = State::Finishing;
                return Step::Finish(answer);
            }
            State::Offered { until_ns, .. } if until_ns <= now_ns => self.failed(now_ns, random),
            _ => {}
        }
        match self.state {
            State::Resting { until_ns } | State::Offered { until_ns, .. } => {
                Step::Wait(Some(until_ns))
            }
            _ => Step::Wait(None),
        }
    }

    /// Whether this end makes no offer now, though one may go from `until_ns` on. While a queue
    /// pair is being closed, the peer would end it at once for a new one, with all requests on it.
    /// And the peer's offer is waited for: not for long once it was answered, because whoever
    /// forges offers would keep this end from its own.
    fn yields(&self, seen: Seen, until_ns: u64, now_ns: u64) -> bool {
        let due_ns = until_ns.max(self.missing_since_ns);
        let is_soon = now_ns < due_ns.saturating_add(ANSWER_NS);
        seen.is_closing || seen.is_being_answered || seen.is_offered && is_soon
    }

    /// When it stops being wanted, if nothing happens.
    fn leaves_ns(&self) -> Option<u64> {
        let idle_ns = self.used_ns.saturating_add(IDLE_NS);
        let unreachable_ns = self.missing_since_ns.saturating_add(UNREACHABLE_NS);
        match self.by {
            WantedBy::Pin | WantedBy::Pool => None,
            WantedBy::User(_) => Some(idle_ns.min(unreachable_ns)),
            WantedBy::Processor if self.is_up => Some(0),
            WantedBy::Processor => Some(unreachable_ns),
        }
    }

    /// An offer with this token has gone out.
    pub fn offered(&mut self, token: u64, now_ns: u64) {
        let until_ns = now_ns.saturating_add(ANSWER_NS);
        self.state = State::Offered { token, until_ns };
    }

    /// Takes an answer that came from the address of `from`. `false`: it answers no
    /// offer to that peer.
    pub fn answered(&mut self, from: &Gid, answer: &Hello) -> bool {
        let State::Offered { token, .. } = self.state else {
            return false;
        };
        let is_ours = answer.role == Role::Answer && answer.token == token;
        if !is_ours || answer.lane_to_sender() != self.lane || *from != self.lane.gid {
            return false;
        }
        self.state = State::Answered(*answer);
        true
    }

    /// The queue pair is up. If it breaks at once, the next offer still takes a pause.
    pub fn connected(&mut self, now_ns: u64) {
        self.failures = 0;
        self.is_up = true;
        self.missing_since_ns = now_ns;
        self.state = State::Resting {
            until_ns: now_ns.saturating_add(FIRST_RETRY_NS),
        };
    }

    /// An offer came to nothing: the next one takes a pause.
    pub fn failed(&mut self, now_ns: u64, random: u32) {
        let longer = FIRST_RETRY_NS << self.failures.min(MAX_RETRY_NS.ilog2());
        let pause_ns = longer.min(MAX_RETRY_NS);
        let taken_off_ns = u64::from(random) % (pause_ns / 4);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Resting {
            until_ns: now_ns.saturating_add(pause_ns - taken_off_ns),
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
