// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;
use std::collections::{HashSet, VecDeque};

const MS: u64 = 1_000_000;

#[test]
fn a_request_is_held_while_others_end_and_no_longer() {
    let mut hold = Hold::new(3, 0);
    assert_eq!(hold.look(3, 0), Held::Wait(SILENCE_NS));
    assert_eq!(hold.look(2, 3 * MS), Held::Wait(SILENCE_NS));
    assert_eq!(hold.look(1, 6 * MS), Held::Wait(SILENCE_NS));
    assert_eq!(hold.look(0, 9 * MS), Held::Passed);
}

#[test]
fn a_hold_ends_if_nothing_else_does() {
    let mut hold = Hold::new(3, 0);
    assert_eq!(hold.look(3, SILENCE_NS), Held::GiveUp(SILENCE_NS * 21));
    let mut hold = Hold::new(u32::MAX, 0);
    for ms in 0..LONGEST_HOLD_NS / MS {
        assert!(matches!(
            hold.look(u32::MAX - ms as u32, ms * MS),
            Held::Wait(_)
        ));
    }
    assert_eq!(
        hold.look(7, LONGEST_HOLD_NS),
        Held::GiveUp(LONGEST_HOLD_NS * 21)
    );
}

const IDLE: Crossing = Crossing {
    is_idle: true,
    gives_proof: false,
    has_left: false,
    held_until_ns: 0,
};
const BUSY: Crossing = Crossing {
    is_idle: false,
    ..IDLE
};

#[test]
fn an_idle_queue_pair_goes_at_once_unless_there_is_something_to_prove() {
    assert_eq!(IDLE.course(MS), Course::Go);
    let has_paused = Crossing {
        held_until_ns: 9 * MS,
        ..IDLE
    };
    assert_eq!(has_paused.course(MS), Course::Go);
    let gives_proof = Crossing {
        gives_proof: true,
        ..has_paused
    };
    assert_eq!(gives_proof.course(MS), Course::Stay);
    assert_eq!(gives_proof.course(9 * MS), Course::Hold);
}

#[test]
fn a_busy_queue_pair_holds_its_next_request_unless_one_was_held_for_nothing() {
    assert_eq!(BUSY.course(MS), Course::Hold);
    let has_paused = Crossing {
        held_until_ns: 9 * MS,
        ..BUSY
    };
    assert_eq!(has_paused.course(9 * MS - 1), Course::Stay);
    assert_eq!(has_paused.course(9 * MS), Course::Hold);
}

#[test]
fn a_queue_pair_that_has_left_rc_goes_back_when_it_is_idle() {
    let has_left = |crossing| Crossing {
        has_left: true,
        ..crossing
    };
    assert_eq!(has_left(BUSY).course(MS), Course::Stay);
    assert_eq!(has_left(IDLE).course(MS), Course::Go);
}

/// One end of a queue pair.
#[derive(Clone, PartialEq, Eq, Hash)]
struct End {
    /// `None`: it is used as always, or gone.
    close: Option<Close>,
    is_there: bool,
    /// Requests that it has under way at the other end.
    under_way: u8,
    /// Those that it may still post.
    left: u8,
    /// It may still ask to close.
    may_close: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Message {
    Close,
    Closed,
    Busy,
}

/// Both ends, and the messages to each. Time passes by whole rounds of `ASK_NS`, so that an
/// answer that is not there yet is asked for again; patience is not modelled, because with
/// it any end may let go.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    ends: [End; 2],
    to: [VecDeque<Message>; 2],
    losses: u8,
}

impl State {
    fn set(&mut self, end: usize, close: &Close) {
        self.ends[end].close = Some(*close);
    }

    fn send(&mut self, from: usize, message: Message) {
        self.to[1 - from].push_back(message);
    }

    fn let_go(&mut self, end: usize) {
        assert_eq!(self.ends[1 - end].under_way, 0, "the peer's requests break");
        assert_eq!(self.ends[end].under_way, 0, "requests of its own break");
        self.ends[end].is_there = false;
        self.ends[end].close = None;
    }

    /// Takes a step of the closing end; `is_late`: so late that it asks again.
    fn step(mut self, end: usize, is_late: bool) -> Option<Self> {
        let mut close = self.ends[end].close?;
        let now_ns = match is_late {
            true => 1 + ASK_NS,
            false => 1,
        };
        let is_idle = self.ends[end].under_way == 0;
        let step = close.step(is_idle, 0, now_ns);
        // The clock stands still in the model.
        close.asked_ns = close.asked_ns.map(|_| 1);
        self.set(end, &close);
        match step {
            CloseStep::Wait(_) => {}
            CloseStep::Ask => self.send(end, Message::Close),
            CloseStep::TellBusy => self.send(end, Message::Busy),
            CloseStep::Answer => {
                self.let_go(end);
                self.send(end, Message::Closed);
            }
            CloseStep::End => self.let_go(end),
        }
        Some(self)
    }

    fn receive(mut self, end: usize) -> Option<Self> {
        let message = self.to[end].pop_front()?;
        match (message, self.ends[end].is_there) {
            (Message::Close, false) => {
                self.send(end, Message::Closed);
            }
            (Message::Closed | Message::Busy, false) => {}
            (message, true) => {
                let mut close = self.ends[end].close;
                match (message, &mut close) {
                    (Message::Close, close) => close.get_or_insert(Close::new(1)).asked(),
                    (Message::Closed, Some(close)) => close.agreed(),
                    (Message::Busy, Some(close)) => close.peer_is_busy(1),
                    (Message::Closed | Message::Busy, None) => {}
                }
                if let Some(close) = close {
                    self.set(end, &close);
                }
            }
        }
        Some(self)
    }

    fn successors(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for end in 0..2 {
            let own = &self.ends[end];
            if own.is_there && own.close.is_none() && own.left > 0 {
                let mut next = self.clone();
                next.ends[end].left -= 1;
                next.ends[end].under_way += 1;
                assert!(self.ends[1 - end].is_there, "posted at one that is gone");
                all.push(next);
            }
            if own.under_way > 0 {
                let mut next = self.clone();
                next.ends[end].under_way -= 1;
                all.push(next);
            }
            if own.is_there && own.close.is_none() && own.may_close {
                let mut next = self.clone();
                next.ends[end].may_close = false;
                next.set(end, &Close::new(1));
                all.push(next);
            }
            all.extend(self.clone().step(end, false));
            all.extend(self.clone().step(end, true));
            all.extend(self.clone().receive(end));
            if self.losses > 0 && !self.to[end].is_empty() {
                let mut next = self.clone();
                next.losses -= 1;
                next.to[end].pop_front();
                all.push(next);
            }
        }
        all
    }
}

#[test]
fn a_close_waits_as_long_as_requests_end_or_the_peer_is_busy_and_no_longer() {
    let mut close = Close::new(0);
    let mut now_ns = 0;
    for ended in 1..20 {
        now_ns += PATIENCE_NS - 1;
        assert_ne!(close.step(false, ended, now_ns), CloseStep::End);
    }
    for _ in 0..20 {
        now_ns += PATIENCE_NS - 1;
        close.peer_is_busy(now_ns);
        assert_eq!(close.step(true, 19, now_ns), CloseStep::Ask);
    }
    assert_eq!(close.step(true, 19, now_ns + PATIENCE_NS), CloseStep::End);
}

#[test]
fn who_asks_is_told_once_that_requests_are_under_way() {
    let mut close = Close::new(0);
    close.asked();
    assert_eq!(close.step(false, 0, 1), CloseStep::TellBusy);
    assert!(matches!(close.step(false, 0, 1), CloseStep::Wait(_)));
    close.asked();
    assert_eq!(close.step(false, 0, 2), CloseStep::TellBusy);
    assert_eq!(close.step(true, 1, 3), CloseStep::Answer);
}

/// All states of two ends that may both close at any time, with two requests each and two
/// messages lost: no request breaks, and from each state in which one closes both can let
/// go.
#[test]
fn whatever_is_lost_no_request_breaks_and_both_ends_let_go() {
    let end = End {
        close: None,
        is_there: true,
        under_way: 0,
        left: 2,
        may_close: true,
    };
    let start = State {
        ends: [end.clone(), end],
        to: [VecDeque::new(), VecDeque::new()],
        losses: 2,
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut next = vec![start];
    while let Some(state) = next.pop() {
        for state in state.successors() {
            // More messages on their way than that are repeats of repeats.
            let is_small = state.to.iter().all(|to| to.len() <= 3);
            if is_small && seen.insert(state.clone()) {
                next.push(state);
            }
        }
    }
    assert!(seen.len() > 10_000, "{} states", seen.len());
    // Without further losses, requests or wishes each closing ends: step by step.
    for state in &seen {
        let is_closing = |end: &End| end.close.is_some() || !end.is_there;
        if !state.ends.iter().any(is_closing) {
            continue;
        }
        let mut state = state.clone();
        for _ in 0..40 {
            for end in 0..2 {
                state.ends[end].under_way = 0;
                while !state.to[end].is_empty() {
                    state = state.receive(end).unwrap();
                }
                state = state.clone().step(end, true).unwrap_or(state);
            }
        }
        assert!(state.ends.iter().all(|end| !end.is_there));
    }
}
