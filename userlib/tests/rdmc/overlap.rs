// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several groups over the same nodes at a time.

use crate::{nodes, pattern, Member, PATIENCE};
use std::thread;
use weft::rdmc::{GroupConfig, Node};

const NODES: usize = 4;
const MESSAGES: u64 = 40;

/// Messages differ in length from one to several blocks.
fn size(root: usize, message: u64) -> usize {
    1 + (message as usize * 997 + root * 3001) % 20_000
}

fn number(root: usize, message: u64) -> u64 {
    root as u64 * 1000 + message
}

/// Each node is the root of one group of them all.
fn take_part(node: &Node, root: usize) {
    let members = (0..NODES).map(|at| (root + at) % NODES);
    let config = GroupConfig::new(root as u32, members).block_bytes(2048);
    let member = Member::create(node, &config).expect("a group");
    if member.group.is_root() {
        for message in 1..=MESSAGES {
            member.send(node, &pattern(number(root, message), size(root, message)));
        }
        member.group.destroy(PATIENCE).expect("all is sent");
    } else {
        for message in 1..=MESSAGES {
            let wanted = pattern(number(root, message), size(root, message));
            assert!(member.received().bytes() == wanted, "{root} {message}");
        }
        member.ended();
    }
}

#[test]
fn overlapping_groups_do_not_mix_their_messages() {
    nodes(NODES, 8 << 20, |node| {
        thread::scope(|scope| {
            for root in 0..NODES {
                let node = &node;
                scope.spawn(move || take_part(node, root));
            }
        });
    });
}
