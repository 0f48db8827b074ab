// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One peer of the pool: its traffic, and the RC queue pair to it.

use super::choice::Choice;
use super::majority::Majority;
use super::{LinkState, Transport};
use crate::gid::Gid;

/// How long a queue pair is kept that nothing uses.
pub const LINGER_NS: u64 = 5_000_000_000;
/// How long a queue pair may take to come up.
const OPENING_NS: u64 = 5_000_000_000;

/// A peer.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) gid: Gid,
    /// One-sided requests.
    pub(super) requests: Choice,
    /// Messages: their packets go over a queue pair, or by UDP.
    pub(super) messages: Choice,
    /// Votes for the user who uses it most.
    majority: Majority,
    /// The leader of the vote, or the last one if there is none now.
    user: Option<u32>,
    /// Queue pairs that this user has, as of the last look.
    pub(super) held: usize,
    /// Places in the pool that it has.
    pub(super) placed: usize,
    /// The queue pair to it, as of the last look.
    pub(super) link: LinkState,
    /// An administrator's choice.
    pub(super) pinned: bool,
    pub(super) forced: Option<Transport>,
    /// A queue pair was asked for, then.
    pub(super) opened_ns: Option<u64>,
    /// When it used RC last.
    pub(super) used_rc_ns: u64,
}

impl Peer {
    /// A peer that is used by this user, if that is known.
    pub(super) fn new(gid: Gid, user: Option<u32>, now_ns: u64) -> Self {
        Self {
            gid,
            requests: Choice::new(now_ns),
            messages: Choice::new(now_ns),
            majority: Majority::NONE,
            user,
            held: 0,
            placed: 0,
            link: LinkState::None,
            pinned: false,
            forced: None,
            opened_ns: None,
            used_rc_ns: now_ns,
        }
    }

    /// Whether it is kept though it is cold.
    pub(super) fn is_kept(&self) -> bool {
        self.pinned || self.forced.is_some() || self.has_link() || self.opened_ns.is_some()
    }

    pub(super) fn has_link(&self) -> bool {
        self.link != LinkState::None
    }

    /// Whether it takes one of the queue pairs that a node may have.
    pub(super) fn takes_place(&self) -> bool {
        self.opened_ns.is_some() || self.has_link()
    }

    /// Whether an administrator wants a queue pair to it.
    pub(super) fn is_wanted(&self) -> bool {
        self.pinned || self.forced == Some(Transport::Rc)
    }

    /// The user of most of its traffic; `None`: none was seen.
    pub(super) fn user(&self) -> Option<u32> {
        self.user
    }

    /// Takes in what was seen since the last look.
    pub(super) fn look(&mut self, passed_ns: u64, now_ns: u64) {
        // A round trip by DC says the same of both.
        self.messages.traffic.probe_ns = self.requests.traffic.probe_ns;
        for choice in [&self.requests, &self.messages] {
            self.majority = self.majority.merge(choice.traffic.majority);
        }
        self.user = self.majority.user().or(self.user);
        self.requests.look(passed_ns, now_ns);
        self.messages.look(passed_ns, now_ns);
        if self.uses_rc() {
            self.used_rc_ns = now_ns;
        }
    }

    /// How much it is used: small requests a second, and messages.
    pub(super) fn heat(&self) -> u64 {
        let requests = self.requests.heat.per_second();
        requests.saturating_add(self.messages.heat.per_second())
    }

    /// The same, as a number, since the last look.
    pub(super) fn seen(&self) -> u64 {
        let requests = self.requests.traffic.ops();
        requests.saturating_add(self.messages.traffic.ops())
    }

    /// Whether it was not used for so long that it has no heat.
    pub(super) fn is_idle(&self) -> bool {
        self.heat() == 0 && self.seen() == 0
    }

    /// Whether a queue pair is worth a try for any of its traffic.
    pub(super) fn is_due(&self, is_welcome: bool, now_ns: u64) -> bool {
        self.requests.is_due(is_welcome, now_ns) || self.messages.is_due(is_welcome, now_ns)
    }

    /// When it was hot last.
    pub(super) fn hot_ns(&self) -> u64 {
        self.requests.hot_ns.max(self.messages.hot_ns)
    }

    pub(super) fn is_cold(&self) -> bool {
        self.requests.is_cold() && self.messages.is_cold()
    }

    pub(super) fn uses_rc(&self) -> bool {
        self.requests.uses == Transport::Rc || self.messages.uses == Transport::Rc
    }

    /// All of its traffic takes this transport from now on, whatever that costs.
    pub(super) fn take(&mut self, by: Transport) {
        self.requests.take(by);
        self.messages.take(by);
    }

    /// Its queue pair has gone, or did not come up: the next one takes a pause.
    pub(super) fn lost(&mut self, now_ns: u64) {
        self.opened_ns = None;
        self.requests.lost(now_ns);
        // Those that had nothing to do with it may try the next one.
        if self.messages.uses == Transport::Rc || self.messages.is_hot() {
            self.messages.lost(now_ns);
        }
    }

    /// Whether the queue pair that was asked for takes too long.
    pub(super) fn is_overdue(&self, now_ns: u64) -> bool {
        self.opened_ns
            .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= OPENING_NS)
    }
}
