// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A [`Choice`] decides which of a peer's two transports a kind of traffic to it takes. It
//! knows how much traffic there is, and what that costs by each.

use core::num::NonZeroU64;

use super::meter::{as_small, Samples, Traffic};
use super::probes::Probes;
use super::{TrafficView, Transport};

/// A peer with so many small requests a second, or small messages, is busy enough for a queue
/// pair of its own; bytes of others count as small ones of [`SMALL_BYTES`](super::SMALL_BYTES).
pub const HOT_PER_SECOND: u64 = 1000;
/// Below so many it is cold.
pub const COLD_PER_SECOND: u64 = HOT_PER_SECOND / 4;
/// It is busy too if so many requests are under way on average, in thousandths: one whose
/// transport has become slow gets few of them done.
const HOT_UNDER_WAY: u64 = 500;
/// Below that it is cold.
const COLD_UNDER_WAY: u64 = HOT_UNDER_WAY / 4;
/// Looks in a row at which it has to be busy before anything is done.
const HOT_LOOKS: u32 = 2;
/// How long a transport is tried before it is judged.
pub const TRIAL_NS: u64 = 200_000_000;
/// How long it is tried if it shows too little; then it is not taken.
const LONGEST_TRIAL_NS: u64 = 2_000_000_000;
/// Samples that a judgement takes.
const TRIAL_SAMPLES: u64 = 8;
/// A transport that was tried is kept if it costs at most so many per cent of the other.
/// That it may cost a little more keeps peers where they are whose transports are alike.
const KEPT_PER_CENT: u64 = 110;
/// When the other transport is tried again, if nothing has changed: after so long, and twice
/// as long after each trial that came to nothing.
pub const RETRY_NS: u64 = 60_000_000_000;
const MAX_DOUBLINGS: u32 = 4;
/// After a judgement nothing is tried for so long, whatever changes.
const REST_NS: u64 = 1_000_000_000;
/// Looks in a row at which the transport has to cost twice what it did.
const WORSE_LOOKS: u32 = 3;

/// The cost of a transport; 0: it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time of a small request.
    pub small_ns: u64,
    /// Time of a byte of others, in picoseconds.
    pub byte_ps: u64,
    /// Samples that it comes from.
    pub samples: u64,
}

impl Cost {
    /// Learns from what was seen since the last look.
    fn learn(&mut self, seen: &Samples) {
        if let Some(mean_ns) = seen.small_ns() {
            blend(&mut self.small_ns, mean_ns);
        }
        if let Some(mean_ps) = seen.byte_ps() {
            blend(&mut self.byte_ps, mean_ps);
        }
        self.samples = self.samples.saturating_add(seen.count());
    }

    /// Forgets what is older than this, as far as this says something.
    fn renew(&mut self, seen: &Samples) {
        self.small_ns = seen
            .small_ns()
            .map_or(self.small_ns, |mean_ns| mean_ns.max(1));
        self.byte_ps = seen
            .byte_ps()
            .map_or(self.byte_ps, |mean_ps| mean_ps.max(1));
    }
}

/// A mean of which the latest value is a quarter.
fn blend(mean: &mut u64, value: u64) {
    *mean = match *mean {
        0 => value.max(1),
        before => (before / 4 * 3).saturating_add(value / 4).max(1),
    };
}

/// That of two things which is of a transport.
fn of<T>([dc, rc]: &[T; 2], by: Transport) -> &T {
    match by {
        Transport::Dc => dc,
        Transport::Rc => rc,
    }
}

/// Counts looks in a row.
fn count(looks: &mut u32, is_so: bool) {
    *looks = match is_so {
        true => looks.saturating_add(1),
        false => 0,
    };
}

/// Computes what a peer's requests cost by two transports, as far as both were seen to carry such
/// requests: nanoseconds of each second's requests. `None`: nothing can be compared.
fn compare(heat: &Heat, one: &Cost, other: &Cost) -> Option<(u64, u64)> {
    let mut sums = (0u64, 0u64);
    let mut is_known = false;
    if one.small_ns != 0 && other.small_ns != 0 {
        is_known = true;
        let ops = heat.small_ops.max(1);
        sums.0 = sums.0.saturating_add(ops.saturating_mul(one.small_ns));
        sums.1 = sums.1.saturating_add(ops.saturating_mul(other.small_ns));
    }
    if one.byte_ps != 0 && other.byte_ps != 0 {
        is_known = true;
        let bytes = heat.large_bytes.max(1);
        let cost = |ps: u64| bytes.saturating_mul(ps) / 1000;
        sums.0 = sums.0.saturating_add(cost(one.byte_ps));
        sums.1 = sums.1.saturating_add(cost(other.byte_ps));
    }
    is_known.then_some(sums)
}

/// How much a peer is used, a second: means that forget half in half a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Small requests.
    pub small_ops: u64,
    /// Bytes of others.
    pub large_bytes: u64,
}

impl Heat {
    fn learn(&mut self, traffic: &Traffic, passed_ns: u64) {
        let passed_us = NonZeroU64::new(passed_ns / 1000).unwrap_or(NonZeroU64::MIN);
        let per_second = |count: u64| count.saturating_mul(1_000_000) / passed_us;
        // The longer ago the last look, the less the past counts.
        let parts = (passed_ns / 100_000_000).clamp(1, 8);
        let mix =
            |before: u64, now: u64| (before / 8 * (8 - parts)).saturating_add(now / 8 * parts);
        self.small_ops = mix(self.small_ops, per_second(traffic.small_ops));
        self.large_bytes = mix(self.large_bytes, per_second(traffic.large_bytes));
    }

    /// As one number: small requests a second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        as_small(self.small_ops, self.large_bytes)
    }
}

/// The choice's knowledge of which transport is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other was never tried.
    New,
    /// The other is being tried since then; the one before did cost so much.
    Trial { since_ns: u64, before: Cost },
    /// Judged then; the transport in use did cost so much.
    Settled { since_ns: u64, cost: Cost },
}

/// How a trial has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// RC costs less.
    RcPays,
    /// It does not.
    DcPays,
    /// Too little was seen.
    Unclear,
}

/// A kind of traffic to a peer.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// The traffic since the last look.
    pub(super) traffic: Traffic,
    pub(super) heat: Heat,
    costs: [Cost; 2],
    /// Samples of the last look, of the transport in use.
    last: Samples,
    pub(super) uses: Transport,
    /// When it was hot last.
    pub(super) hot_ns: u64,
    /// Times that it was sent another way.
    pub(super) moves: u32,
    hot_looks: u32,
    worse_looks: u32,
    probes: Probes,
    has_changed: bool,
    /// Trials in a row that came to nothing.
    failures: u32,
    stage: Stage,
}

impl Choice {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            traffic: Traffic::default(),
            heat: Heat::default(),
            costs: [Cost::default(); 2],
            last: Samples::default(),
            uses: Transport::Dc,
            hot_ns: now_ns,
            moves: 0,
            hot_looks: 0,
            worse_looks: 0,
            probes: Probes::NEW,
            has_changed: false,
            failures: 0,
            stage: Stage::New,
        }
    }

    pub(super) fn cost(&self, by: Transport) -> &Cost {
        of(&self.costs, by)
    }

    /// Takes in what was seen since the last look.
    pub(super) fn look(&mut self, passed_ns: u64, now_ns: u64) {
        let traffic = core::mem::take(&mut self.traffic);
        self.heat.learn(&traffic, passed_ns);
        for (cost, seen) in self.costs.iter_mut().zip(&traffic.samples) {
            cost.learn(seen);
        }
        self.last = *of(&traffic.samples, self.uses);
        if self.heat.per_second() >= HOT_PER_SECOND || self.under_way() >= HOT_UNDER_WAY {
            self.hot_ns = now_ns;
            self.hot_looks = self.hot_looks.saturating_add(1);
        } else {
            self.hot_looks = 0;
        }
        self.look_for_change(traffic.probe_ns);
    }

    /// Whether the transport in use has become so much worse, or the other so much better,
    /// that the other is to be tried at once.
    fn look_for_change(&mut self, probe_ns: u64) {
        let now = *self.cost(self.uses);
        let Stage::Settled { cost, .. } = &self.stage else {
            return;
        };
        let is_worse = compare(&self.heat, &now, cost)
            .is_some_and(|(now, before)| now >= before.saturating_mul(2));
        count(&mut self.worse_looks, is_worse);
        // It is on RC: otherwise nobody asks for a round trip.
        if probe_ns != 0 {
            self.probes.see(probe_ns);
        }
        self.has_changed = self.worse_looks >= WORSE_LOOKS || self.probes.are_better();
    }

    pub(super) fn is_hot(&self) -> bool {
        self.hot_looks >= HOT_LOOKS
    }

    pub(super) fn is_cold(&self) -> bool {
        self.heat.per_second() < COLD_PER_SECOND && self.under_way() < COLD_UNDER_WAY
    }

    /// A copy of what is known, to show.
    pub(super) fn view(&self) -> TrafficView {
        TrafficView {
            uses: self.uses,
            is_in_trial: self.is_in_trial(),
            heat: self.heat,
            dc: *self.cost(Transport::Dc),
            rc: *self.cost(Transport::Rc),
            moves: self.moves,
        }
    }

    /// Requests under way on average, in thousandths: how many end in a second, times how
    /// long each takes (Little's law).
    fn under_way(&self) -> u64 {
        let Cost {
            small_ns, byte_ps, ..
        } = *self.cost(self.uses);
        let small = self.heat.small_ops.saturating_mul(small_ns);
        let large = self.heat.large_bytes.saturating_mul(byte_ps) / 1000;
        small.saturating_add(large) / 1_000_000
    }

    pub(super) fn is_in_trial(&self) -> bool {
        matches!(self.stage, Stage::Trial { .. })
    }

    /// Whether the other transport is to be tried now. `is_welcome`: also if there is no
    /// other reason than that it never was, or long ago.
    pub(super) fn is_due(&self, is_welcome: bool, now_ns: u64) -> bool {
        if !self.is_hot() {
            return false;
        }
        match self.stage {
            Stage::New => is_welcome && self.cost(Transport::Dc).samples >= TRIAL_SAMPLES,
            Stage::Trial { .. } => false,
            Stage::Settled { since_ns, .. } => {
                let rested_ns = now_ns.saturating_sub(since_ns);
                let retry_ns = RETRY_NS << self.failures.min(MAX_DOUBLINGS);
                (self.has_changed && rested_ns >= REST_NS) || (is_welcome && rested_ns >= retry_ns)
            }
        }
    }

    fn go_by(&mut self, by: Transport) {
        if self.uses != by {
            self.uses = by;
            self.moves = self.moves.saturating_add(1);
        }
    }

    /// Tries the other transport.
    pub(super) fn begin_trial(&mut self, now_ns: u64) {
        let [dc, rc] = &mut self.costs;
        let (used, other) = match self.uses {
            Transport::Dc => (dc, rc),
            Transport::Rc => (rc, dc),
        };
        // The mean may still have much of before: of a change, or of the first requests, which meet
        // cold caches.
        if self.last.count() >= TRIAL_SAMPLES {
            used.renew(&self.last);
        }
        let before = *used;
        // A cost of long ago says nothing.
        *other = Cost::default();
        self.stage = Stage::Trial {
            since_ns: now_ns,
            before,
        };
        self.has_changed = false;
        self.go_by(self.uses.other());
    }

    /// Judges a trial, if it can be. What is better is used then.
    pub(super) fn judge(&mut self, now_ns: u64) -> Option<Outcome> {
        let Stage::Trial { since_ns, before } = self.stage else {
            return None;
        };
        let tried_ns = now_ns.saturating_sub(since_ns);
        let tried = *self.cost(self.uses);
        let costs = compare(&self.heat, &tried, &before);
        let is_known = tried.samples >= TRIAL_SAMPLES && costs.is_some();
        if tried_ns < TRIAL_NS || (!is_known && tried_ns < LONGEST_TRIAL_NS) {
            return None;
        }
        let is_kept = costs
            .filter(|_| is_known)
            .is_some_and(|(new, old)| new <= (old / 100).saturating_mul(KEPT_PER_CENT));
        if is_kept {
            self.failures = 0;
            self.probes = Probes::NEW;
        } else {
            self.probes = self.probes.after_trial();
            self.failures = self.failures.saturating_add(1);
            self.go_by(self.uses.other());
        }
        self.settle(now_ns);
        Some(match (is_known, self.uses) {
            (false, _) => Outcome::Unclear,
            (true, Transport::Rc) => Outcome::RcPays,
            (true, Transport::Dc) => Outcome::DcPays,
        })
    }

    fn settle(&mut self, now_ns: u64) {
        self.stage = Stage::Settled {
            since_ns: now_ns,
            cost: *self.cost(self.uses),
        };
        self.worse_looks = 0;
        self.has_changed = false;
    }

    /// It takes this transport from now on, whatever that costs.
    pub(super) fn take(&mut self, by: Transport) {
        self.stage = Stage::New;
        self.probes = Probes::NEW;
        self.go_by(by);
    }

    /// There is a queue pair that carries other traffic, but not this. Counts as a trial that
    /// came to nothing: a queue pair is not asked for again for this traffic alone.
    pub(super) fn do_without(&mut self, now_ns: u64) {
        if self.uses == Transport::Rc || self.is_due(true, now_ns) {
            self.lost(now_ns);
        }
    }

    /// There is no queue pair any more, or none came up: the next trial takes a pause.
    pub(super) fn lost(&mut self, now_ns: u64) {
        self.failures = self.failures.saturating_add(1);
        self.probes = Probes::NEW;
        self.go_by(Transport::Dc);
        self.settle(now_ns);
    }
}
