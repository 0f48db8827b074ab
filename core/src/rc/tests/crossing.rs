// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Two nodes that connect to each other, in simulated time: their messages are lost, late and
//! out of order, and their queue pairs break at one end before the other. Each end is run as
//! `kmod/rc` runs it: by [`Want`], [`Seen`], [`displaced`] and [`is_superseded`].

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::vec::Vec;

use super::answer;
use crate::gid::Gid;
use crate::rc::{
    displaced, half_open, is_superseded, usable, Lane, LinkView, Seen, Stage, Step, Want, WantedBy,
};

const SEEDS: u64 = 20_000;
const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MS;
/// Until then messages are lost and queue pairs break.
const QUIET_NS: u64 = 12 * SECOND_NS;
/// Longer than any pause of a want, and what follows it.
const END_NS: u64 = QUIET_NS + 25 * SECOND_NS;
/// Queue pairs that break.
const BREAKS: u64 = 8;
/// How late messages are, at most, in a run.
const DELAYS_NS: [u64; 4] = [MS, 50 * MS, 300 * MS, 3 * SECOND_NS];
/// How often messages are lost in a run, of ten.
const LOSSES: [u64; 3] = [0, 1, 5];
/// How long it takes to make a queue pair, at most.
const MAKING_NS: u64 = 20 * MS;
/// How long a request takes that ends well, at most; and one that breaks its queue pair.
const TRIP_NS: u64 = 5 * MS;
const PATIENCE_NS: u64 = 800 * MS;
/// How much later than the other an end notices that a queue pair has gone, at most.
const NOTICED_NS: u64 = 2 * SECOND_NS;
/// Checks of a queue pair that is not up before it is given up.
const MAX_CHECKS: u32 = 5;

/// The number of a queue pair.
type Token = u64;

/// An event at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Its connector takes its steps.
    Work,
    /// Its connector has made an offer.
    OfferMade(Token),
    Offer(Token),
    /// It has made the queue pair that answers an offer.
    AnswerMade(Token),
    Answer(Token),
    /// Its connector has connected the queue pair that was answered.
    Connected(Token),
    /// The first message arrives.
    Ready(Token),
    /// The first message has arrived.
    Told(Token),
    Breaks(Token),
    /// The queue pair that is in use breaks.
    Trouble,
    Upkeep,
}

struct Link {
    view: LinkView,
    token: Token,
    checks: u32,
}

struct End {
    gid: Gid,
    want: Want,
    /// The newest is last.
    links: Vec<Link>,
    /// The queue pair of the offer that is out.
    opening: Option<Token>,
    /// The connector is in the middle of a step.
    is_at_work: bool,
    /// When it runs next.
    work_ns: u64,
    answering: Option<Token>,
    /// The next offer to answer.
    pending: Option<Token>,
}

impl End {
    fn new(own: u8, peer: u8) -> Self {
        let peer = Lane::first(Gid::from_ipv4([10, 77, 0, peer]));
        Self {
            gid: Gid::from_ipv4([10, 77, 0, own]),
            want: Want::new(peer, WantedBy::Pin, 0),
            links: Vec::new(),
            opening: None,
            is_at_work: false,
            work_ns: 0,
            answering: None,
            pending: None,
        }
    }

    fn views(&self) -> impl Iterator<Item = LinkView> + '_ {
        self.links.iter().map(|link| link.view)
    }

    fn push(&mut self, token: Token, stage: Stage) {
        let lane = *self.want.lane();
        self.links.push(Link {
            view: LinkView { lane, stage },
            token,
            checks: 0,
        });
    }

    fn find(&mut self, token: Token) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.token == token)
    }

    fn stage(&self, token: Token) -> Option<Stage> {
        let link = self.links.iter().find(|link| link.token == token);
        link.map(|link| link.view.stage)
    }

    fn up(&self) -> Vec<Token> {
        let up = self.links.iter().filter(|l| l.view.stage == Stage::Up);
        up.map(|link| link.token).collect()
    }

    fn used(&self) -> Option<Token> {
        usable(self.views(), self.want.lane()).map(|index| self.links[index].token)
    }
}

struct World {
    rng: fastrand::Rng,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    count: u64,
    ends: [End; 2],
    loss: u64,
    delay_ns: u64,
    /// Two queue pairs were up at both ends, of which each end used another.
    has_crossed: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let loss = LOSSES[rng.usize(..LOSSES.len())];
        let delay_ns = DELAYS_NS[rng.usize(..DELAYS_NS.len())];
        let mut this = Self {
            rng,
            now_ns: 0,
            events: BinaryHeap::new(),
            count: 0,
            ends: [End::new(1, 2), End::new(2, 1)],
            loss,
            delay_ns,
            has_crossed: false,
        };
        for end in 0..2 {
            let work_ns = this.rng.u64(..SECOND_NS);
            this.schedule(end, work_ns);
            this.within(end, SECOND_NS, Event::Upkeep);
        }
        for _ in 0..BREAKS {
            let end = this.rng.usize(..2);
            this.within(end, QUIET_NS, Event::Trouble);
        }
        this
    }

    fn at(&mut self, at_ns: u64, end: usize, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at_ns, self.count, end, event)));
    }

    /// Something happens within that time.
    fn within(&mut self, end: usize, time_ns: u64, event: Event) {
        let at_ns = self.now_ns + self.rng.u64(1..=time_ns);
        self.at(at_ns, end, event);
    }

    /// The connector of an end runs then, in place of the time that was set before.
    fn schedule(&mut self, end: usize, at_ns: u64) {
        self.ends[end].work_ns = at_ns;
        self.at(at_ns, end, Event::Work);
    }

    /// An offer or an answer goes to an end.
    fn send(&mut self, to: usize, event: Event) {
        let is_quiet = self.now_ns >= QUIET_NS;
        if is_quiet || self.rng.u64(..10) >= self.loss {
            let delay_ns = if is_quiet { MS } else { self.delay_ns };
            self.within(to, delay_ns, event);
        }
    }

    /// Takes a queue pair out at an end. The other end notices.
    fn discard(&mut self, end: usize, token: Token) {
        self.ends[end].links.retain(|link| link.token != token);
        self.within(1 - end, NOTICED_NS, Event::Breaks(token));
        self.schedule(end, self.now_ns);
    }

    fn work(&mut self, end: usize) {
        let random = self.rng.u32(..);
        let this = &mut self.ends[end];
        if this.is_at_work {
            return;
        }
        let is_being_answered = this.answering.is_some();
        let seen = Seen::of(this.views(), this.want.lane(), is_being_answered);
        let step = this.want.step(seen, self.now_ns, random);
        if !this.want.has_offer() {
            this.opening = None;
        }
        match step {
            Step::Offer => {
                this.is_at_work = true;
                if let Some(index) = half_open(this.views(), this.want.lane()) {
                    let token = this.links[index].token;
                    self.discard(end, token);
                }
                let made = Event::OfferMade(self.count);
                self.within(end, MAKING_NS, made);
            }
            Step::Finish(answer) => {
                assert_eq!(this.opening.take(), Some(answer.token));
                this.is_at_work = true;
                self.within(end, MAKING_NS, Event::Connected(answer.token));
            }
            Step::Wait(until_ns) => {
                if let Some(until_ns) = until_ns {
                    assert!(until_ns > self.now_ns, "it turns in circles");
                    self.schedule(end, until_ns);
                }
            }
            Step::Forget => panic!("it is pinned"),
        }
    }

    /// Its connector has connected, or failed to.
    fn finished(&mut self, end: usize, is_up: bool) {
        let random = self.rng.u32(..);
        let this = &mut self.ends[end];
        match is_up {
            true => this.want.connected(self.now_ns),
            false => this.want.failed(self.now_ns, random),
        }
        this.is_at_work = false;
        self.work(end);
    }

    fn answer_next(&mut self, end: usize) {
        let this = &mut self.ends[end];
        if this.answering.is_some() {
            return;
        }
        let Some(token) = this.pending.take() else {
            return;
        };
        if !this.want.prevails(&this.gid) {
            this.answering = Some(token);
            self.within(end, MAKING_NS, Event::AnswerMade(token));
        }
    }

    fn answered(&mut self, end: usize, token: Token) {
        let this = &mut self.ends[end];
        let old = displaced(this.views(), this.want.lane());
        let old = old.map(|index| this.links[index].token);
        this.push(token, Stage::HalfOpen);
        this.answering = None;
        if let Some(old) = old {
            self.discard(end, old);
        }
        self.send(1 - end, Event::Answer(token));
        self.work(end);
        self.answer_next(end);
    }

    /// The first message of the other end arrives at one, unless that has let go meanwhile.
    fn ready(&mut self, end: usize, token: Token) {
        let link = self.ends[end].find(token);
        match link.filter(|link| link.view.stage == Stage::HalfOpen) {
            Some(link) => {
                link.view.stage = Stage::Up;
                self.within(1 - end, TRIP_NS, Event::Told(token));
            }
            None => self.at(self.now_ns + PATIENCE_NS, 1 - end, Event::Told(token)),
        }
    }

    /// The first message has ended; well, if the other end has the queue pair.
    fn told(&mut self, end: usize, token: Token) {
        let is_there = self.ends[1 - end].stage(token) == Some(Stage::Up);
        let link = self.ends[end].find(token);
        let link = link.filter(|link| is_there && link.view.stage == Stage::Finishing);
        let is_up = link.map(|link| link.view.stage = Stage::Up).is_some();
        if !is_up {
            self.discard(end, token);
        }
        self.finished(end, is_up);
    }

    fn breaks(&mut self, end: usize, token: Token) {
        if let Some(link) = self.ends[end].find(token) {
            if link.view.stage != Stage::Broken {
                link.view.stage = Stage::Broken;
                self.within(1 - end, NOTICED_NS, Event::Breaks(token));
            }
        }
    }

    fn upkeep(&mut self, end: usize) {
        let mut index = 0;
        while index < self.ends[end].links.len() {
            let this = &mut self.ends[end];
            let is_superseded = is_superseded(this.views(), index, this.want.lane());
            let link = &mut this.links[index];
            link.checks += u32::from(link.view.stage != Stage::Up);
            let is_lost = link.view.stage == Stage::Broken || link.checks > MAX_CHECKS;
            if is_lost || is_superseded {
                let token = link.token;
                self.discard(end, token);
            } else {
                index += 1;
            }
        }
        self.at(self.now_ns + SECOND_NS, end, Event::Upkeep);
    }

    fn handle(&mut self, end: usize, event: Event) {
        match event {
            Event::Work if self.ends[end].work_ns == self.now_ns => self.work(end),
            Event::Work => {}
            Event::OfferMade(token) => {
                let this = &mut self.ends[end];
                this.opening = Some(token);
                this.want.offered(token, self.now_ns);
                this.is_at_work = false;
                self.send(1 - end, Event::Offer(token));
                self.work(end);
            }
            Event::Offer(token) => {
                self.ends[end].pending = Some(token);
                self.answer_next(end);
            }
            Event::AnswerMade(token) => self.answered(end, token),
            Event::Answer(token) => {
                let this = &mut self.ends[end];
                let from = this.want.lane().gid;
                if this.want.answered(&from, &answer(from, token)) {
                    self.work(end);
                }
            }
            Event::Connected(token) => {
                self.ends[end].push(token, Stage::Finishing);
                self.within(1 - end, TRIP_NS, Event::Ready(token));
            }
            Event::Ready(token) => self.ready(end, token),
            Event::Told(token) => self.told(end, token),
            Event::Breaks(token) => self.breaks(end, token),
            Event::Trouble => {
                if let Some(token) = self.ends[end].used() {
                    self.breaks(end, token);
                }
            }
            Event::Upkeep => self.upkeep(end),
        }
    }

    /// Whether each end would use another one of two that are up at both.
    fn crosses(&self) -> bool {
        let [one, other] = self.ends.each_ref().map(|end| end.up());
        let newest = |of: &[Token], with: &[Token]| of.iter().rfind(|t| with.contains(t)).copied();
        newest(&one, &other) != newest(&other, &one)
    }

    fn run(mut self) -> Self {
        while let Some(Reverse((at_ns, _, end, event))) = self.events.pop() {
            if at_ns > END_NS {
                break;
            }
            self.now_ns = at_ns;
            self.handle(end, event);
            self.has_crossed |= self.crosses();
        }
        self
    }
}

#[test]
fn two_ends_agree_on_a_queue_pair() {
    for seed in 0..SEEDS {
        let world = World::new(seed).run();
        let [one, other] = world.ends.each_ref().map(|end| end.up());
        assert!(
            one.len() == 1 && one == other,
            "seed {seed}: {one:?}, {other:?}"
        );
        assert!(!world.has_crossed, "seed {seed}: they crossed");
    }
}
