// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members that hang, or whose host does: each one's polling thread counts, and a member whose
//! count stands still for too long is suspected.
//!
//! A member that did not look for a while, because it was stopped itself, or its machine, knows
//! nothing of the others' counts: it gives all another term.

use super::rows::SeatRow;
use super::Views;
use crate::fabric::{NodeSet, MAX_NODES};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How long a member may be allowed to hang.
pub(in super::super) const TERMS: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
/// Counts in a term.
const BEATS: u32 = 4;

/// Longest sleep of the polling thread of a member that counts.
pub(in super::super) fn longest_sleep(term: Duration) -> Duration {
    term / BEATS / 2
}

/// When who has counted last.
#[derive(Debug)]
pub(super) struct Pulse {
    /// How long a count may stand still.
    term: Duration,
    /// When this member has counted last, and looked last.
    beat: Instant,
    looked: Instant,
    /// The count of each member of the view, and when it was new.
    heard: Box<[(u64, Instant); MAX_NODES]>,
}

impl Pulse {
    pub(super) fn new(term: Duration) -> Self {
        let now = Instant::now();
        Self {
            term,
            beat: now,
            looked: now,
            heard: Box::new([(0, now); MAX_NODES]),
        }
    }

    /// All members have a whole term from now on.
    fn begin_anew(&mut self, now: Instant) {
        self.heard.iter_mut().for_each(|heard| heard.1 = now);
    }

    /// Whether this member has to count.
    fn beats(&mut self, now: Instant) -> bool {
        let is_due = now - self.beat >= self.term / BEATS;
        if is_due {
            self.beat = now;
        }
        is_due
    }

    /// Notes the count of a member, and says whether it stands still for too long.
    fn is_still(&mut self, member: usize, count: u64, now: Instant) -> bool {
        let heard = &mut self.heard[member];
        if heard.0 != count {
            *heard = (count, now);
        }
        now - heard.1 > self.term
    }

    /// Notes that this member looks, and says whether it did so in time.
    fn looks_in_time(&mut self, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.looked, now);
        now - before <= self.term / 2
    }
}

impl Views {
    /// Counts, and looks at what the others have counted.
    pub(super) fn keep_pulse(&mut self) {
        let pulse = self.pulse.as_mut();
        if pulse.is_some_and(|pulse| pulse.beats(Instant::now())) {
            self.tell_pulse();
        }
        for peer in self.still_among(self.trusted_peers()).iter() {
            tracing::warn!(peer, "has not counted for too long");
            self.status.suspect(peer);
        }
    }

    /// Finds the members whose counts stand still for too long, if that is looked at.
    pub(super) fn still_among(&mut self, members: NodeSet) -> NodeSet {
        let Some(pulse) = &mut self.pulse else {
            return NodeSet::EMPTY;
        };
        let now = Instant::now();
        if !pulse.looks_in_time(now) {
            pulse.begin_anew(now);
        }
        let is_still = |&member: &usize| {
            let count = self.seats.row(member).pulse.get();
            pulse.is_still(member, count, now)
        };
        members.iter().filter(is_still).collect()
    }

    /// Nobody is rung for it: who sleeps looks by itself.
    fn tell_pulse(&mut self) {
        let count = self.seats.own().pulse.get() + 1;
        self.seats.own().pulse.store(count);
        let write = self.seats.write(SeatRow::pulse());
        let others = self.view.members.minus(NodeSet::EMPTY.with(self.rank));
        for peer in others.iter() {
            // Who is down is noticed by `Endpoint::down`, not here.
            let _ = self.endpoint.post(peer, &[write]);
        }
    }

    /// A view begins: its members, of whom one may be new, have a whole term.
    pub(super) fn renew_pulse(&mut self) {
        if let Some(pulse) = &mut self.pulse {
            pulse.begin_anew(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(loom))]
    use crate::{fabric::shm::Shm, multicast::Group, multicast::Subgroup};

    const TERM: Duration = Duration::from_secs(4);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn who_counts_is_alive_and_who_stands_still_for_a_term_is_not() {
        let mut pulse = Pulse::new(TERM);
        let start = pulse.looked;
        assert!(!pulse.is_still(1, 1, at(start, 3)));
        assert!(!pulse.is_still(1, 1, at(start, 7)));
        assert!(pulse.is_still(1, 1, at(start, 8)));
        assert!(!pulse.is_still(1, 2, at(start, 8)));
        // One that has never counted.
        assert!(pulse.is_still(2, 0, at(start, 5)));
    }

    #[test]
    fn who_did_not_look_itself_gives_all_another_term() {
        let mut pulse = Pulse::new(TERM);
        let start = pulse.looked;
        assert!(pulse.looks_in_time(at(start, 2)));
        assert!(!pulse.looks_in_time(at(start, 9)));
        pulse.begin_anew(at(start, 9));
        assert!(!pulse.is_still(1, 0, at(start, 12)));
        assert!(pulse.is_still(1, 0, at(start, 14)));
    }

    /// Three members that are stepped, and suspect one that hangs for so long.
    #[cfg(not(loom))]
    fn three(term: Duration) -> Vec<Group> {
        let join = |node| {
            let mut builder = Group::builder(node);
            let handle = builder.subgroup(Subgroup::new("test").window(4).max_message(8));
            let builder = builder.deliver(handle, |batch| batch.for_each(drop));
            builder.suspect_after(term).join_stepped()
        };
        let nodes = Shm::threads(3).expect("a fabric");
        std::thread::scope(|scope| {
            let joining = nodes
                .into_iter()
                .map(|node| scope.spawn(move || join(node)));
            let joining: Vec<_> = joining.collect();
            let joined = joining.into_iter().map(|thread| thread.join());
            let groups = joined.map(|group| group.expect("no panic").expect("they meet"));
            groups.collect()
        })
    }

    /// At whatever moment of the leave one of the others begins to hang.
    #[test]
    #[cfg(not(loom))]
    fn who_leaves_does_not_wait_for_one_that_hangs() {
        for steps in 0..30 {
            let groups = three(Duration::from_millis(20));
            for _ in 0..100 {
                for group in &groups {
                    group.step();
                }
            }
            groups[2].ask_to_leave();
            for turn in 0..steps {
                groups[turn % 3].step();
            }
            let end = Instant::now() + Duration::from_secs(10);
            while !groups[2].is_out() {
                assert!(Instant::now() < end, "after {steps} steps");
                groups[0].step();
                groups[2].step();
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn it_counts_some_times_in_a_term() {
        let mut pulse = Pulse::new(TERM);
        let start = pulse.beat;
        let beats =
            (0..=40).filter(|tenth| pulse.beats(start + Duration::from_millis(100 * tenth)));
        assert_eq!(beats.count(), BEATS as usize);
        assert!(longest_sleep(TERM) < TERM / BEATS);
    }
}
