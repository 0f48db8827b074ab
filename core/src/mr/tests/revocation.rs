// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Regions that go while a peer uses them: whatever notices are lost, repeated or
//! late, and whenever the peer posts, no request arrives whose memory is gone;
//! and all memory goes in the end.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::{name, REGION};
use crate::mr::*;
use crate::rc::{Poster, Window};

const TOKEN: u64 = 77;

#[test]
fn notices_survive_the_wire_and_nothing_else_is_one() {
    let mut keys = Keys::NONE;
    for key in 1..=NOTICE_KEYS as u32 {
        assert!(keys.push(key << 20));
    }
    assert!(!keys.push(9));
    for kind in [
        NoticeKind::Gone(keys),
        NoticeKind::Gone(Keys::NONE),
        NoticeKind::Unused,
        NoticeKind::InUse,
        NoticeKind::Close,
        NoticeKind::Closed,
        NoticeKind::Busy,
    ] {
        let notice = Notice {
            token: u64::MAX - 1,
            seq: 1 << 40,
            kind,
        };
        let bytes = notice.encode();
        assert_eq!(Notice::decode(&bytes), Some(notice));
        assert_eq!(Notice::decode(&bytes[1..]), None);
        for at in [0, 4, 7] {
            let mut other = bytes;
            other[at] ^= 0x40;
            assert_eq!(Notice::decode(&other), None, "byte {at}");
        }
        let mut unknown = bytes;
        unknown[5] = 7;
        assert_eq!(Notice::decode(&unknown), None, "no kind of notice");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Some(notice) = Notice::decode(&bytes) {
            prop_assert_eq!(&notice.encode()[..], &bytes[..]);
        }
    }
}

#[test]
fn many_removals_cost_few_notices() {
    const REGIONS: u64 = 100;
    let mut ledger = Ledger::EMPTY;
    assert!(ledger.open(TOKEN));
    let removed: Vec<_> = (0..REGIONS).map(|n| (ledger.remove(), n as u32)).collect();
    let (mut notices, mut named) = (0, Vec::new());
    while ledger.is_waiting() {
        let notice = ledger.next(removed.iter().copied(), 5).unwrap();
        let NoticeKind::Gone(keys) = notice.kind else {
            panic!("an answer");
        };
        assert_eq!(notice.token, TOKEN);
        assert!(
            ledger.next(removed.iter().copied(), 5).is_none(),
            "one at a time"
        );
        named.extend_from_slice(keys.as_slice());
        ledger.answered(TOKEN, notice.seq);
        notices += 1;
    }
    assert_eq!(notices, REGIONS.div_ceil(NOTICE_KEYS as u64));
    assert_eq!(named, (0..REGIONS as u32).collect::<Vec<_>>());
    assert!(ledger.is_unused(REGIONS));
}

#[test]
fn a_silent_peer_is_asked_again_and_then_loses_its_connection() {
    let mut ledger = Ledger::EMPTY;
    assert!(ledger.open(TOKEN));
    let seq = ledger.remove();
    let ask = |ledger: &mut Ledger, now_ns| {
        let next = ledger.next([(seq, 3)].into_iter(), now_ns);
        next.map(|notice| notice.seq)
    };
    assert_eq!(ask(&mut ledger, 0), Some(seq));
    assert_eq!(ask(&mut ledger, REPEAT_NS - 1), None);
    assert_eq!(ask(&mut ledger, REPEAT_NS), Some(seq));
    assert!(!ledger.is_overdue(TOKEN, LEASE_NS - 1));
    assert!(
        ledger.is_overdue(TOKEN, LEASE_NS),
        "repeating gives no time"
    );
    ledger.answered(TOKEN + 1, seq);
    ledger.answered(TOKEN, seq + 1);
    assert!(!ledger.is_unused(seq), "neither was its answer");
    ledger.close(TOKEN);
    assert!(ledger.is_unused(seq) && !ledger.has_peers() && !ledger.is_waiting());
}

#[test]
fn a_peer_that_says_that_it_uses_a_region_has_more_time_but_not_for_ever() {
    let mut ledger = Ledger::EMPTY;
    assert!(ledger.open(TOKEN));
    let seq = ledger.remove();
    assert!(ledger.next([(seq, 3)].into_iter(), 0).is_some());
    ledger.in_use(TOKEN + 1, seq, 1);
    ledger.in_use(TOKEN, seq + 1, 1);
    assert!(ledger.is_overdue(TOKEN, LEASE_NS), "neither was its word");
    let mut said_ns = 0;
    while said_ns + REPEAT_NS + LEASE_NS < LEASE_MAX_NS {
        said_ns += REPEAT_NS;
        ledger.in_use(TOKEN, seq, said_ns);
        assert!(!ledger.is_unused(seq));
        assert!(!ledger.is_overdue(TOKEN, said_ns + LEASE_NS - 1));
        assert!(ledger.is_overdue(TOKEN, said_ns + LEASE_NS), "silence");
    }
    ledger.in_use(TOKEN, seq, LEASE_MAX_NS - 1);
    assert!(!ledger.is_overdue(TOKEN, LEASE_MAX_NS - 1));
    assert!(ledger.is_overdue(TOKEN, LEASE_MAX_NS));
    ledger.answered(TOKEN, seq);
    assert!(ledger.is_unused(seq) && !ledger.is_overdue(TOKEN, LEASE_MAX_NS));
}

#[test]
fn who_connects_later_has_nothing_to_answer() {
    let mut ledger = Ledger::EMPTY;
    assert!(ledger.open(TOKEN));
    let seq = ledger.remove();
    assert!(ledger.open(TOKEN + 1));
    ledger.close(TOKEN);
    assert!(ledger.is_unused(seq) && !ledger.is_waiting());
}

#[test]
fn there_is_an_end_to_connections() {
    let mut ledger = Ledger::EMPTY;
    for token in 0..LEDGER_LINES as u64 {
        assert!(ledger.open(token));
    }
    assert!(!ledger.open(1000));
    ledger.close(3);
    assert!(!ledger.open(4), "it is there");
    assert!(ledger.open(1000));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    Live,
    /// Under this number; still registered.
    Removed(u64),
    Freed,
}

/// What is on its way on the queue pair.
#[derive(Clone, Copy, Debug)]
enum Request {
    Use(u32),
    /// READ of the table.
    LookUp(u32),
}

/// What the peer's poster is at.
#[derive(Clone, Copy, Debug)]
enum Posting {
    Idle,
    /// The READ is on its way, or has come with this answer.
    Asking(u32, u64, Option<bool>),
    /// It may use the key, if nothing was forgotten since.
    Prepared(u32, u32),
}

struct Sim {
    regions: BTreeMap<u32, Region>,
    ledger: Ledger,
    connected: bool,

    store: Store,
    forgotten: u32,
    window: Window,
    poster: Poster,
    posting: Posting,
    /// The number to answer, and the request before which it must not be.
    owes: Option<(u64, u32)>,
    /// It was not said yet that the answer has to wait.
    is_asked: bool,

    wire: VecDeque<Request>,
    to_peer: VecDeque<Notice>,
    to_owner: VecDeque<Notice>,
    now_ns: u64,
    used: usize,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Register,
    Remove(u32),
    Tell,
    LoseNotice,
    Hear,
    LoseAnswer,
    Answered,
    Prepare(u32),
    Post,
    Execute,
    Owed,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Register),
        2 => (0u32..6).prop_map(Step::Remove),
        4 => Just(Step::Tell),
        1 => Just(Step::LoseNotice),
        4 => Just(Step::Hear),
        1 => Just(Step::LoseAnswer),
        4 => Just(Step::Answered),
        10 => (0u32..6).prop_map(Step::Prepare),
        16 => Just(Step::Post),
        4 => Just(Step::Execute),
        6 => Just(Step::Owed),
        1 => (0u64..400_000_000).prop_map(Step::Pass),
    ]
}

impl Sim {
    fn new() -> Self {
        let (window, poster) = Window::new(8, 4, 1 << 20).unwrap();
        let mut ledger = Ledger::EMPTY;
        assert!(ledger.open(TOKEN));
        Self {
            regions: BTreeMap::new(),
            ledger,
            connected: true,
            store: Store::EMPTY,
            forgotten: 0,
            window,
            poster,
            posting: Posting::Idle,
            owes: None,
            is_asked: false,
            wire: VecDeque::new(),
            to_peer: VecDeque::new(),
            to_owner: VecDeque::new(),
            now_ns: 0,
            used: 0,
        }
    }

    fn waiting(&self) -> Vec<(u64, u32)> {
        let mut waiting: Vec<_> = self
            .regions
            .iter()
            .filter_map(|(key, region)| match region {
                Region::Removed(seq) => Some((*seq, *key)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
    }

    fn tell(&mut self) {
        let next = self.ledger.next(self.waiting().into_iter(), self.now_ns);
        self.to_peer.extend(next);
    }

    fn free(&mut self) {
        for region in self.regions.values_mut() {
            if matches!(region, Region::Removed(seq) if self.ledger.is_unused(*seq)) {
                *region = Region::Freed;
            }
        }
    }

    fn hear(&mut self) {
        let Some(notice) = self.to_peer.pop_front() else {
            return;
        };
        let NoticeKind::Gone(keys) = notice.kind else {
            panic!("an answer to the peer");
        };
        self.store.forget(keys.as_slice());
        self.forgotten += 1;
        if self.owes.is_none_or(|(seq, _)| seq != notice.seq) {
            self.owes = Some((notice.seq, self.window.published()));
        }
        self.is_asked = true;
    }

    fn answer(&mut self) {
        if let Some((seq, _)) = self
            .owes
            .take_if(|(_, until)| self.window.has_passed(*until))
        {
            self.say(seq, NoticeKind::Unused);
        } else if let Some((seq, _)) = self.owes.filter(|_| self.is_asked) {
            self.is_asked = false;
            self.say(seq, NoticeKind::InUse);
        }
    }

    fn say(&mut self, seq: u64, kind: NoticeKind) {
        let token = TOKEN;
        self.to_owner.push_back(Notice { token, seq, kind });
    }

    fn claim(&mut self, request: Request) -> bool {
        let claimed = self.window.claim(&mut self.poster, 1).is_some();
        if claimed {
            self.window.publish(&self.poster);
            self.wire.push_back(request);
        }
        claimed
    }

    fn prepare(&mut self, key: u32) {
        let before = self.forgotten;
        if !matches!(self.posting, Posting::Idle) {
            return;
        }
        if self.store.find(name(key), self.now_ns).is_some() {
            self.posting = Posting::Prepared(key, before);
        } else if self.claim(Request::LookUp(key)) {
            self.store.ask(name(key));
            self.posting = Posting::Asking(key, self.now_ns, None);
        }
    }

    fn post(&mut self) {
        match self.posting {
            Posting::Asking(key, asked_ns, Some(there)) => {
                let before = self.forgotten;
                let usable = there && self.store.learn(name(key), REGION, asked_ns);
                self.posting = match usable {
                    true => Posting::Prepared(key, before),
                    false => Posting::Idle,
                };
            }
            Posting::Prepared(_, before) if before != self.forgotten => {
                self.posting = Posting::Idle;
            }
            Posting::Prepared(key, _) => {
                if self.claim(Request::Use(key)) {
                    self.posting = Posting::Idle;
                }
            }
            _ => {}
        }
    }

    /// The oldest request on the queue pair is carried out, and its end noticed.
    fn execute(&mut self) {
        let Some(request) = self.wire.pop_front() else {
            return;
        };
        match request {
            Request::Use(key) => {
                assert_ne!(self.regions[&key], Region::Freed, "key {key}");
                self.used += 1;
            }
            Request::LookUp(key) => {
                let there = self.regions.get(&key) == Some(&Region::Live);
                if let Posting::Asking(_, _, answer) = &mut self.posting {
                    *answer = Some(there);
                }
            }
        }
        self.window.retire(1);
    }

    /// The owner breaks the connection: nothing arrives any more.
    fn disconnect_if_overdue(&mut self) {
        if self.ledger.is_overdue(TOKEN, self.now_ns) {
            self.wire.clear();
            self.connected = false;
            self.ledger.close(TOKEN);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Register => {
                let key = self.regions.len() as u32;
                self.regions.insert(key, Region::Live);
            }
            Step::Remove(key) => {
                if let Some(region) = self.regions.get_mut(&key) {
                    if *region == Region::Live {
                        *region = Region::Removed(self.ledger.remove());
                    }
                }
            }
            Step::Tell => self.tell(),
            Step::LoseNotice => drop(self.to_peer.pop_front()),
            Step::Hear => self.hear(),
            Step::LoseAnswer => drop(self.to_owner.pop_front()),
            Step::Answered => {
                if let Some(Notice { token, seq, kind }) = self.to_owner.pop_front() {
                    match kind {
                        NoticeKind::Unused => self.ledger.answered(token, seq),
                        NoticeKind::InUse => self.ledger.in_use(token, seq, self.now_ns),
                        NoticeKind::Close | NoticeKind::Closed | NoticeKind::Busy => {
                            panic!("nobody closes it")
                        }
                        NoticeKind::Gone(_) => panic!("the peer has no regions"),
                    }
                }
            }
            Step::Prepare(key) if self.connected => self.prepare(key),
            Step::Post if self.connected => self.post(),
            Step::Execute => self.execute(),
            Step::Owed => self.answer(),
            Step::Pass(time_ns) => {
                self.now_ns += time_ns;
                self.disconnect_if_overdue();
            }
            Step::Prepare(_) | Step::Post => {}
        }
        self.free();
    }

    /// Nothing new is posted or removed, and no notice is lost.
    fn settle(&mut self) {
        for _ in 0..200 {
            if self.waiting().is_empty() {
                return;
            }
            for step in [
                Step::Execute,
                Step::Tell,
                Step::Hear,
                Step::Owed,
                Step::Answered,
                Step::Pass(REPEAT_NS / 4),
            ] {
                self.step(step);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_request_arrives_whose_memory_is_gone(
        steps in proptest::collection::vec(steps(), 1..200),
    ) {
        let mut sim = Sim::new();
        for step in steps {
            sim.step(step);
        }
        sim.settle();
        prop_assert_eq!(sim.waiting(), vec![], "memory that never goes");
    }
}

#[test]
fn a_peer_that_answers_keeps_its_connection_and_its_requests() {
    let mut sim = Sim::new();
    for round in 0..100 {
        sim.step(Step::Register);
        sim.step(Step::Prepare(round));
        sim.step(Step::Execute);
        sim.step(Step::Post);
        sim.step(Step::Post);
        // It goes while the request is on its way.
        sim.step(Step::Remove(round));
        sim.step(Step::Tell);
        sim.step(Step::Hear);
        sim.step(Step::Owed);
        sim.step(Step::Answered);
        assert!(sim.ledger.is_waiting(), "its request has not ended");
        sim.step(Step::Execute);
        sim.step(Step::Owed);
        sim.step(Step::Answered);
        assert_eq!(sim.regions[&round], Region::Freed);
    }
    assert!(sim.connected);
    assert_eq!(sim.used, 100);
}
