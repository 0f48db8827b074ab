// SPDX-License-Identifier: GPL-2.0 OR MIT

mod crossing;

use super::*;
use crate::gid::Gid;
use crate::kv::Geometry;
use crate::mr::BlockSize;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A node's answer to an offer of the first queue pair.
pub(super) fn answer(gid: Gid, token: u64) -> Hello {
    Hello {
        role: Role::Answer,
        gid,
        lane: 0,
        token,
        qpn: 17,
        psn: 1,
        mtu: 5,
        read_depth: 1,
        table_addr: 0,
        table_rkey: 1,
        geometry: Geometry::new(64, 80).unwrap(),
        blocks: BlockSize::new(21).unwrap(),
        nonce: 1,
        packets: None,
    }
}

/// A queue pair with queues of fixed size, as hardware has them: overflow is an
/// error there.
struct Hardware {
    sq_depth: usize,
    cq_depth: usize,
    /// Posted and not carried out.
    sq: VecDeque<(u32, bool)>,
    /// Carried out, but in the send queue until the completion of a later
    /// signalled one was taken.
    lingering: usize,
    cq: VecDeque<(u64, bool)>,
    broken: bool,
}

impl Hardware {
    fn new(depth: usize) -> Self {
        Self {
            sq_depth: depth,
            cq_depth: depth,
            sq: VecDeque::new(),
            lingering: 0,
            cq: VecDeque::new(),
            broken: false,
        }
    }

    fn post(&mut self, seq: u32, signaled: bool) {
        self.sq.push_back((seq, signaled));
        assert!(
            self.sq.len() + self.lingering <= self.sq_depth,
            "the send queue overflows"
        );
    }

    /// Carries one request out; once broken it flushes.
    fn advance(&mut self, breaks: bool) {
        let Some((seq, signaled)) = self.sq.pop_front() else {
            return;
        };
        self.broken |= breaks;
        self.lingering += 1;
        if signaled || self.broken {
            self.cq
                .push_back((WrId::Request(seq).encode(), !self.broken));
            assert!(
                self.cq.len() <= self.cq_depth,
                "the completion queue overflows"
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Requests with (asks for a completion, is refused by the pre-check, bytes).
    Post(Vec<(bool, bool, u32)>),
    Advance {
        breaks: bool,
    },
    Poll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = (any::<bool>(), prop::bool::weighted(0.1), 0u32..64);
    let step = prop_oneof![
        3 => prop::collection::vec(request, 1..20).prop_map(Step::Post),
        6 => prop::bool::weighted(0.01).prop_map(|breaks| Step::Advance { breaks }),
        4 => Just(Step::Poll),
    ];
    prop::collection::vec(step, 0..200)
}

/// What the driver in the kernel does, with lists.
struct Driver {
    window: Window,
    poster: Poster,
    hardware: Hardware,
    /// Outstanding: number, refused, bytes.
    slots: VecDeque<(u32, bool, u32)>,
    ended: Vec<(u32, bool)>,
    posted: u32,
}

impl Driver {
    fn new(depth: u32, interval: u32, budget: u64, first: u32) -> Self {
        let (window, poster) = Window::starting_at(depth, interval, budget, first).unwrap();
        Self {
            window,
            poster,
            hardware: Hardware::new(depth as usize),
            slots: VecDeque::new(),
            ended: Vec::new(),
            posted: 0,
        }
    }

    fn post(&mut self, requests: &[(bool, bool, u32)]) {
        let mut chain: Vec<(u32, bool)> = Vec::new();
        for &(asked, refused, len) in requests {
            let Some(claim) = self.window.claim(&mut self.poster, len) else {
                break;
            };
            self.slots.push_back((claim.seq, refused, len));
            self.posted += 1;
            if !refused {
                chain.push((claim.seq, self.poster.signals(asked)));
            }
        }
        if self.poster.signals_last() {
            chain.last_mut().unwrap().1 = true;
        }
        self.window.publish(&self.poster);
        for (seq, signaled) in chain {
            self.hardware.post(seq, signaled);
        }
        self.skip_refused();
    }

    fn end_oldest(&mut self, ok: bool) {
        let (seq, refused, len) = self.slots.pop_front().unwrap();
        assert_eq!(self.window.oldest(), Some(seq));
        if !refused {
            self.hardware.lingering -= 1;
        }
        self.window.retire(len);
        self.ended.push((seq, ok && !refused));
    }

    fn skip_refused(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.1) {
            self.end_oldest(false);
        }
    }

    fn poll(&mut self) {
        let Some((wr_id, ok)) = self.hardware.cq.pop_front() else {
            return;
        };
        let Some(WrId::Request(seq)) = WrId::decode(wr_id) else {
            panic!("{wr_id:x} names no request");
        };
        assert!(self.window.covers(seq));
        while self.window.oldest() != Some(seq) {
            self.end_oldest(true);
        }
        self.end_oldest(ok);
        self.skip_refused();
    }
}

#[test]
fn long_requests_are_not_held_up_by_shorter_ones_that_fill_the_budget() {
    let (window, mut poster) = Window::new(64, 16, 8).unwrap();
    for _ in 0..4 {
        assert!(window.claim(&mut poster, 2).is_some());
    }
    window.publish(&poster);
    assert!(window.claim(&mut poster, 2).is_none());
    assert!(window.claim(&mut poster, 0).is_some(), "it has no bytes");
    window.publish(&poster);
    window.retire(2);
    assert!(window.claim_piece(&mut poster, 4, 4).is_some());
    assert!(window.claim(&mut poster, 2).is_none());
}

proptest! {
    /// krcore §4.4: no overflow whatever is posted, signalled, refused, and
    /// whenever completions are taken; and every request ends, once, in order.
    #[test]
    fn neither_queue_overflows_and_every_request_ends_in_order(
        depth_log in 0u32..6,
        interval in 1u32..64,
        budget in 1u64..256,
        first in prop_oneof![Just(0), Just(u32::MAX - 20)],
        steps in steps(),
    ) {
        let depth = 1 << depth_log;
        let mut driver = Driver::new(depth, interval.min(depth), budget, first);
        for step in steps {
            match step {
                Step::Post(requests) => driver.post(&requests),
                Step::Advance { breaks } => driver.hardware.advance(breaks),
                Step::Poll => driver.poll(),
            }
            prop_assert_eq!(driver.window.outstanding() as usize, driver.slots.len());
        }
        // when everything is carried out and reaped, then nothing is left
        while !driver.hardware.sq.is_empty() {
            driver.hardware.advance(false);
        }
        while !driver.hardware.cq.is_empty() {
            driver.poll();
        }
        prop_assert_eq!(driver.window.outstanding(), 0);
        let seqs: Vec<u32> = driver.ended.iter().map(|end| end.0).collect();
        let all: Vec<u32> = (0..driver.posted).map(|i| first.wrapping_add(i)).collect();
        prop_assert_eq!(seqs, all);
        // and the window takes requests again
        prop_assert!(driver.window.claim(&mut driver.poster, u32::MAX).is_some());
    }

    #[test]
    fn one_request_in_each_interval_is_signalled(
        interval in 1u32..=16,
        asked in prop::collection::vec(any::<bool>(), 0..100),
    ) {
        let (_, mut poster) = Window::new(16, interval, 1).unwrap();
        let mut run = 0;
        for asked in asked {
            run = if poster.signals(asked) { 0 } else { run + 1 };
            prop_assert!(!asked || run == 0);
            prop_assert!(run < interval);
        }
        prop_assert_eq!(poster.signals_last(), run != 0);
        prop_assert!(!poster.signals_last());
    }

    #[test]
    fn a_wr_id_survives_its_number(seq in any::<u32>(), number in any::<u64>()) {
        for id in [WrId::Request(seq), WrId::Receive] {
            prop_assert_eq!(WrId::decode(id.encode()), Some(id));
        }
        if let Some(id) = WrId::decode(number) {
            prop_assert_eq!(id.encode(), number);
        }
    }

    #[test]
    fn any_bytes_are_no_hello_or_a_sane_one(bytes in prop::collection::vec(any::<u8>(), 0..80), role in 0u8..4) {
        prop_assert_eq!(Hello::decode(&bytes), None);
        let mut bytes = bytes;
        bytes.resize(HELLO_BYTES, 0);
        bytes[..8].copy_from_slice(&[b'W', b'F', b'T', b'r', 4, role, 5, 1]);
        bytes[35] = bytes[35] % 20 + 14;
        if let Some(hello) = Hello::decode(&bytes) {
            prop_assert!(hello.qpn < 1 << 24 && hello.psn < 1 << 24);
            prop_assert_eq!(&hello.encode()[..], &bytes[..]);
        }
    }
}

fn hello() -> Hello {
    Hello {
        role: Role::Offer,
        gid: Gid::from_ipv4([10, 77, 0, 1]),
        lane: MAX_LANES - 1,
        token: 0x0123_4567_89ab_cdef,
        qpn: 17,
        psn: 0x00ab_cdef,
        mtu: 5,
        read_depth: READ_DEPTH,
        table_addr: 0xffff_8880_0000_0000,
        table_rkey: 99,
        geometry: Geometry::for_capacity(8192).unwrap(),
        blocks: BlockSize::new(21).unwrap(),
        nonce: 0,
        packets: Some(PACKETS),
    }
}

const PACKETS: PacketEnd = PacketEnd {
    qpn: 18,
    psn: 0x0012_3456,
    bytes: 4200,
};

fn with_packets(packets: PacketEnd) -> Hello {
    Hello {
        packets: Some(packets),
        ..hello()
    }
}

#[test]
fn a_hello_survives_its_bytes() {
    for role in [Role::Offer, Role::Answer] {
        for packets in [None, Some(PACKETS)] {
            let hello = Hello {
                role,
                packets,
                ..hello()
            };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
    }
    const { assert!(HELLO_BYTES <= 80, "it has to fit a message of two nodes") };
}

#[test]
fn a_hello_with_impossible_numbers_is_none() {
    for bad in [
        Hello {
            lane: MAX_LANES,
            ..hello()
        },
        Hello { mtu: 6, ..hello() },
        Hello { mtu: 0, ..hello() },
        Hello {
            read_depth: 0,
            ..hello()
        },
        Hello {
            gid: Gid([0; 16]),
            ..hello()
        },
        with_packets(PacketEnd { qpn: 0, ..PACKETS }),
        with_packets(PacketEnd {
            qpn: 1 << 24,
            ..PACKETS
        }),
        with_packets(PacketEnd {
            psn: 1 << 24,
            ..PACKETS
        }),
        with_packets(PacketEnd {
            bytes: 0,
            ..PACKETS
        }),
        Hello {
            table_addr: u64::MAX - 8,
            ..hello()
        },
    ] {
        assert_eq!(Hello::decode(&bad.encode()), None, "{bad:?}");
    }
    for shift in [0, BlockSize::LEAST - 1, BlockSize::MOST + 1, 255] {
        let mut other_blocks = hello().encode();
        other_blocks[35] = shift;
        assert_eq!(Hello::decode(&other_blocks), None, "{shift}");
    }
    let mut other_version = hello().encode();
    other_version[4] += 1;
    assert_eq!(Hello::decode(&other_version), None);
}

#[test]
fn one_large_request_passes_alone() {
    let (window, mut poster) = Window::new(4, 1, 100).unwrap();
    assert!(window.claim(&mut poster, 1_000_000).is_some());
    assert_eq!(window.claim(&mut poster, 1), None);
    window.publish(&poster);
    window.retire(1_000_000);
    assert!(window.claim(&mut poster, 60).is_some());
    assert!(window.claim(&mut poster, 40).is_some());
    assert_eq!(window.claim(&mut poster, 1), None);
}

#[test]
fn requests_that_do_not_end_are_noticed_and_slow_ones_are_not() {
    const SECOND_NS: u64 = 1_000_000_000;
    let (window, mut poster) = Window::new(8, 4, 1 << 40).unwrap();
    let mut stall = Stall::NEW;
    let mut now_ns = SECOND_NS;
    for _ in 0..100 {
        assert!(!stall.look(&window, now_ns), "nothing is outstanding");
        now_ns += SECOND_NS;
    }
    let mut post = |len| {
        window.claim(&mut poster, len).unwrap();
        window.publish(&poster);
    };
    post(8);
    for _ in 0..100 {
        post(8);
        window.retire(8);
        now_ns += STALL_NS;
        assert!(!stall.look(&window, now_ns), "one has ended");
    }
    assert!(!stall.look(&window, now_ns + STALL_NS - 1));
    assert!(stall.look(&window, now_ns + STALL_NS + SECOND_NS));
    post(1 << 30);
    assert!(!stall.look(&window, now_ns + 100 * STALL_NS), "it is long");
    assert!(stall.look(&window, now_ns + 200 * STALL_NS));
}
