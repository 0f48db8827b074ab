// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups of processes over shared memory. This test binary runs itself once
//! for each member ([`as_member`]).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use weft::fabric::{shm::Shm, Fabric};
use weft::{Event, Group, SendError, Subgroup};

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
    let builder = Group::builder(node).subgroup(subgroup).timeout(PATIENCE);
    let all: u64 = (0..nodes).map(|rank| share(rank, nodes)).sum();
    let group = builder
        .deliver("test", move |batch| {
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
    let sender = group.sender("test").expect("it sends");
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
    let group = endless(node).join().expect("a group");
    let sender = group.sender("test").expect("it sends");
    println!("\nREADY");
    loop {
        if let Err(error) = sender.send_bytes(b"still here") {
            return error.to_string();
        }
    }
}

/// Sends until it learns that the victim has died.
fn survivor(node: Shm) -> String {
    let (told, events) = mpsc::channel();
    let builder = endless(node).on_event(move |event| {
        told.send(event).ok();
    });
    let group = builder.join().expect("a group");
    let sender = group.sender("test").expect("it sends");
    let failed = loop {
        if let Err(error) = sender.send_bytes(b"hello") {
            break error;
        }
    };
    // The other survivor may have left meanwhile.
    let mut told = std::iter::from_fn(|| events.recv_timeout(PATIENCE).ok());
    assert!(
        told.any(|event| event == Event::Failed(1)),
        "it is not told"
    );
    let SendError::Wedged { failed } = failed else {
        panic!("{failed}");
    };
    format!("{failed:?}")
}

fn endless(node: Shm) -> weft::multicast::Builder<Shm> {
    Group::builder(node)
        .subgroup(Subgroup::new("test").window(10))
        .deliver("test", |_| {})
        .timeout(PATIENCE)
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
fn a_process_that_is_killed_is_noticed_by_all_and_hangs_nobody() {
    let survivors = [0, 2].map(|rank| spawn("survivor", "kill", rank, 3));
    let mut victim = spawn("victim", "kill", 1, 3);
    let output = BufReader::new(victim.stdout.take().expect("a pipe"));
    let ready = output
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "READY");
    assert!(ready, "the victim has not joined");
    // In the midst of its sending.
    std::thread::sleep(Duration::from_millis(100));
    victim.kill().expect("SIGKILL");
    victim.wait().expect("it is dead");
    for survivor in survivors {
        assert_eq!(wait(survivor), "{1}");
    }
}
