// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who leaves, refuses or goes: one event everywhere, and other groups go on.

use crate::{nodes, pattern, Member, PATIENCE};
use weft::rdmc::{EndReason, Error, Event, GroupConfig, Node, SendReason};

fn group(number: u32, members: &[usize]) -> GroupConfig {
    GroupConfig::new(number, members.iter().copied()).block_bytes(1024)
}

/// Sends one message to the others of a group, and ends it.
fn works(node: &Node, config: &GroupConfig) {
    let member = Member::create(node, config).expect("a group");
    if member.group.is_root() {
        member.send(node, &pattern(7, 5000));
        member.group.destroy(PATIENCE).expect("it works");
    } else {
        assert_eq!(member.received().bytes(), pattern(7, 5000));
        assert_eq!(member.ended().reason, EndReason::Left);
    }
}

#[test]
fn who_leaves_between_messages_ends_the_group_after_them() {
    nodes(3, 1 << 20, |node| {
        let member = Member::create(&node, &group(1, &[0, 1, 2])).expect("a group");
        match node.rank() {
            0 => {
                member.send(&node, &pattern(1, 3000));
                assert!(matches!(member.next(), Event::Sent(_)));
            }
            _ => assert_eq!(member.received().bytes(), pattern(1, 3000)),
        }
        if node.rank() == 2 {
            member.group.destroy(PATIENCE).expect("all is done");
        } else {
            let end = member.ended();
            assert_eq!((end.node, end.reason), (2, EndReason::Left));
            assert_eq!(member.group.end(), Some(end));
            assert!(member.events.try_recv().is_err(), "one event");
        }
        works(&node, &group(2, &[1, 2, 0]));
    });
}

#[test]
fn the_root_gets_back_what_was_not_sent() {
    nodes(2, 1 << 20, |node| {
        let member = Member::create(&node, &group(1, &[0, 1])).expect("a group");
        if node.rank() == 1 {
            drop(member);
        } else {
            let end = member.ended();
            assert_eq!(end.node, 1);
            let buffer = node.allocate(10).expect("memory");
            let refused = member.group.send(buffer, 10).expect_err("it has ended");
            assert_eq!(refused.reason, SendReason::Ended(end));
            assert_eq!(refused.buffer.len(), 10);
            let waits = member.group.flush(PATIENCE);
            assert!(waits.is_ok(), "nothing is left: {waits:?}");
        }
        works(&node, &group(2, &[1, 0]));
    });
}

#[test]
fn who_gives_too_little_memory_ends_the_group() {
    nodes(3, 1 << 20, |node| {
        let config = group(1, &[0, 1, 2]);
        let (tell, events) = std::sync::mpsc::channel();
        let memory = node.memory();
        let refuses = node.rank() == 1;
        let created = node.create_group(
            &config,
            PATIENCE,
            move |incoming| {
                memory
                    .allocate(if refuses { 1 } else { incoming.size })
                    .ok()
            },
            move |event| drop(tell.send(event)),
        );
        let end = match created {
            // The others may be so fast that it ends before it has begun here.
            Err(Error::Ended { end, .. }) if node.rank() != 0 => end,
            created => {
                let member = Member {
                    group: created.expect("a group"),
                    events,
                };
                if node.rank() == 0 {
                    member.send(&node, &pattern(1, 40_000));
                }
                let end = member.ended();
                if node.rank() == 0 {
                    let back = member.next();
                    assert!(matches!(back, Event::Returned(_)), "{back:?}");
                }
                end
            }
        };
        assert_eq!((end.node, end.reason), (1, EndReason::Refused));
        works(&node, &group(2, &[0, 1, 2]));
        assert!(node.available() > 1 << 19, "the memory is free again");
    });
}

#[test]
fn a_number_takes_its_place_again_and_again() {
    nodes(3, 1 << 20, |node| {
        for round in 0..50 {
            // The same place of four, with other members, and other roots.
            let members = [[0, 1, 2], [2, 0, 1], [1, 2, 0]][round as usize % 3];
            works(&node, &group(round * 4, &members[..]));
        }
        let again = Member::create(&node, &group(0, &[0, 1, 2])).map(|_| ());
        assert_eq!(again, Err(Error::NumberUsed(0)));
    });
}

#[test]
fn who_has_no_memory_holds_the_group_up_until_it_has() {
    const SIZE: usize = 300_000;
    nodes(3, 1 << 20, |node| {
        let member = Member::create(&node, &group(1, &[0, 1, 2])).expect("a group");
        if node.rank() == 0 {
            // One after the other, and never more memory than a node has.
            for number in 1..=20 {
                member.send(&node, &pattern(number, SIZE));
                assert!(matches!(member.next(), Event::Sent(_)));
            }
            member
                .group
                .destroy(PATIENCE)
                .expect("all arrives in the end");
            return;
        }
        // All that there is room for is taken, and the polling thread asleep.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for number in 1..=20 {
            assert_eq!(member.received().bytes(), pattern(number, SIZE));
        }
        assert_eq!(member.ended().reason, EndReason::Left);
    });
}

#[test]
fn a_callback_that_panics_is_not_called_again_and_ends_its_groups() {
    nodes(2, 1 << 20, |node| {
        let config = group(1, &[0, 1]);
        if node.rank() == 1 {
            let member = Member::create(&node, &config).expect("a group");
            while let Event::Received(message) = member.next() {
                assert_eq!(message.bytes(), pattern(1, 100));
            }
            assert_eq!(member.group.end().map(|end| end.node), Some(0));
            return;
        }
        let (tell, calls) = std::sync::mpsc::channel();
        let event = move |_| {
            tell.send(()).expect("the test listens");
            panic!("as this test wants it");
        };
        let created = node.create_group(&config, PATIENCE, |_| None, event);
        let root = created.expect("a group");
        for _ in 0..3 {
            let mut buffer = node.allocate(100).expect("memory");
            buffer.copy_from_slice(&pattern(1, 100));
            // The last ones may come too late.
            let _ = root.send(buffer, 100);
        }
        let flushed = root.flush(PATIENCE);
        assert!(matches!(flushed, Err(Error::Ended { .. })), "{flushed:?}");
        assert_eq!(calls.iter().count(), 1, "and then it is gone");
        let refused = Member::create(&node, &group(2, &[0])).map(|_| ());
        let is_over = matches!(refused, Err(Error::Thread(_) | Error::Ended { .. }));
        assert!(is_over, "{refused:?}");
    });
}
