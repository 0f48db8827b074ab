// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every member delivers the same sequence.

use crate::plan::{assert_all_alike, plan, run};
use crate::random::Random;
use weft::fabric::shm::Shm;
use weft::{Group, Options, Subgroup};

#[test]
fn members_of_any_number_deliver_one_sequence() {
    for (nodes, messages) in [
        (1, 20_000),
        (2, 1_000_000),
        (3, 90_000),
        (5, 50_000),
        (8, 40_000),
    ] {
        let plan = plan(nodes, messages);
        let sums = run(&plan, &mut Random::of_run(nodes as u64));
        assert_all_alike(&plan, &sums);
    }
}

#[test]
fn sixteen_members_on_any_number_of_cores() {
    let plan = plan(16, 16_000);
    assert_all_alike(&plan, &run(&plan, &mut Random::of_run(16)));
}

#[test]
fn senders_of_different_rates_and_silent_ones_stall_nobody() {
    let mut random = Random::of_run(77);
    for _ in 0..4 {
        let mut plan = plan(4, 20_000);
        plan.delays = 1 + random.below(200);
        for messages in &mut plan.messages {
            *messages = random.below(*messages);
        }
        let silent = random.below(4) as usize;
        plan.messages[silent] = 0;
        assert_all_alike(&plan, &run(&plan, &mut random));
    }
}

#[test]
fn some_members_only_listen() {
    let mut plan = plan(4, 40_000);
    plan.subgroup = plan.subgroup.senders([2, 0]);
    plan.messages[1] = 0;
    plan.messages[3] = 0;
    assert_all_alike(&plan, &run(&plan, &mut Random::of_run(3)));
}

#[test]
fn every_step_of_the_ladder_delivers_one_sequence() {
    for (name, options) in Options::LADDER {
        println!("{name}");
        let mut plan = plan(3, 15_000);
        plan.subgroup = plan.subgroup.options(options);
        assert_all_alike(&plan, &run(&plan, &mut Random::of_run(4)));
    }
}

#[test]
fn deliveries_can_be_asked_for() {
    let mut plan = plan(3, 60_000);
    plan.pull = true;
    assert_all_alike(&plan, &run(&plan, &mut Random::of_run(5)));
}

#[test]
fn unordered_members_deliver_all_in_each_senders_order() {
    for pull in [false, true] {
        let mut plan = plan(3, 60_000);
        plan.subgroup = plan.subgroup.unordered();
        plan.pull = pull;
        for sum in run(&plan, &mut Random::of_run(6)) {
            assert_eq!(sum.of, plan.messages);
        }
    }
}

#[test]
fn many_threads_of_a_member_send_at_once() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(Subgroup::new("test").window(8).max_message(64));
    let group = builder.join().expect("a group");
    let deliveries = group.deliveries(handle).expect("nobody has them");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let sender = group.sender(handle).expect("it sends");
            scope.spawn(move || {
                for number in 0..5000_u16 {
                    let bytes = [&[thread], &number.to_le_bytes()[..]].concat();
                    let sent = match number % 3 {
                        0 => sender.send(|slot| slot.put(&bytes)),
                        _ => sender.send_bytes(&bytes),
                    };
                    sent.expect("it is sent");
                }
            });
        }
        let mut next = [0_u16; 4];
        for message in deliveries.take(20_000) {
            let number = u16::from_le_bytes([message.bytes[1], message.bytes[2]]);
            let next = &mut next[usize::from(message.bytes[0])];
            assert_eq!(number, *next, "a thread's own order");
            *next += 1;
        }
    });
}
