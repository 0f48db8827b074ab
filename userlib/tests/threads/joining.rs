// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nodes join a group that has begun, in seats that are empty or whose members have gone.

use crate::PATIENCE;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weft::fabric::shm::ShmSeats;
use weft::fabric::FabricError;
use weft::multicast::{Builder, ConfigError};
use weft::{Ending, Error, Group, Subgroup, SubgroupHandle};

const NAME: &str = "test";
const MAX_STATE_BYTES: usize = 1 << 22;

/// What a member has delivered: words of its senders. Its state is all of them.
type Log = Arc<Mutex<Vec<u64>>>;

fn words(log: &[u64]) -> Vec<u8> {
    log.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn logged(node: ShmSeats, max_bytes: usize) -> (Builder<ShmSeats>, SubgroupHandle, Log) {
    let log = Log::default();
    let [delivered, taken, restored] = [(); 3].map(|()| Arc::clone(&log));
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(Subgroup::new(NAME).window(8).max_message(8));
    let builder = builder
        .timeout(PATIENCE)
        .deliver(handle, move |batch| {
            let numbers = batch.map(|message| *message.value::<u64>().expect("a number"));
            delivered.lock().expect("no panic").extend(numbers);
        })
        .state(
            max_bytes,
            move || words(&taken.lock().expect("no panic")),
            move |bytes| {
                let words = bytes.chunks_exact(8).map(|word| {
                    let word = word.first_chunk().expect("eight bytes");
                    u64::from_le_bytes(*word)
                });
                *restored.lock().expect("no panic") = words.collect();
            },
        );
    (builder, handle, log)
}

/// A member that sends until it is told to stop; then it leaves, and answers with its log.
struct Member {
    stop: Arc<AtomicBool>,
    /// Told when it is in.
    joined: Receiver<()>,
    thread: JoinHandle<Vec<u64>>,
}

impl Member {
    fn start(number: u64, node: impl FnOnce() -> ShmSeats + Send + 'static) -> Self {
        Self::with_state(number, MAX_STATE_BYTES, node)
    }

    fn with_state(
        number: u64,
        max_bytes: usize,
        node: impl FnOnce() -> ShmSeats + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (told, joined) = channel();
        let thread = thread::spawn(move || {
            let (builder, handle, log) = logged(node(), max_bytes);
            let group = builder.join().expect("a group");
            told.send(()).ok();
            let sender = group.sender(handle).expect("it sends");
            for count in 0.. {
                sender
                    .send_value(&((number << 32) | count))
                    .expect("it is sent");
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
            }
            group.leave(PATIENCE).expect("all is delivered");
            let log = log.lock().expect("no panic");
            log.clone()
        });
        Self {
            stop,
            joined,
            thread,
        }
    }

    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a member that does not panic")
    }
}

fn newcomer(name: &str, seats: usize) -> ShmSeats {
    ShmSeats::newcomer(name, seats, PATIENCE).expect("a seat")
}

#[test]
fn members_come_and_go_and_all_have_the_same_from_the_beginning_on() {
    const SEATS: usize = 4;
    let (name, nodes) = ShmSeats::threads(3, SEATS).expect("a fabric");
    let founders = nodes.into_iter().zip(0..);
    let mut members: Vec<Member> = founders
        .map(|(node, number)| Member::start(number, move || node))
        .collect();
    // One goes for each that comes, but for the first: so seats are used again.
    let mut logs = Vec::new();
    for number in 10..20 {
        let name = name.clone();
        members.push(Member::start(number, move || newcomer(&name, SEATS)));
        let newcomer = members.last().expect("a newcomer");
        newcomer.joined.recv_timeout(PATIENCE).expect("it is in");
        if members.len() > 3 {
            logs.push(members.remove(0).end());
        }
    }
    logs.extend(members.into_iter().map(Member::end));
    let longest = logs.iter().max_by_key(|log| log.len()).expect("logs");
    for log in &logs {
        assert_eq!(log[..], longest[..log.len()]);
    }
    for number in (0..3).chain(10..20) {
        let own: Vec<u64> = longest
            .iter()
            .copied()
            .filter(|word| word >> 32 == number)
            .collect();
        let sent: Vec<u64> = (0..own.len() as u64)
            .map(|count| (number << 32) | count)
            .collect();
        assert!(!own.is_empty(), "{number} has sent nothing");
        assert_eq!(own, sent);
    }
}

/// Members that found a group with this much room for its state.
fn found(count: usize, seats: usize, max_bytes: usize) -> (String, Vec<Member>) {
    let (name, nodes) = ShmSeats::threads(count, seats).expect("a fabric");
    let founders = nodes.into_iter().zip(0..);
    let members =
        founders.map(|(node, number)| Member::with_state(number, max_bytes, move || node));
    (name, members.collect())
}

#[test]
fn a_newcomer_with_other_settings_is_told() {
    let (name, members) = found(2, 3, 4096);
    let (builder, ..) = logged(newcomer(&name, 3), 8192);
    let refusal = builder.join().expect_err("they differ");
    assert!(matches!(refusal, Error::Mismatch { .. }), "{refusal}");
    members.into_iter().map(Member::end).for_each(drop);
}

#[test]
fn a_state_that_is_too_long_keeps_the_newcomer_out_and_the_others_go_on() {
    let (name, members) = found(3, 4, 0);
    // Given some state,
    let (builder, ..) = logged(newcomer(&name, 4), 0);
    // when somebody joins,
    let joined = builder.join();
    // then it is told, unless nothing had been sent yet,
    match joined {
        Err(Error::NotAdmitted { ending }) => assert_eq!(ending, Some(Ending::Excluded)),
        Ok(_) => {}
        Err(other) => panic!("{other}"),
    }
    // and the others have the same.
    let logs: Vec<_> = members.into_iter().map(Member::end).collect();
    let longest = logs.iter().max_by_key(|log| log.len()).expect("logs");
    assert!(logs.iter().all(|log| log[..] == longest[..log.len()]));
}

#[test]
fn who_finds_no_seat_or_nobody_is_told() {
    let (name, members) = found(2, 2, 0);
    let short = Duration::from_millis(20);
    // On a busy machine nobody may answer in so short a time.
    let refusal = || ShmSeats::newcomer(&name, 2, short).expect_err("all are taken");
    let refusal = std::iter::repeat_with(refusal)
        .find(|refusal| matches!(refusal, FabricError::NoSeat { .. }));
    let expected = FabricError::NoSeat {
        name: name.clone(),
        seats: 2,
    };
    assert_eq!(refusal, Some(expected));
    members.into_iter().map(Member::end).for_each(drop);
    let refusal = ShmSeats::newcomer("nobody-is-here", 2, short).expect_err("nobody is there");
    let missing = (0..2).collect();
    assert_eq!(refusal, FabricError::Timeout { missing });
}

#[test]
fn a_fixed_group_cannot_have_seats() {
    let (_, mut nodes) = ShmSeats::threads(1, 2).expect("a fabric");
    let mut builder = Group::builder(nodes.remove(0));
    builder.subgroup(Subgroup::new(NAME));
    match builder.join() {
        Err(Error::Config(error)) => assert_eq!(error, ConfigError::SeatsWithoutViews),
        other => panic!("{other:?}"),
    }
}
