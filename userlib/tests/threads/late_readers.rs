// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member hangs while it reads a message in its sender's memory, and is put out. The others go
//! on and send much more; what it reads stays what was sent.

use crate::{members, PATIENCE};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::fabric::Fabric;
use weft::{Ending, Event, Group, Subgroup};

const NODES: usize = 3;
/// The one that hangs.
const LATE: usize = 2;
const WINDOW: usize = 8;
const BYTES: usize = 512;
/// Messages that the others deliver meanwhile: each slot is used many times.
const MEANWHILE: u64 = 100 * WINDOW as u64;
/// How long a member may hang; long enough for one that waits for a processor.
const TERM: Duration = Duration::from_secs(3);

#[test]
fn who_is_put_out_in_the_middle_of_a_delivery_reads_what_was_sent() {
    let count = Arc::new(AtomicU64::new(0));
    let all = members(NODES, move |node| {
        let (rank, delivered) = (node.rank(), Arc::clone(&count));
        let counted = Arc::clone(&count);
        let (told, events) = channel();
        let has_stayed = Arc::new(AtomicBool::new(rank != LATE));
        let stayed = Arc::clone(&has_stayed);
        let mut has_hung = false;
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(Subgroup::new("test").window(WINDOW).max_message(BYTES));
        let group = builder
            .timeout(PATIENCE)
            .suspect_after(TERM)
            .deliver(handle, move |batch| {
                for message in batch {
                    if rank == LATE && !has_hung {
                        has_hung = true;
                        let before = message.bytes.to_vec();
                        hang(&counted);
                        let after = std::hint::black_box(message.bytes);
                        stayed.store(before == after, Ordering::Relaxed);
                    }
                    if rank == 0 {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
            .on_event(move |event| told.send(event).expect("it is awaited"))
            .join()
            .expect("a group");
        if rank == LATE {
            let event = events.recv_timeout(PATIENCE).expect("it finds itself out");
            assert_eq!(event, Event::Stopped(Ending::Excluded));
        } else {
            let sender = group.sender(handle).expect("it sends");
            let mut number = 0_u64;
            while delivered.load(Ordering::Relaxed) < MEANWHILE {
                let word = number.to_le_bytes();
                sender
                    .send_bytes(&word.repeat(BYTES / 8))
                    .expect("it is sent");
                number += 1;
            }
            group.leave(PATIENCE).expect("all is delivered");
        }
        has_stayed.load(Ordering::Relaxed)
    });
    assert_eq!(all, [true; NODES]);
}

/// Waits until the others have gone on without this member.
fn hang(delivered: &AtomicU64) {
    let began = Instant::now();
    while delivered.load(Ordering::Relaxed) < MEANWHILE && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
