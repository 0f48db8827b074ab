// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups of processes over shared memory. This test binary runs itself once
//! for each member ([`as_member`]).

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};
use weft::fabric::shm::{Shm, ShmSeats};
use weft::fabric::{Connected, Fabric};
use weft::{Event, Group, SendError, Subgroup, SubgroupHandle};

const PATIENCE: Duration = Duration::from_secs(60);
const ROLE: &str = "WEFT_TEST_ROLE";
/// Of all members together, at most.
const MESSAGES: u64 = 120_000;

fn spawn(role: &str, name: &str, rank: usize, nodes: usize) -> Child {
    let name = format!("{name}-{}", std::process::id());
    Command::new(std::env::current_exe().expect("this test"))
        .args(["as_member", "--exact", "--nocapture"])
        .env(ROLE, format!("{role} {name} {rank} {nodes}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// The line that a member's role has answered with.
fn answer(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("ANSWER "));
    line.unwrap_or_else(|| panic!("no answer: {text}\n{errors}"))
        .1
        .to_owned()
}

fn wait(child: Child) -> String {
    answer(&child.wait_with_output().expect("it ends"))
}

/// Not a test of its own: what a member's process does.
#[test]
fn as_member() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse().expect("a number");
    let node = Shm::new(words[1], number(2), number(3)).expect("a node");
    let answer = match words[0] {
        "stream" => stream(node),
        "victim" => victim(node),
        "survivor" => survivor(node),
        "frugal" => frugal(),
        role => panic!("no role {role}"),
    };
    println!("\nANSWER {answer}");
}

/// What a member sends: some send nothing, the others less and less.
fn share(rank: usize, nodes: usize) -> u64 {
    match rank % 4 {
        3 => 0,
        quarter => MESSAGES / (nodes * (quarter + 1)) as u64,
    }
}

/// Sends at its own pace and delivers, and answers with a hash of the sequence.
fn stream(node: Shm) -> String {
    let (done, finished) = mpsc::channel();
    let (mut hash, mut count) = (0xcbf2_9ce4_8422_2325_u64, 0);
    let subgroup = Subgroup::new("test").window(50).max_message(64);
    let (rank, nodes) = (node.rank(), node.nodes());
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(subgroup);
    let builder = builder.timeout(PATIENCE);
    let all: u64 = (0..nodes).map(|rank| share(rank, nodes)).sum();
    let group = builder
        .deliver(handle, move |batch| {
            for message in batch {
                let number: &u64 = message.value().expect("a number");
                for word in [message.sender as u64, *number] {
                    hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(9);
                }
                count += 1;
                if count == all {
                    done.send(hash).ok();
                }
            }
        })
        .join()
        .expect("a group");
    let sender = group.sender(handle).expect("it sends");
    for number in 0..share(rank, nodes) {
        if number % (500 + 300 * rank as u64) == 0 {
            std::thread::sleep(Duration::from_micros(number % 300));
        }
        sender
            .send(|slot| *slot.value().expect("room for a number") = number)
            .expect("it is sent");
    }
    let hash = finished.recv_timeout(PATIENCE).expect("all is delivered");
    group.leave(PATIENCE).expect("all is delivered");
    format!("{hash:x}")
}

/// Sends until it is killed.
fn victim(node: Shm) -> String {
    let (builder, handle) = endless(node);
    let group = builder.join().expect("a group");
    let sender = group.sender(handle).expect("it sends");
    println!("\nREADY");
    loop {
        if let Err(error) = sender.send_bytes(b"still here") {
            return error.to_string();
        }
    }
}

/// Sends until it learns that the victim has died. Answers with how its subgroup has
/// ended, and how much of which sequence it has delivered by the time it is told.
fn survivor(node: Shm) -> String {
    let (told, events) = mpsc::channel();
    let delivered = Arc::new(Mutex::new((0_u64, 0_u64)));
    let (deliver, at_the_news) = (Arc::clone(&delivered), Arc::clone(&delivered));
    let (builder, handle) = endless(node);
    let builder = builder
        .deliver(handle, move |batch| {
            let mut delivered = deliver.lock().expect("no panic");
            for message in batch {
                delivered.0 += 1;
                let word = message.sender as u64 ^ message.sequence;
                delivered.1 = (delivered.1 ^ word).wrapping_mul(0x0100_0000_01b3);
            }
        })
        .on_event(move |event| {
            let delivered = *at_the_news.lock().expect("no panic");
            told.send((event, delivered)).ok();
        });
    let group = builder.join().expect("a group");
    let sender = group.sender(handle).expect("it sends");
    let failed = loop {
        if let Err(error) = sender.send_bytes(b"hello") {
            break error;
        }
    };
    // The other survivor may have left meanwhile.
    let mut told = std::iter::from_fn(|| events.recv_timeout(PATIENCE).ok());
    let news = told.find(|(event, _)| *event == Event::Failed(1));
    let (_, at_the_news) = news.expect("it is told");
    let SendError::Wedged { failed } = failed else {
        panic!("{failed}");
    };
    let ending = group.ending(handle).expect("the subgroup");
    drop(group);
    assert_eq!(
        *delivered.lock().expect("no panic"),
        at_the_news,
        "it goes on"
    );
    format!("{failed:?} {ending:?} {at_the_news:?}")
}

/// Lowers its limit of descriptors when it has more.
fn frugal() -> String {
    hears_two_deaths(Shm::threads(4).expect("a fabric"));
    hears_two_deaths(ShmSeats::threads(4, 4).expect("a fabric").1);
    "it hears".to_owned()
}

fn hears_two_deaths<F: Fabric + Send>(nodes: Vec<F>) {
    let connect = |node: F| {
        // SAFETY: nobody posts, or looks at regions.
        unsafe { node.connect(64, b"", PATIENCE) }.expect("they meet")
    };
    let mut connected: Vec<Connected> = std::thread::scope(|scope| {
        let threads = nodes.into_iter().map(|node| scope.spawn(|| connect(node)));
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|node| node.expect("no panic")).collect()
    });
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 2, hard).expect("a lower limit");
    let end = Instant::now() + PATIENCE;
    for rank in [3, 2] {
        drop(connected.pop());
        while !connected[0].endpoint.down().contains(rank) {
            assert!(Instant::now() < end, "it does not hear of node {rank}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit that was");
}

fn endless(node: Shm) -> (weft::multicast::Builder<Shm>, SubgroupHandle) {
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(Subgroup::new("test").window(10));
    let builder = builder.deliver(handle, |_| {}).timeout(PATIENCE);
    (builder, handle)
}

#[test]
fn processes_of_any_number_deliver_one_sequence() {
    for nodes in [1, 2, 4, 16] {
        let name = format!("of-{nodes}");
        let members = 0..nodes;
        let children: Vec<Child> = members
            .map(|rank| spawn("stream", &name, rank, nodes))
            .collect();
        let hashes: Vec<String> = children.into_iter().map(wait).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}

#[test]
fn a_process_that_may_open_fewer_descriptors_than_it_has_hears_of_deaths() {
    assert_eq!(wait(spawn("frugal", "frugal", 0, 1)), "it hears");
}

#[test]
fn those_who_survive_a_kill_are_told_and_have_delivered_the_same() {
    for round in 0..8 {
        let name = format!("kill-{round}");
        let survivors = [0, 2, 3].map(|rank| spawn("survivor", &name, rank, 4));
        let mut victim = spawn("victim", &name, 1, 4);
        let output = BufReader::new(victim.stdout.take().expect("a pipe"));
        let ready = output
            .lines()
            .map_while(Result::ok)
            .any(|line| line == "READY");
        assert!(ready, "the victim has not joined");
        // In the midst of its sending.
        std::thread::sleep(Duration::from_millis(20 + 13 * round));
        victim.kill().expect("SIGKILL");
        victim.wait().expect("it is dead");
        let answers = survivors.map(wait);
        assert!(answers[0].starts_with("{1} Some(Agreed)"), "{answers:?}");
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{answers:?}"
        );
    }
}
