// SPDX-License-Identifier: MIT OR Apache-2.0

//! All algorithms, group sizes and lengths.

use crate::{nodes, pattern, Member, PATIENCE};
use weft::rdmc::schedule::{Algorithm, Between};
use weft::rdmc::{Choice, Event, GroupConfig, Node};

const BLOCK: usize = 512;
const CHOICES: [Choice; 7] = [
    Choice::Auto,
    Choice::Always(Algorithm::Sequential),
    Choice::Always(Algorithm::Chain),
    Choice::Always(Algorithm::BinomialTree),
    Choice::Always(Algorithm::BinomialPipeline),
    Choice::Always(Algorithm::Hybrid {
        between: Between::Chain,
        rack_members: 3,
    }),
    Choice::Always(Algorithm::Hybrid {
        between: Between::BinomialPipeline,
        rack_members: 3,
    }),
];

/// At and around the borders of blocks.
fn sizes() -> impl Iterator<Item = usize> {
    let blocks = [1, 2, 3, 7, 8, 9].map(|blocks| blocks * BLOCK);
    let around = blocks
        .into_iter()
        .flat_map(|size| [size - 1, size, size + 1]);
    std::iter::once(1).chain(around)
}

fn exchange(node: &Node, group: u32, choice: Choice) {
    let members = 0..node.nodes();
    let config = GroupConfig::new(group, members)
        .algorithm(choice)
        .block_bytes(BLOCK);
    let member = Member::create(node, &config).expect("a group");
    if member.group.is_root() {
        for (number, size) in (1..).zip(sizes()) {
            member.send(node, &pattern(number, size));
        }
        for (number, size) in (1..).zip(sizes()) {
            match member.next() {
                Event::Sent(message) => {
                    assert_eq!((message.number, message.size), (number, size));
                }
                other => panic!("{other:?}"),
            }
        }
        member.group.destroy(PATIENCE).expect("all is sent");
    } else {
        for (number, size) in (1..).zip(sizes()) {
            let message = member.received();
            assert_eq!((message.number, message.size), (number, size));
            assert_eq!(message.bytes(), pattern(number, size), "{choice:?}");
        }
        assert_eq!(member.ended().node, 0, "the root has left");
    }
}

#[test]
fn every_message_arrives_whole_and_in_order_whichever_way_it_travels() {
    for count in [1, 2, 3, 4, 5, 8, 9] {
        nodes(count, 1 << 20, |node| {
            for (group, choice) in (1..).zip(CHOICES) {
                exchange(&node, group, choice);
            }
            assert!(node.available() > 1 << 19, "the memory is free again");
        });
    }
}

#[test]
fn a_large_message_takes_its_buffer_through_and_back() {
    const SIZE: usize = 24 << 20;
    nodes(4, 64 << 20, |node| {
        let config = GroupConfig::new(0, 0..4);
        let member = Member::create(&node, &config).expect("a group");
        if member.group.is_root() {
            let mut buffer = node.allocate(SIZE).expect("memory");
            for round in 0..3 {
                buffer.copy_from_slice(&pattern(round, SIZE));
                member.group.send(buffer, SIZE).expect("it is taken");
                buffer = match member.next() {
                    Event::Sent(message) => message.buffer,
                    other => panic!("{other:?}"),
                };
            }
            member.group.flush(PATIENCE).expect("it is done");
            assert_eq!(member.group.completed(), 3);
        } else {
            for round in 0..3 {
                assert!(member.received().bytes() == pattern(round, SIZE));
            }
            // The root goes when it is done.
            member.ended();
        }
    });
}
