// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The hybrid pool's policy, without clock or I/O (krcore §4.2, §4.3): which peers get an RC
//! queue pair, which requests go by it, and which queue pairs go again.
//!
//! The paper gives RC to the peers that are used most, and takes it from those that were not
//! used for longest. Here each transport's cost to a peer is measured on the traffic itself
//! besides, because which one is faster is a matter of the host: a busy peer's requests are
//! *tried* on the other transport, and stay there only if they take no longer. Messages to it
//! have a choice of their own: their packets take the queue pair that there is, or UDP.
//!
//! - [`Meter`], [`Tally`] and [`Stopwatch`] see the traffic.
//! - [`Pool::decide`] says what is to be done, a few times a second.
//!
//! Where more peers are worth a queue pair than there may be, those of users who have few
//! come first; and so they do where more peers are used than the pool has an eye on.
//!
//! A peer that was tried is left alone for a minute, and for longer after each trial that
//! came to nothing, unless its transport's cost doubles or the other's halves.

mod budget;
mod choice;
mod majority;
mod meter;
mod peer;
mod places;
mod probes;

#[cfg(all(test, not(loom)))]
mod tests;

use crate::gid::Gid;

use choice::{Choice, Outcome};
pub use choice::{Cost, Heat, COLD_PER_SECOND, HOT_PER_SECOND, RETRY_NS, TRIAL_NS};
pub use majority::Majority;
pub use meter::{Meter, Samples, Stopwatch, Tally, Traffic, SMALL_BYTES};
use peer::Peer;
pub use peer::LINGER_NS;
use places::{Claim, NEWCOMERS};

/// Peers that a pool has an eye on. Of more, idle ones are forgotten, and else those of users who
/// have most.
pub const PEERS: usize = 256;
/// Most peers that are probed at one look; those that are left come at the next.
pub const PROBES: usize = 16;
/// After a trial that came to nothing no other peer is tried for so long, and twice as long
/// after each further one: what did not pay for one may not pay for others.
const CAUTION_NS: u64 = 1_000_000_000;
const MAX_CAUTION: u32 = 6;

/// The kind of queue that carries requests to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The node's DC initiators.
    Dc,
    /// A queue pair to that peer.
    Rc,
}

impl Transport {
    fn other(self) -> Self {
        match self {
            Self::Dc => Self::Rc,
            Self::Rc => Self::Dc,
        }
    }
}

/// The RC queue pair to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// There is none.
    None,
    /// It works; `ours`: this node has asked for it.
    Up {
        /// Whether this node has asked for it, and so is to close it.
        ours: bool,
        /// Whether packets of messages can go by it. The second queue pair, which carries
        /// them, may be lost by itself, and a device may have had none to give.
        carries_packets: bool,
    },
    /// It is being closed.
    Closing,
}

impl LinkState {
    fn is_up(self) -> bool {
        matches!(self, Self::Up { .. })
    }

    fn is_ours(self) -> bool {
        matches!(self, Self::Up { ours: true, .. })
    }

    fn carries_packets(self) -> bool {
        matches!(
            self,
            Self::Up {
                carries_packets: true,
                ..
            }
        )
    }
}

/// Whether the pool decides by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Peers that are busy get a queue pair, if that pays.
    Auto,
    /// Only pinned ones get one, and all that there are are used.
    Pinned,
    /// Each peer that somebody connects to gets one. All are used, and stay.
    All,
}

/// A step that the pool asks of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the peer for a queue pair.
    Open,
    /// Close the one to the peer, or stop asking.
    Close,
    /// Requests to it take this way from now on.
    Use(Transport),
    /// So do the packets of messages to it.
    UseForMessages(Transport),
    /// See how long a round trip by DC takes: its requests or messages take the other way.
    Probe,
}

/// The traffic that the queue pair to a peer carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByRc {
    /// One-sided requests.
    pub requests: bool,
    /// The packets of messages.
    pub messages: bool,
}

/// A peer, as the pool knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The peer.
    pub gid: Gid,
    /// One-sided requests to it.
    pub requests: TrafficView,
    /// The packets of messages to it.
    pub messages: TrafficView,
    /// An administrator has chosen the transport.
    pub is_forced: bool,
    /// An administrator keeps a queue pair to it.
    pub is_pinned: bool,
    /// The user of most of its traffic, if any was seen.
    pub user: Option<u32>,
}

/// A kind of traffic to a peer, as the pool knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficView {
    /// Its transport.
    pub uses: Transport,
    /// The other transport is being tried.
    pub is_in_trial: bool,
    /// How much of it there is.
    pub heat: Heat,
    /// The cost of DC.
    pub dc: Cost,
    /// The cost of RC.
    pub rc: Cost,
    /// Times that it was sent another way.
    pub moves: u32,
}

/// The peers that a node's pool has an eye on.
pub struct Pool {
    peers: [Option<Peer>; PEERS],
    looked_ns: u64,
    newcomers: u32,
    /// Peers that may still be probed at this look, and the place from which on they are at the
    /// next.
    probes_left: usize,
    probe_from: usize,
    /// Trials in a row, of any peers, that came to nothing.
    failures: u32,
    /// No peer is tried before, unless something changes for it.
    cautious_until_ns: u64,
}

impl Pool {
    /// No peers.
    pub const EMPTY: Self = Self {
        peers: [const { None }; PEERS],
        looked_ns: 0,
        newcomers: 0,
        probes_left: 0,
        probe_from: 0,
        failures: 0,
        cautious_until_ns: 0,
    };

    /// There is a queue pair to a peer, whoever has asked for it.
    pub fn note_link(&mut self, gid: &Gid, now_ns: u64) {
        let _ = self.find_or_make(gid, Claim::Kept, now_ns);
    }

    /// Tells which traffic goes to a peer by RC.
    #[must_use]
    pub fn carries(&self, gid: &Gid) -> ByRc {
        let found = self.by_rc().find(|(peer, _)| *peer == gid);
        found.map_or(ByRc::default(), |(_, by_rc)| by_rc)
    }

    /// The peers to which anything goes by RC.
    pub fn by_rc(&self) -> impl Iterator<Item = (&Gid, ByRc)> {
        let peers = self.peers.iter().flatten();
        let by_rc = peers.filter(|peer| peer.uses_rc());
        by_rc.map(|peer| {
            let by_rc = ByRc {
                requests: peer.requests.uses == Transport::Rc,
                messages: peer.messages.uses == Transport::Rc,
            };
            (&peer.gid, by_rc)
        })
    }

    /// Takes in what was seen of the one-sided requests to a peer since the last decision; may
    /// be called several times for one.
    pub fn see(&mut self, gid: &Gid, traffic: &Traffic, now_ns: u64) {
        if let Some(peer) = self.find_seen(gid, traffic, now_ns) {
            peer.requests.traffic.add(traffic);
        }
    }

    /// The same of messages to it.
    pub fn see_messages(&mut self, gid: &Gid, traffic: &Traffic, now_ns: u64) {
        if let Some(peer) = self.find_seen(gid, traffic, now_ns) {
            peer.messages.traffic.add(traffic);
        }
    }

    /// A peer with this traffic. One that is idle need not be known.
    fn find_seen(&mut self, gid: &Gid, traffic: &Traffic, now_ns: u64) -> Option<&mut Peer> {
        match traffic.is_some() {
            true => self.find_or_make(gid, Claim::Used(traffic.majority.user()), now_ns),
            false => self.find(gid),
        }
    }

    /// Keeps a queue pair to a peer and sends its requests there, or no longer does. `false`:
    /// there is no room for another peer, or it was not pinned.
    pub fn pin(&mut self, gid: &Gid, is_pinned: bool, now_ns: u64) -> bool {
        if !is_pinned {
            let Some(peer) = self.find(gid).filter(|peer| peer.pinned) else {
                return false;
            };
            peer.pinned = false;
            // Its queue pair goes once nothing has used it for a while.
            peer.used_rc_ns = now_ns;
            return true;
        }
        match self.find_or_make(gid, Claim::Kept, now_ns) {
            Some(peer) => {
                peer.pinned = true;
                true
            }
            None => false,
        }
    }

    /// Sends a peer's requests this way whatever it costs, or leaves it to the pool again.
    /// `false`: there is no room for another peer.
    pub fn force(&mut self, gid: &Gid, by: Option<Transport>, now_ns: u64) -> bool {
        match self.find_or_make(gid, Claim::Kept, now_ns) {
            Some(peer) => {
                peer.forced = by;
                true
            }
            None => false,
        }
    }

    /// What is known of the `index`th peer.
    #[must_use]
    pub fn view(&self, index: usize) -> Option<PeerView> {
        let peer = self.peers.iter().flatten().nth(index)?;
        Some(PeerView {
            gid: peer.gid,
            requests: peer.requests.view(),
            messages: peer.messages.view(),
            is_forced: peer.forced.is_some(),
            is_pinned: peer.pinned,
            user: peer.user(),
        })
    }

    /// Whether any peer is known: otherwise there is nothing to decide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peers.iter().all(Option::is_none)
    }

    /// Says what is to be done. `budget`: queue pairs that there may be, `links` which there
    /// are.
    pub fn decide(
        &mut self,
        mode: Mode,
        budget: usize,
        links: impl Fn(&Gid) -> LinkState,
        now_ns: u64,
        mut act: impl FnMut(&Gid, Action),
    ) {
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        self.looked_ns = now_ns;
        self.newcomers = NEWCOMERS;
        self.probes_left = PROBES;
        let first = self.probe_from;
        for place in (first..PEERS).chain(0..first) {
            let Some(Some(mut peer)) = self.peers.get(place).copied() else {
                continue;
            };
            peer.look(passed_ns, now_ns);
            let link = links(&peer.gid);
            let probes_left = self.probes_left;
            self.settle(&mut peer, mode, link, now_ns, &mut act);
            if self.probes_left < probes_left {
                self.probe_from = place + 1;
            }
            let is_idle = peer.heat() == 0 && !peer.is_kept();
            if let Some(known) = self.peers.get_mut(place) {
                // What was found out about it is of use if it comes back soon.
                let is_old = now_ns.saturating_sub(peer.hot_ns()) >= RETRY_NS;
                *known = (!(is_idle && is_old)).then_some(peer);
            }
        }
        self.count_shares();
        self.open(mode, budget, now_ns, act);
    }

    /// Decides which way a peer's requests take, and whether its queue pair goes.
    fn settle(
        &mut self,
        peer: &mut Peer,
        mode: Mode,
        link: LinkState,
        now_ns: u64,
        act: &mut impl FnMut(&Gid, Action),
    ) {
        let has_gone = peer.link.is_up() && link == LinkState::None;
        peer.link = link;
        let before = (peer.requests.uses, peer.messages.uses);
        if link.is_up() {
            peer.opened_ns = None;
        } else if peer.uses_rc() || peer.is_overdue(now_ns) {
            // One that an administrator wants is asked for again.
            if mode == Mode::Auto && !peer.pinned && peer.forced.is_none() {
                act(&peer.gid, Action::Close);
            }
            peer.lost(now_ns);
        } else if peer.opened_ns.is_some()
            && peer.is_cold()
            && peer.forced.is_none()
            && !peer.pinned
        {
            peer.opened_ns = None;
            act(&peer.gid, Action::Close);
        } else if has_gone && !peer.pinned && peer.forced.is_none() && mode != Mode::All {
            // Nothing uses it, so nobody would withdraw what the node asks of the peer again.
            act(&peer.gid, Action::Close);
        }
        if link.is_up() {
            self.choose(peer, mode, link, now_ns);
            self.choose_for_messages(peer, mode, link, now_ns);
        }
        if peer.requests.uses != before.0 {
            act(&peer.gid, Action::Use(peer.requests.uses));
        }
        if peer.messages.uses != before.1 {
            act(&peer.gid, Action::UseForMessages(peer.messages.uses));
        }
        let is_needed = peer.uses_rc() || peer.pinned || peer.forced.is_some() || mode == Mode::All;
        if link.is_ours() && !is_needed && now_ns.saturating_sub(peer.used_rc_ns) >= LINGER_NS {
            act(&peer.gid, Action::Close);
            peer.link = LinkState::Closing;
        }
        let by_rc = |choice: &Choice| choice.uses == Transport::Rc && choice.is_hot();
        let is_compared = by_rc(&peer.requests) && mode == Mode::Auto
            || by_rc(&peer.messages) && mode != Mode::All;
        if is_compared && peer.forced.is_none() && self.probes_left > 0 {
            self.probes_left -= 1;
            act(&peer.gid, Action::Probe);
        }
    }

    /// With a queue pair that works: decides which way a peer's requests take.
    fn choose(&mut self, peer: &mut Peer, mode: Mode, link: LinkState, now_ns: u64) {
        if let Some(forced) = peer.forced {
            peer.requests.take(forced);
        } else if peer.pinned || mode != Mode::Auto {
            // Without a policy, whatever is there is used until it is to go.
            peer.requests.take(match is_to_go(peer, mode, link) {
                true => Transport::Dc,
                false => Transport::Rc,
            });
        } else {
            self.try_out(&mut peer.requests, now_ns);
        }
    }

    /// Likewise, the way of its messages. An administrator who pins a peer says nothing of
    /// them: where software makes RC of the same packets, UDP is the faster way.
    fn choose_for_messages(&mut self, peer: &mut Peer, mode: Mode, link: LinkState, now_ns: u64) {
        if !link.carries_packets() {
            peer.messages.do_without(now_ns);
        } else if let Some(forced) = peer.forced {
            peer.messages.take(forced);
        } else if mode == Mode::All {
            peer.messages.take(Transport::Rc);
        } else if is_to_go(peer, mode, link) {
            peer.messages.take(Transport::Dc);
        } else {
            self.try_out(&mut peer.messages, now_ns);
        }
    }

    /// Tries the other way now and then, and takes the better one.
    fn try_out(&mut self, choice: &mut Choice, now_ns: u64) {
        if let Some(outcome) = choice.judge(now_ns) {
            self.learn(outcome, now_ns);
        } else if choice.uses == Transport::Rc && choice.is_cold() {
            if now_ns.saturating_sub(choice.hot_ns) >= LINGER_NS {
                choice.take(Transport::Dc);
            }
        } else if choice.is_due(now_ns >= self.cautious_until_ns, now_ns) {
            choice.begin_trial(now_ns);
        }
    }

    /// What a trial says about others.
    fn learn(&mut self, outcome: Outcome, now_ns: u64) {
        match outcome {
            Outcome::RcPays => {
                self.failures = 0;
                self.cautious_until_ns = now_ns;
            }
            Outcome::DcPays => {
                let pause_ns = CAUTION_NS << self.failures.min(MAX_CAUTION);
                self.failures = self.failures.saturating_add(1);
                self.cautious_until_ns = now_ns.saturating_add(pause_ns);
            }
            Outcome::Unclear => {}
        }
    }
}

/// Whether the queue pair to a peer is to go because nobody has asked to keep it, and the pool
/// decides nothing by itself.
fn is_to_go(peer: &Peer, mode: Mode, link: LinkState) -> bool {
    !peer.pinned && mode == Mode::Pinned && link.is_ours()
}
