// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events in the order of their times, until all members have all messages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{Context as _, Result};
use weft::rdmc::schedule::{Schedule, Transfer};
use weft_testkit::rng::Rng;

use super::case::{Case, Placement};
use super::member::{Member, Stall, Stalls};
use super::network::{ns, Network, Ns};

/// What a simulation found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Steps of each schedule.
    pub steps: usize,
    /// Until the last member has the last message.
    pub total_ns: Ns,
    /// From when the first receiver of a message has it until the last one has:
    /// the longest of all messages.
    pub skew_ns: Ns,
    /// Blocks that went from rack to rack.
    pub crossings: u64,
    /// How long members that send wait, on average.
    pub stalls: Stalls,
}

/// Simulates a case.
pub fn simulate(case: &Case) -> Result<Outcome> {
    case.check()?;
    let blocks = usize::try_from(case.blocks()).context("too many blocks")?;
    let part = |rank| Schedule::new(case.algorithm, rank, case.members, blocks);
    let parts = (0..case.members).map(part).collect::<Result<Vec<_>, _>>()?;
    let mut simulation = Simulation::new(case, &parts, blocks);
    simulation.run();
    simulation.outcome()
}

/// A member of one of the multicasts: its place in `Simulation::members`.
type Seat = usize;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A sender hears that a target is ready.
    Ready { sender: Seat },
    /// A sender's software hands its block to the link.
    Post { sender: Seat },
    /// A block enters the sender's link.
    Enter { sender: Seat },
    /// A block gets to the target's link.
    Land { sender: Seat },
    /// The last bit of a block is at the target.
    Sent { sender: Seat },
    /// The target's software sees a block.
    Received { target: Seat, block: usize },
}

struct Simulation<'a> {
    case: &'a Case,
    network: Network<'a>,
    /// By multicast, then by rank.
    members: Vec<Member<'a>>,
    /// Where each of them is.
    nodes: Vec<usize>,
    done_ns: Vec<Option<Ns>>,
    steps: usize,
    /// Events that are due at the same time keep the order in which they were
    /// planned.
    agenda: BinaryHeap<Reverse<(Ns, u64, Event)>>,
    planned: u64,
    now: Ns,
    rng: Rng,
    latency_ns: Ns,
}

impl<'a> Simulation<'a> {
    fn new(case: &'a Case, parts: &'a [Schedule], blocks: usize) -> Self {
        let mut rng = Rng::new(case.seed);
        let places = places(case, &mut rng);
        let mut members = Vec::new();
        let mut nodes = Vec::new();
        for root in 0..case.senders {
            for (rank, part) in parts.iter().enumerate() {
                members.push(Member::new(part, rank, blocks));
                nodes.push(places[(root + rank) % case.members]);
            }
        }
        Self {
            case,
            network: Network::new(&case.links, case.nodes),
            done_ns: vec![None; members.len()],
            members,
            nodes,
            steps: parts[0].steps(),
            agenda: BinaryHeap::new(),
            planned: 0,
            now: 0,
            rng,
            latency_ns: ns(case.links.latency_us),
        }
    }

    fn run(&mut self) {
        // Receives for the first blocks are posted when the group is made.
        for seat in 0..self.members.len() {
            let _ = self.members[seat].post_receive(1, 0);
        }
        for seat in (0..self.members.len()).step_by(self.case.members) {
            self.try_send(seat);
        }
        while let Some(Reverse((now, _, event))) = self.agenda.pop() {
            self.now = now;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ready { sender } => self.try_send(sender),
            Event::Post { sender } => self.post(sender),
            Event::Enter { sender } => self.enter(sender),
            Event::Land { sender } => self.land(sender),
            Event::Sent { sender } => {
                self.members[sender].end_send();
                self.try_send(sender);
            }
            Event::Received { target, block } => self.receive(target, block),
        }
    }

    /// Sends the member's next block, if nothing is in its way.
    fn try_send(&mut self, seat: Seat) {
        if self.members[seat].is_sending() {
            return;
        }
        let Some(transfer) = self.members[seat].current() else {
            return;
        };
        let stall = self.stall(seat, transfer);
        let member = &mut self.members[seat];
        member.stall(stall, self.now);
        if stall.is_some() {
            return;
        }
        member.begin_send();
        match self.jitter() {
            0 => self.post(seat),
            delay => self.plan(delay, Event::Post { sender: seat }),
        }
    }

    /// What is in the way of a member's next block.
    fn stall(&self, seat: Seat, Transfer { peer, block }: Transfer) -> Option<Stall> {
        if !self.members[seat].has(block) {
            return Some(Stall::Block);
        }
        let rank = seat % self.case.members;
        let target = &self.members[self.peer(seat, peer)];
        (!target.is_ready_for(rank, block, self.now)).then_some(Stall::Target)
    }

    fn post(&mut self, seat: Seat) {
        let Some(transfer) = self.members[seat].current() else {
            return;
        };
        let bytes = self.bytes(transfer.block);
        let begin = self.network.enter(self.nodes[seat], bytes, self.now);
        match begin - self.now {
            0 => self.enter(seat),
            delay => self.plan(delay, Event::Enter { sender: seat }),
        }
    }

    fn enter(&mut self, seat: Seat) {
        let Some(Transfer { peer, block }) = self.members[seat].current() else {
            return;
        };
        let ends = (self.nodes[seat], self.nodes[self.peer(seat, peer)]);
        let there = self.network.cross(ends, self.bytes(block), self.now);
        match there - self.now {
            0 => self.land(seat),
            delay => self.plan(delay, Event::Land { sender: seat }),
        }
    }

    fn land(&mut self, seat: Seat) {
        let Some(Transfer { peer, block }) = self.members[seat].current() else {
            return;
        };
        let target = self.peer(seat, peer);
        let ends = (self.nodes[seat], self.nodes[target]);
        let span = self.network.land(ends, self.bytes(block), self.now) - self.now;
        self.plan(span, Event::Sent { sender: seat });
        self.plan(span + self.latency_ns, Event::Received { target, block });
    }

    fn receive(&mut self, seat: Seat, block: usize) {
        if self.members[seat].receive(block) {
            self.done_ns[seat] = Some(self.now);
        }
        let most = self.case.links.posted;
        let ready_ns = self.now + self.latency_ns;
        while let Some(sender) = self.members[seat].post_receive(most, ready_ns) {
            let sender = self.peer(seat, sender);
            self.plan(self.latency_ns, Event::Ready { sender });
        }
        self.try_send(seat);
    }

    fn plan(&mut self, delay: Ns, event: Event) {
        self.planned += 1;
        let entry = (self.now + delay, self.planned, event);
        self.agenda.push(Reverse(entry));
    }

    fn jitter(&mut self) -> Ns {
        let mean_us = self.case.links.jitter_us;
        if mean_us == 0.0 {
            return 0;
        }
        // 53 bits are as many as a number in [0, 1) can have.
        let uniform = (self.rng.next() >> 11) as f64 / (1u64 << 53) as f64;
        ns(-mean_us * (1.0 - uniform).ln())
    }

    /// The seat of a rank of the same multicast.
    fn peer(&self, seat: Seat, rank: usize) -> Seat {
        seat - seat % self.case.members + rank
    }

    fn bytes(&self, block: usize) -> u64 {
        let before = block as u64 * self.case.block_bytes;
        (self.case.bytes - before).min(self.case.block_bytes)
    }

    fn outcome(&self) -> Result<Outcome> {
        let mut total_ns = 0;
        let mut skew_ns = 0;
        for done in self.done_ns.chunks(self.case.members) {
            let receivers: Option<Vec<Ns>> = done[1..].iter().copied().collect();
            let receivers = receivers.context("the schedule leaves members without blocks")?;
            let last = receivers.iter().copied().max().unwrap_or(0);
            let first = receivers.iter().copied().min().unwrap_or(0);
            total_ns = total_ns.max(last);
            skew_ns = skew_ns.max(last - first);
        }
        Ok(Outcome {
            steps: self.steps,
            total_ns,
            skew_ns,
            crossings: self.network.crossings(),
            stalls: self.mean_stalls(),
        })
    }

    fn mean_stalls(&self) -> Stalls {
        let mut sum = Stalls::default();
        let mut senders = 0;
        for member in self.members.iter().filter(|member| member.has_sent()) {
            sum.add(member.stalls());
            senders += 1;
        }
        sum.mean(senders)
    }
}

/// The node of each rank of the first multicast.
fn places(case: &Case, rng: &mut Rng) -> Vec<usize> {
    let mut places: Vec<usize> = (0..case.nodes).collect();
    if case.placement == Placement::Random {
        for last in (1..places.len()).rev() {
            places.swap(last, rng.below(last + 1));
        }
    }
    places.truncate(case.members);
    places
}
