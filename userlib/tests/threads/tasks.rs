// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tasks that send and receive: one thread of each member has a runtime, and nothing of it
//! waits in a call.

use super::{members, PATIENCE};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::{yield_now, JoinSet};
use tokio::time::timeout;
use weft::fabric::shm::Shm;
use weft::{Batch, Deliveries, Group, SendError, Sender, Subgroup, SubgroupHandle};

const SENDERS: u64 = 8;
const MESSAGES: u64 = 2_000;
/// Far less than there are tasks, so that they wait for room.
const WINDOW: usize = 4;

fn run<R>(future: impl Future<Output = R>) -> R {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, future).await.expect("in time") })
}

fn join(node: Shm) -> (Group, SubgroupHandle) {
    let mut builder = Group::builder(node);
    let tasks = builder.subgroup(Subgroup::new("tasks").window(WINDOW).max_message(16));
    (builder.join().expect("a group"), tasks)
}

async fn send_all(sender: Sender, task: u64) {
    for number in 0..MESSAGES {
        let bytes = ((task << 32) | number).to_le_bytes();
        let sent = sender.send_async(|slot| slot.put(&bytes)).await;
        sent.expect("it is sent");
    }
}

/// Takes all that the members send, one by one and in batches; answers with who has sent
/// what.
async fn receive_all(mut deliveries: Deliveries, nodes: usize) -> Vec<(usize, u64)> {
    let mut got = Vec::new();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    while got.len() < nodes * (SENDERS * MESSAGES) as usize {
        let message = deliveries.next_async().await.expect("more will come");
        got.push((message.sender, number(&message.bytes)));
        let mut take = |batch: &mut Batch<'_>| {
            got.extend(batch.map(|message| (message.sender, number(message.bytes))));
        };
        // A task that does not wait for the rest loses nothing.
        let rest = deliveries.batch_async(&mut take);
        let _ = timeout(Duration::ZERO, rest).await;
    }
    got
}

#[test]
fn tasks_of_one_thread_send_and_receive() {
    const NODES: usize = 3;
    let sequences = members(NODES, |node| {
        let (group, tasks) = join(node);
        let sequence = run(async {
            let sender = group.sender(tasks).expect("a sender");
            let deliveries = group.deliveries(tasks).expect("deliveries");
            let mut sending = JoinSet::new();
            for task in 0..SENDERS {
                sending.spawn(send_all(sender.clone(), task));
            }
            let sequence = receive_all(deliveries, NODES).await;
            sending.join_all().await;
            group.flush_async().await.expect("all is delivered");
            sequence
        });
        group.leave(PATIENCE).expect("it leaves");
        sequence
    });
    for sequence in &sequences {
        assert_eq!(sequence, &sequences[0]);
    }
    for sender in 0..NODES {
        for task in 0..SENDERS {
            let of_task = |&&(from, number): &&(usize, u64)| from == sender && number >> 32 == task;
            let sent: Vec<u64> = sequences[0]
                .iter()
                .filter(of_task)
                .map(|(_, number)| number & 0xffff_ffff)
                .collect();
            assert!(sent.iter().copied().eq(0..MESSAGES), "{sender}, {task}");
        }
    }
}

#[test]
fn a_slot_that_was_given_up_does_not_end_a_task_that_receives() {
    let subgroup = Subgroup::new("tasks").window(2).max_message(4);
    for subgroup in [subgroup.clone(), subgroup.unordered()] {
        let node = Shm::threads(1).expect("a fabric").remove(0);
        let mut builder = Group::builder(node);
        let tasks = builder.subgroup(subgroup);
        let group = builder.join_stepped().expect("a group");
        let sender = group.sender(tasks).expect("a sender");
        let mut deliveries = group.deliveries(tasks).expect("deliveries");
        let too_long = SendError::TooLong { len: 5, room: 4 };
        assert_eq!(sender.try_send(|slot| slot.set_len(5)), Err(too_long));
        while group.step() {}
        let message = run(async {
            let mut receiving = JoinSet::new();
            receiving.spawn(async move { deliveries.next_async().await });
            // The receiver looks when only the slot has come.
            yield_now().await;
            sender.try_send(|slot| slot.put(b"one")).expect("room");
            while group.step() {}
            receiving
                .join_next()
                .await
                .expect("it ends")
                .expect("no panic")
        });
        assert_eq!(message.map(|message| message.bytes), Some(b"one".to_vec()));
    }
}
