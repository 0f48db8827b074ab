// SPDX-License-Identifier: MIT OR Apache-2.0

//! All members' parts together, against what a multicast has to be.

use super::{
    first_relayer, Algorithm, Between, Schedule, ScheduleError, Transfer, MAX_BLOCKS, MAX_MEMBERS,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const FLAT: [Algorithm; 4] = [
    Algorithm::Sequential,
    Algorithm::Chain,
    Algorithm::BinomialTree,
    Algorithm::BinomialPipeline,
];
/// A step beyond those of any schedule.
const FAR: usize = usize::MAX;

/// One multicast, as all its members see it.
struct Multicast {
    algorithm: Algorithm,
    members: usize,
    blocks: usize,
    parts: Vec<Schedule>,
}

/// Where and when a block came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    from: usize,
    step: usize,
}

impl Multicast {
    fn new(algorithm: Algorithm, members: usize, blocks: usize) -> Self {
        let part = |rank| Schedule::new(algorithm, rank, members, blocks).expect("within limits");
        Self {
            algorithm,
            members,
            blocks,
            parts: (0..members).map(part).collect(),
        }
    }

    fn name(&self) -> String {
        let (algorithm, members, blocks) = (self.algorithm, self.members, self.blocks);
        format!("{algorithm:?}, {members} members, {blocks} blocks")
    }

    /// Checks that each block comes to each member exactly once, from a member
    /// that had it before that step; that each send has its receipt; and that
    /// the last step has one. Answers with each member's arrivals, by block.
    ///
    /// A member has one answer for each step, so it sends at most one block in
    /// it. A send whose block comes from this member in this step is the only
    /// one for that receipt; so if there are as many of either, they match.
    fn check(&self) -> Vec<Vec<Arrival>> {
        let arrivals = self.arrivals();
        let mut sends = 0;
        for (from, part) in self.parts.iter().enumerate() {
            let mut end = 0;
            for (step, Transfer { peer, block }) in part.sends() {
                assert!(end <= step && peer != from, "{}", self.name());
                end = step + 1;
                let arrival = arrivals[peer].get(block);
                assert_eq!(arrival, Some(&Arrival { from, step }), "{}", self.name());
                let had = from == 0 || arrivals[from][block].step < step;
                assert!(had, "{}: {from} at step {step}", self.name());
                sends += 1;
            }
        }
        assert_eq!(sends, (self.members - 1) * self.blocks, "{}", self.name());
        let ends = arrivals.iter().flatten().map(|arrival| arrival.step + 1);
        assert_eq!(ends.max(), Some(self.steps()), "{}", self.name());
        arrivals
    }

    /// Where and when each block comes to each member; nothing to the root.
    fn arrivals(&self) -> Vec<Vec<Arrival>> {
        let of = |(rank, part): (usize, &Schedule)| {
            assert_eq!(part.steps(), self.parts[0].steps(), "{}", self.name());
            let mut arrivals = vec![None; self.blocks];
            let mut end = 0;
            for (step, transfer) in part.receives() {
                assert!(end <= step && rank != 0, "{}", self.name());
                end = step + 1;
                let from = transfer.peer;
                let before = arrivals[transfer.block].replace(Arrival { from, step });
                assert!(before.is_none(), "{}: {transfer:?}", self.name());
            }
            let all: Option<Vec<_>> = arrivals.into_iter().collect();
            assert!(rank == 0 || all.is_some(), "{}: {rank}", self.name());
            all.unwrap_or_default()
        };
        self.parts.iter().enumerate().map(of).collect()
    }

    /// Checks a hybrid: beside the rest, that each block comes from outside to
    /// each rack but the root's once, to the leader.
    fn check_hybrid(&self, rack_members: usize) {
        for (rank, arrivals) in self.check().iter().enumerate() {
            let leader = rank % rack_members == 0;
            for arrival in arrivals {
                let outside = arrival.from / rack_members != rank / rack_members;
                assert_eq!(outside, leader, "{}: {rank}", self.name());
            }
        }
        let most = documented_steps(self.algorithm, self.members, self.blocks);
        assert!(self.steps() <= most, "{}", self.name());
    }

    fn steps(&self) -> usize {
        self.parts[0].steps()
    }

    /// The first relayers of all receivers.
    fn first_relayers(&self) -> Vec<Option<usize>> {
        let first = |part: &Schedule| part.first_block().map(|transfer| transfer.peer);
        self.parts.iter().map(first).collect()
    }
}

/// Both hybrids.
fn hybrids(rack_members: usize) -> [Algorithm; 2] {
    [Between::Chain, Between::BinomialPipeline].map(|between| Algorithm::Hybrid {
        between,
        rack_members,
    })
}

fn ceil_log2(members: usize) -> usize {
    (0..).find(|&log| 1 << log >= members).expect("a logarithm")
}

fn floor_log2(members: usize) -> usize {
    ceil_log2(members + 1) - 1
}

/// The most steps that each algorithm is documented to take.
fn documented_steps(algorithm: Algorithm, members: usize, blocks: usize) -> usize {
    let pipeline = ceil_log2(members) + blocks - 1;
    match algorithm {
        Algorithm::Sequential => (members - 1) * blocks,
        Algorithm::Chain => members - 2 + blocks,
        Algorithm::BinomialTree => ceil_log2(members) * blocks,
        Algorithm::BinomialPipeline => pipeline,
        Algorithm::Hybrid {
            between,
            rack_members,
        } => {
            let racks = members.div_ceil(rack_members);
            let within = ceil_log2(rack_members);
            match between {
                _ if racks == 1 => pipeline,
                Between::BinomialPipeline if rack_members == 1 => pipeline,
                Between::Chain if rack_members == 1 => members - 2 + blocks,
                Between::Chain => {
                    (racks - 1) * (floor_log2(rack_members) + 1) + within + blocks - 1
                }
                Between::BinomialPipeline => 2 * (ceil_log2(racks) + within + blocks - 1),
            }
        }
    }
}

/// Checks an algorithm for all small groups, with few and with many blocks.
fn check_flat(algorithm: Algorithm) {
    for members in 2..=64 {
        for blocks in 1..=40 {
            let multicast = Multicast::new(algorithm, members, blocks);
            multicast.check();
            let steps = documented_steps(algorithm, members, blocks);
            assert_eq!(multicast.steps(), steps, "{}", multicast.name());
        }
    }
}

/// The same for a hybrid: with racks of all sizes where both are few; else with
/// two sizes for each number of blocks, so that each group meets all sizes.
fn check_hybrid(between: Between) {
    for members in 2..=64 {
        for blocks in 1..=40 {
            let two = [2 * blocks % members + 1, (2 * blocks + 1) % members + 1];
            let all: Vec<_> = (1..=members).collect();
            let few = members <= 16 && blocks <= 12;
            for &rack_members in if few { &all[..] } else { &two[..] } {
                let algorithm = Algorithm::Hybrid {
                    between,
                    rack_members,
                };
                Multicast::new(algorithm, members, blocks).check_hybrid(rack_members);
            }
        }
    }
}

#[test]
fn sequential_is_a_multicast_in_the_documented_steps() {
    check_flat(Algorithm::Sequential);
}

#[test]
fn chain_is_a_multicast_in_the_documented_steps() {
    check_flat(Algorithm::Chain);
}

#[test]
fn binomial_tree_is_a_multicast_in_the_documented_steps() {
    check_flat(Algorithm::BinomialTree);
}

#[test]
fn binomial_pipeline_is_a_multicast_in_the_fewest_steps_possible() {
    check_flat(Algorithm::BinomialPipeline);
}

#[test]
fn hybrid_chain_brings_each_block_to_each_rack_once() {
    check_hybrid(Between::Chain);
}

#[test]
fn hybrid_pipeline_brings_each_block_to_each_rack_once() {
    check_hybrid(Between::BinomialPipeline);
}

#[test]
fn the_last_blocks_of_a_pipeline_come_within_two_steps() {
    for members in 2_usize..=64 {
        for blocks in 2..=40 {
            let multicast = Multicast::new(Algorithm::BinomialPipeline, members, blocks);
            let spread = if members.is_power_of_two() { 1 } else { 2 };
            for part in &multicast.parts[1..] {
                let last = part.receives().last().map(|(step, _)| step);
                let early = last.is_none_or(|step| step + spread < part.steps());
                assert!(!early, "{}", multicast.name());
            }
        }
    }
}

#[test]
fn one_block_in_a_pipeline_is_a_binomial_tree() {
    for members in (1..=10).map(|log| 1 << log) {
        let pipeline = Multicast::new(Algorithm::BinomialPipeline, members, 1);
        let tree = Multicast::new(Algorithm::BinomialTree, members, 1);
        for (one, other) in pipeline.parts.iter().zip(&tree.parts) {
            assert!(one.sends().eq(other.sends()), "{members} members");
            assert!(one.receives().eq(other.receives()), "{members} members");
        }
    }
}

/// Checks that all receivers know their first relayers beforehand.
fn check_first_relayers(algorithm: Algorithm, members: usize, counts: impl Iterator<Item = usize>) {
    let known: Vec<_> = (0..members)
        .map(|rank| first_relayer(algorithm, rank, members).expect("within limits"))
        .collect();
    for blocks in counts {
        let multicast = Multicast::new(algorithm, members, blocks);
        assert_eq!(multicast.first_relayers(), known, "{}", multicast.name());
    }
}

#[test]
fn the_first_block_comes_from_the_same_member_whatever_the_number_of_blocks() {
    for members in 2..=64 {
        for algorithm in FLAT {
            check_first_relayers(algorithm, members, (1..=40).chain([MAX_BLOCKS]));
        }
        for algorithm in (1..=members).flat_map(hybrids) {
            check_first_relayers(algorithm, members, [2, 3, 6, 40, MAX_BLOCKS].into_iter());
        }
    }
}

#[test]
fn iterators_and_answers_for_single_steps_agree() {
    for members in 1..=13 {
        let racks = (1..=members).flat_map(hybrids);
        for algorithm in FLAT.into_iter().chain(racks) {
            for blocks in 1..=9 {
                let multicast = Multicast::new(algorithm, members, blocks);
                for part in &multicast.parts {
                    let steps = 0..part.steps() + 3 * blocks;
                    let sends = steps.clone().map(|step| (step, part.send(step)));
                    let sends = sends.filter_map(|(step, transfer)| Some((step, transfer?)));
                    assert!(sends.eq(part.sends()), "{}", multicast.name());
                    let receives = steps.map(|step| (step, part.receive(step)));
                    let receives = receives.filter_map(|(step, transfer)| Some((step, transfer?)));
                    assert!(receives.eq(part.receives()), "{}", multicast.name());
                    assert_eq!((part.send(FAR), part.receive(FAR)), (None, None));
                }
            }
        }
    }
}

#[test]
fn a_group_of_one_has_nothing_to_do() {
    for algorithm in FLAT.into_iter().chain(hybrids(4)) {
        let alone = Schedule::new(algorithm, 0, 1, 7).expect("within limits");
        assert_eq!(alone.steps(), 0);
        assert_eq!((alone.sends().count(), alone.first_block()), (0, None));
        assert_eq!(first_relayer(algorithm, 0, 1), Ok(None));
    }
}

#[test]
fn numbers_outside_of_their_limits_are_refused() {
    let new = |rank, members, blocks| {
        let made = Schedule::new(Algorithm::BinomialPipeline, rank, members, blocks);
        made.map(|schedule| schedule.steps())
    };
    let members = MAX_MEMBERS + 1;
    assert_eq!(new(0, 0, 1), Err(ScheduleError::Members { members: 0 }));
    assert_eq!(new(0, members, 1), Err(ScheduleError::Members { members }));
    let rank = ScheduleError::Rank {
        rank: 3,
        members: 3,
    };
    assert_eq!(new(3, 3, 1), Err(rank));
    let blocks = MAX_BLOCKS + 1;
    assert_eq!(new(0, 3, 0), Err(ScheduleError::Blocks { blocks: 0 }));
    assert_eq!(new(0, 3, blocks), Err(ScheduleError::Blocks { blocks }));
    assert_eq!(new(1_023, MAX_MEMBERS, MAX_BLOCKS), Ok(9 + MAX_BLOCKS));
    for algorithm in hybrids(0) {
        let made = Schedule::new(algorithm, 0, 3, 1).map(|schedule| schedule.steps());
        assert_eq!(made, Err(ScheduleError::EmptyRack));
    }
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let racks =
        (1..=MAX_MEMBERS).prop_flat_map(|size| prop::sample::select(hybrids(size).to_vec()));
    prop_oneof![
        1 => Just(Algorithm::Sequential),
        1 => Just(Algorithm::Chain),
        1 => Just(Algorithm::BinomialTree),
        4 => Just(Algorithm::BinomialPipeline),
        4 => racks,
    ]
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(4),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn large_groups_get_each_block_once(
        algorithm in algorithms(),
        members in 2..=MAX_MEMBERS,
        blocks in 1_usize..64,
    ) {
        let multicast = Multicast::new(algorithm, members, blocks);
        check_first_relayers(algorithm, members, [blocks].into_iter());
        if let Algorithm::Hybrid { rack_members, .. } = algorithm {
            multicast.check_hybrid(rack_members);
        } else {
            multicast.check();
            let steps = documented_steps(algorithm, members, blocks);
            prop_assert_eq!(multicast.steps(), steps);
        }
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn both_ends_agree_on_each_transfer_of_long_messages(
        algorithm in algorithms(),
        members in 2..=MAX_MEMBERS,
        blocks in 1..=MAX_BLOCKS,
        rank in any::<prop::sample::Index>(),
        step in any::<prop::sample::Index>(),
    ) {
        let rank = rank.index(members);
        let part = |rank| Schedule::new(algorithm, rank, members, blocks).expect("within limits");
        let own = part(rank);
        let step = step.index(own.steps());
        if let Some(Transfer { peer, block }) = own.send(step) {
            prop_assert_eq!(part(peer).receive(step), Some(Transfer { peer: rank, block }));
        }
        if let Some(Transfer { peer, block }) = own.receive(step) {
            prop_assert_eq!(part(peer).send(step), Some(Transfer { peer: rank, block }));
        }
    }
}
