// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who sends: several threads at once, and the one that is told.

use crate::{nodes, Member, PATIENCE};
use std::sync::{mpsc, Arc, OnceLock};
use std::thread;
use weft::rdmc::{Event, Group, GroupConfig, Node, SendReason};

const WORD: usize = size_of::<u64>();

/// Sends a word, as soon as so many messages may wait.
fn send(node: &Node, group: &Group, word: u64) {
    let mut buffer = node.allocate(WORD).expect("memory");
    buffer[..WORD].copy_from_slice(&word.to_le_bytes());
    while let Err(refused) = group.send(buffer, WORD) {
        assert!(matches!(refused.reason, SendReason::QueueFull));
        buffer = refused.buffer;
        thread::yield_now();
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a word"))
}

#[test]
fn messages_of_one_thread_keep_their_order_among_those_of_others() {
    const THREADS: u64 = 3;
    const EACH: u64 = 300;
    nodes(3, 1 << 24, |node| {
        let config = GroupConfig::new(0, 0..3);
        let member = Member::create(&node, &config).expect("a group");
        if !member.group.is_root() {
            let mut next = [0; THREADS as usize];
            for _ in 0..THREADS * EACH {
                let sent = word(member.received().bytes());
                let next = &mut next[(sent / EACH) as usize];
                assert_eq!(sent % EACH, *next);
                *next += 1;
            }
            member.ended();
            return;
        }
        thread::scope(|scope| {
            for sender in 0..THREADS {
                let (node, group) = (&node, &member.group);
                scope.spawn(move || {
                    for nth in 0..EACH {
                        send(node, group, sender * EACH + nth);
                        // Now and then nothing waits, and the sender begins itself.
                        if nth % 16 == 0 {
                            group.flush(PATIENCE).expect("it is sent");
                        }
                    }
                });
            }
        });
        member.group.destroy(PATIENCE).expect("all is sent");
    });
}

#[test]
fn who_flushes_does_not_wait_for_what_others_send_meanwhile() {
    const MESSAGES: u64 = 5000;
    nodes(2, 1 << 24, |node| {
        let config = GroupConfig::new(0, 0..2);
        let member = Member::create(&node, &config).expect("a group");
        if !member.group.is_root() {
            while let Event::Received(_) = member.next() {}
            return;
        }
        let (node, group) = (&node, &member.group);
        thread::scope(|scope| {
            let sender = scope.spawn(|| (0..MESSAGES).for_each(|nth| send(node, group, nth)));
            while !sender.is_finished() {
                // The buffers come back with the events.
                member.events.try_iter().for_each(drop);
                group.flush(PATIENCE).expect("what was sent is done");
            }
        });
        member.group.destroy(PATIENCE).expect("all is sent");
    });
}

#[test]
fn who_is_told_that_a_message_is_sent_can_send_the_next_one() {
    const MESSAGES: u64 = 200;
    nodes(3, 1 << 20, |node| {
        let config = GroupConfig::new(0, 0..3);
        if node.rank() != 0 {
            let member = Member::create(&node, &config).expect("a group");
            for nth in 1..=MESSAGES {
                assert_eq!(member.received().number, nth);
            }
            member.ended();
            return;
        }
        let (tell, told) = mpsc::channel();
        let handle = Arc::new(OnceLock::<Group>::new());
        let group = Arc::downgrade(&handle);
        let event = move |event| {
            let Event::Sent(message) = event else {
                return;
            };
            let handle = group.upgrade().expect("it is waited for");
            let group = handle.get().expect("it has sent");
            if message.number == MESSAGES {
                tell.send(()).expect("it is waited for");
            } else {
                group
                    .send(message.buffer, message.size)
                    .expect("it is taken");
            }
        };
        let memory = |_| unreachable!("the root receives nothing");
        let group = node.create_group(&config, PATIENCE, memory, event);
        let group = handle.get_or_init(|| group.expect("a group"));
        send(&node, group, 0);
        told.recv_timeout(PATIENCE).expect("all are sent");
        group.flush(PATIENCE).expect("they are");
        assert_eq!(group.completed(), MESSAGES);
    });
}
