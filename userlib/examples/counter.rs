// SPDX-License-Identifier: MIT OR Apache-2.0

//! A replicated counter: every replica applies the same additions in the same
//! order, so all agree without asking one another.
//!
//! `cargo run -p weft --example counter`

use std::sync::mpsc;
use std::time::Duration;
use weft::fabric::{shm::Shm, Fabric};
use weft::{Group, Subgroup};

const REPLICAS: usize = 3;
const ADDITIONS: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let joining: Vec<_> = Shm::threads(REPLICAS)?
        .into_iter()
        .map(|node| std::thread::spawn(move || replica(node)))
        .collect();
    for (rank, thread) in joining.into_iter().enumerate() {
        let (value, trace) = thread.join().expect("a replica does not panic")?;
        println!("replica {rank}: {value}, history {trace:016x}");
    }
    Ok(())
}

/// Answers with the counter's value and a number for the order of additions.
fn replica(node: Shm) -> Result<(u64, u64), Failure> {
    let rank = node.rank() as u64;
    let (done, finished) = mpsc::channel();
    let (mut value, mut trace, mut applied) = (0_u64, 0_u64, 0);
    let mut builder = Group::builder(node);
    let additions = builder.subgroup(Subgroup::new("additions").max_message(8));
    let group = builder
        .deliver(additions, move |batch| {
            for message in batch {
                let Some(&amount) = message.value::<u64>() else {
                    continue;
                };
                value += amount;
                // Another order would give another number.
                trace = trace.rotate_left(5) ^ value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                applied += 1;
            }
            if applied == ADDITIONS * REPLICAS as u64 {
                done.send((value, trace)).ok();
            }
        })
        .timeout(PATIENCE)
        .join()?;
    let additions = group.sender(additions)?;
    for number in 0..ADDITIONS {
        additions.send_value(&(number % 7 + rank))?;
    }
    let result = finished.recv_timeout(PATIENCE)?;
    group.leave(PATIENCE)?;
    Ok(result)
}
