// SPDX-License-Identifier: MIT OR Apache-2.0

//! How much of what peers do is logged: so that none of them can fill the disk, or bury
//! what another does.

use std::time::{Duration, Instant};

/// Lines of one subject in each [`INTERVAL`].
const LINES: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(10);

/// What a line is about. Each subject has lines of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Records that came or went.
    Records,
    /// Records that found no room.
    FullTable,
    /// Messages that were refused.
    Messages,
    /// Connections that were refused, or ended for others.
    Connections,
    /// Devices that do not work.
    Devices,
}

impl Subject {
    const ALL: [Self; 5] = [
        Self::Records,
        Self::FullTable,
        Self::Messages,
        Self::Connections,
        Self::Devices,
    ];
}

/// Lines of one subject.
#[derive(Clone, Copy, Default)]
struct Count {
    /// When the interval began, if one has.
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

/// Counts the lines that peers cause.
#[derive(Default)]
pub struct LogLimit([Count; Subject::ALL.len()]);

impl LogLimit {
    /// Whether there may be a line at `now`. If not, it is counted.
    pub fn admits(&mut self, subject: Subject, now: Instant) -> bool {
        let count = &mut self.0[subject as usize];
        // What was suppressed is told before the next interval begins.
        let is_over = count.suppressed == 0
            && count
                .since
                .is_none_or(|since| now.saturating_duration_since(since) >= INTERVAL);
        if is_over {
            *count = Count {
                since: Some(now),
                ..Count::default()
            };
        }
        if count.lines < LINES {
            count.lines += 1;
            return true;
        }
        count.suppressed += 1;
        false
    }

    /// The lines of each subject that were suppressed in an interval that is over: once.
    pub fn suppressed(&mut self, now: Instant) -> Vec<(Subject, u64)> {
        let mut told = Vec::new();
        for subject in Subject::ALL {
            let count = &mut self.0[subject as usize];
            let due = count.due();
            if due.is_some_and(|due| now >= due) {
                told.push((subject, count.suppressed));
                *count = Count::default();
            }
        }
        told
    }

    /// When [`Self::suppressed`] will have something to tell.
    pub fn due(&self) -> Option<Instant> {
        self.0.iter().filter_map(Count::due).min()
    }
}

impl Count {
    fn due(&self) -> Option<Instant> {
        (self.suppressed > 0).then_some(self.since? + INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_makes_a_few_lines_and_a_number() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let admitted = (0..1000).filter(|_| limit.admits(Subject::Messages, start));
        assert_eq!(admitted.count(), 20);
        assert_eq!(limit.due(), Some(start + INTERVAL));
        assert_eq!(limit.suppressed(start), []);
        let later = start + INTERVAL;
        assert_eq!(limit.suppressed(later), [(Subject::Messages, 980)]);
        assert_eq!(limit.suppressed(later), []);
        assert_eq!(limit.due(), None);
        assert!(limit.admits(Subject::Messages, later));
    }

    #[test]
    fn what_was_suppressed_is_told_before_more_is_logged() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        for _ in 0..25 {
            limit.admits(Subject::Records, start);
        }
        let later = start + 2 * INTERVAL;
        assert!(!limit.admits(Subject::Records, later));
        assert_eq!(limit.suppressed(later), [(Subject::Records, 6)]);
    }

    #[test]
    fn one_subject_does_not_bury_another() {
        let (mut limit, now) = (LogLimit::default(), Instant::now());
        for _ in 0..100 {
            limit.admits(Subject::Messages, now);
        }
        assert!(limit.admits(Subject::FullTable, now));
        assert!(limit.admits(Subject::Connections, now));
    }

    #[test]
    fn the_usual_is_always_logged() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            assert!(limit.admits(Subject::Records, now));
        }
    }
}
