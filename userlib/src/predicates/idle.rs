// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a thread does that finds nothing: spin, then yield, then sleep.
//!
//! Spinning is for the peer that answers within a microsecond, on its own
//! core. Where there are more threads than cores, the thread waited for may be
//! the one that does not run: so spinning ends soon and the processor is
//! yielded, which costs a few hundred nanoseconds where nobody else wants it
//! and is the only way forward where somebody does. After the quiescence time
//! the thread sleeps and uses nothing.

use std::time::{Duration, Instant};

/// How long to wait in which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Rounds without work to spin for.
    pub spins: u32,
    /// Time without work after which to sleep.
    pub quiesce_after: Duration,
    /// A yield that took so long says that others want the processor: then
    /// sleep at once. The scheduler runs a thread that is woken before one
    /// that only yielded.
    pub contended_after: Duration,
    /// Longest sleep; none: until somebody rings.
    pub longest_sleep: Option<Duration>,
}

impl Default for IdlePolicy {
    /// Little spinning, for machines with fewer cores than members, and the paper's
    /// millisecond.
    fn default() -> Self {
        Self {
            spins: 50,
            quiesce_after: Duration::from_millis(1),
            contended_after: Duration::from_micros(20),
            longest_sleep: None,
        }
    }
}

/// One thread's idle time.
#[derive(Debug)]
pub struct Idle {
    policy: IdlePolicy,
    rounds: u32,
    since: Option<Instant>,
}

impl Idle {
    /// Not idle yet.
    #[must_use]
    pub fn new(policy: IdlePolicy) -> Self {
        Self {
            policy,
            rounds: 0,
            since: None,
        }
    }

    /// There was work.
    pub fn reset(&mut self) {
        self.rounds = 0;
        self.since = None;
    }

    /// There was none: waits a moment, or answers that it is time to sleep.
    #[must_use = "false says that it is time to sleep"]
    pub fn pause(&mut self) -> bool {
        if self.rounds < self.policy.spins {
            self.rounds += 1;
            std::hint::spin_loop();
            return true;
        }
        // The clock is read only where time passes anyway.
        let before = Instant::now();
        let since = *self.since.get_or_insert(before);
        std::thread::yield_now();
        let after = Instant::now();
        after - before < self.policy.contended_after && after - since < self.policy.quiesce_after
    }
}
