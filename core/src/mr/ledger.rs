// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the owner of regions knows of the peers that may use them: which of them
//! still has to answer that it does not.
//!
//! Removals are numbered. A peer has one notice on its way at a time, about the
//! oldest removals that it was not told; the next one takes all that came
//! meanwhile, so that a process with many regions costs few notices. A notice
//! that is not answered is repeated; a peer that is silent for [`LEASE_NS`], or still
//! uses a region after [`LEASE_MAX_NS`], has to lose its connection, which ends its
//! requests too.

use super::notice::{Keys, Notice, NoticeKind};
use super::{LEASE_MAX_NS, LEASE_NS};

/// Connections that a node may have, those that are being opened or closed
/// included.
pub const LEDGER_LINES: usize = 160;
/// How long a notice may go without an answer before it is repeated.
pub const REPEAT_NS: u64 = 250_000_000;

/// One connection.
///
/// # Invariants
///
/// `acked <= told`, and `told <=` the ledger's `last`.
#[derive(Clone, Copy)]
struct Line {
    token: u64,
    /// The last removal that the peer was told, or that is none of its concern.
    told: u64,
    /// The last removal that it has answered.
    acked: u64,
    /// When it was first told what it did not answer.
    told_ns: u64,
    /// When it was last told.
    sent_ns: u64,
    /// When it last said that it still uses them, or was first told.
    heard_ns: u64,
}

impl Line {
    fn owes(&self) -> bool {
        self.told != self.acked
    }
}

/// The connections of a node.
pub struct Ledger {
    lines: [Option<Line>; LEDGER_LINES],
    /// The number of the last removal.
    last: u64,
}

impl Ledger {
    /// No connections.
    pub const EMPTY: Self = Self {
        lines: [None; LEDGER_LINES],
        last: 0,
    };

    /// A peer can use regions from now on, by the connection of this token. What
    /// was removed before it cannot have seen. `false`: there are too many, or one
    /// has this token.
    pub fn open(&mut self, token: u64) -> bool {
        if self.line(token).is_some() {
            return false;
        }
        let Some(place) = self.lines.iter_mut().find(|line| line.is_none()) else {
            return false;
        };
        // INVARIANT: all three are equal.
        *place = Some(Line {
            token,
            told: self.last,
            acked: self.last,
            told_ns: 0,
            sent_ns: 0,
            heard_ns: 0,
        });
        true
    }

    fn line(&self, token: u64) -> Option<&Line> {
        let mut lines = self.lines.iter().flatten();
        lines.find(|line| line.token == token)
    }

    /// The connection is gone, and with it all requests.
    pub fn close(&mut self, token: u64) {
        for place in &mut self.lines {
            if place.is_some_and(|line| line.token == token) {
                *place = None;
            }
        }
    }

    /// Whether any peer can use regions.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.lines.iter().any(Option::is_some)
    }

    /// Counts a removal that peers have to be told of. Answers its number.
    pub fn remove(&mut self) -> u64 {
        // INVARIANT: it grows.
        self.last += 1;
        self.last
    }

    /// Whether no peer can use any more what was removed under this number.
    #[must_use]
    pub fn is_unused(&self, seq: u64) -> bool {
        self.lines.iter().flatten().all(|line| line.acked >= seq)
    }

    /// The next notice to send, to the peer of the connection that it names. `removed`: the removals that are not
    /// [unused](Ledger::is_unused), with their keys, in their order.
    pub fn next(
        &mut self,
        removed: impl Iterator<Item = (u64, u32)>,
        now_ns: u64,
    ) -> Option<Notice> {
        let last = self.last;
        let is_due = |line: &&mut Line| {
            if line.owes() {
                now_ns.saturating_sub(line.sent_ns) >= REPEAT_NS
            } else {
                line.acked != last
            }
        };
        let line = self.lines.iter_mut().flatten().find(is_due)?;
        // What is repeated is the same: a slow peer would never be done with more.
        let until = if line.owes() { line.told } else { last };
        let (mut keys, mut told) = (Keys::NONE, until);
        for (seq, key) in removed.filter(|(seq, _)| (line.acked + 1..=until).contains(seq)) {
            if !keys.push(key) {
                break;
            }
            told = seq;
        }
        if !line.owes() {
            (line.told_ns, line.heard_ns) = (now_ns, now_ns);
        }
        // INVARIANT: at least what it has answered, and a removal's number.
        line.told = told;
        line.sent_ns = now_ns;
        Some(Notice {
            token: line.token,
            seq: told,
            kind: NoticeKind::Gone(keys),
        })
    }

    /// The line of a connection whose peer was just told of this removal.
    fn told(&mut self, token: u64, seq: u64) -> Option<&mut Line> {
        let mut lines = self.lines.iter_mut().flatten();
        lines.find(|line| line.token == token && line.told == seq)
    }

    /// A peer uses nothing of it any more. Answers to what it was not just told do not
    /// count.
    pub fn answered(&mut self, token: u64, seq: u64) {
        if let Some(line) = self.told(token, seq) {
            // INVARIANT: they are equal.
            line.acked = seq;
        }
    }

    /// A peer still uses some of it. Answers to what it was not just told do not count.
    pub fn in_use(&mut self, token: u64, seq: u64, now_ns: u64) {
        if let Some(line) = self.told(token, seq) {
            line.heard_ns = now_ns;
        }
    }

    /// Whether the peer has had its time: the connection has to go.
    #[must_use]
    pub fn is_overdue(&self, token: u64, now_ns: u64) -> bool {
        let late = |line: &Line| {
            let (silent_ns, in_all_ns) = (
                now_ns.saturating_sub(line.heard_ns),
                now_ns.saturating_sub(line.told_ns),
            );
            line.owes() && (silent_ns >= LEASE_NS || in_all_ns >= LEASE_MAX_NS)
        };
        self.line(token).is_some_and(late)
    }

    /// Whether any peer has something to be told or to answer.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let mut lines = self.lines.iter().flatten();
        lines.any(|line| line.acked != self.last)
    }
}
