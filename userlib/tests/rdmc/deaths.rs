// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member is killed at each of its posts, and so at each step of a transfer:
//! all others get one event, and a group without it works at once. Members are
//! processes; this test binary runs itself for each.

use crate::{pattern, Member, PATIENCE};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use weft::fabric::conformance::Mortal;
use weft::fabric::shm::Shm;
use weft::rdmc::schedule::Algorithm;
use weft::rdmc::{Choice, EndReason, Error, Event, GroupConfig, Node, SendReason};

const ROLE: &str = "WEFT_TEST_RDMC_ROLE";
const MEMBERS: usize = 8;
const BLOCKS: usize = 8;
const BLOCK: usize = 4096;
/// A death is told within this, on a machine that is ten times as loaded as this
/// test makes it.
const BOUND: Duration = Duration::from_secs(10);

/// Who dies, and before which of its posts.
#[derive(Clone, Copy)]
struct Death {
    victim: usize,
    post: u64,
}

fn spawn(death: Death, rank: usize) -> Child {
    let Death { victim, post } = death;
    let name = format!("deaths-{}-{victim}-{post}", std::process::id());
    Command::new(std::env::current_exe().expect("this test"))
        .args(["deaths::as_member", "--exact", "--nocapture"])
        .env(ROLE, format!("{name} {rank} {victim} {post}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Not a test of its own: what a member's process does.
#[test]
fn as_member() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse().expect("a number");
    let (rank, victim) = (number(1), number(2));
    let post = words[3].parse().expect("a number");
    let shm = Shm::new(words[0], rank, MEMBERS).expect("a node");
    let fabric = Mortal::before(shm, (rank == victim).then_some(post));
    let builder = Node::builder(fabric).memory(1 << 20).groups(4);
    let node = builder.timeout(PATIENCE).join().expect("a node");
    match rank == victim {
        true => die(&node),
        false => survive(&node, victim),
    }
    println!("\nSURVIVED");
}

fn config() -> GroupConfig {
    GroupConfig::new(1, 0..MEMBERS)
        .algorithm(Choice::Always(Algorithm::BinomialPipeline))
        .block_bytes(BLOCK)
}

fn message() -> Vec<u8> {
    pattern(1, BLOCKS * BLOCK)
}

/// Takes part, unless it dies before.
fn die(node: &Node) {
    let member = Member::create(node, &config()).expect("a group");
    if member.group.is_root() {
        member.send(node, &message());
        assert!(matches!(member.next(), Event::Sent(_)));
    } else {
        assert!(member.received().bytes() == message());
    }
    // Its farewell is one of its posts, too.
    member.group.destroy(PATIENCE).expect("all is done");
}

/// Gets the message or not, then one event; then there is a group of the rest.
fn survive(node: &Node, victim: usize) {
    match Member::create(node, &config()) {
        Ok(member) => {
            if member.group.is_root() {
                send_unless_ended(node, &member);
            }
            witness(&member, victim);
            works_without(node, victim);
            let more = member.events.try_iter();
            let events: Vec<_> = more.filter(|event| !is_returned(event)).collect();
            assert!(events.is_empty(), "one event, and then {events:?}");
        }
        Err(Error::Ended { end, .. }) => {
            assert_eq!((end.node, end.reason), (victim, EndReason::Died));
            works_without(node, victim);
        }
        Err(other) => panic!("{other}"),
    }
}

/// The victim may be dead before the message is taken.
fn send_unless_ended(node: &Node, member: &Member) {
    let mut buffer = node.allocate(BLOCKS * BLOCK).expect("memory");
    buffer.copy_from_slice(&message());
    if let Err(refused) = member.group.send(buffer, BLOCKS * BLOCK) {
        let reason = refused.reason;
        assert!(matches!(reason, SendReason::Ended(_)), "{reason}");
    }
}

fn is_returned(event: &Event) -> bool {
    matches!(event, Event::Returned(_))
}

fn witness(member: &Member, victim: usize) {
    let end = loop {
        match member.next() {
            Event::Ended(end) => break end,
            Event::Received(got) => assert!(got.bytes() == message()),
            Event::Sent(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end.node, victim);
    // One that was done with everything has left, even if it is killed then.
    assert!(matches!(end.reason, EndReason::Died | EndReason::Left));
}

fn works_without(node: &Node, victim: usize) {
    let rest = (0..MEMBERS).filter(|&rank| rank != victim);
    let config = GroupConfig::new(2, rest).block_bytes(BLOCK);
    let member = Member::create(node, &config).expect("a group of the rest");
    let bytes = pattern(2, 3 * BLOCK + 1);
    if member.group.is_root() {
        member.send(node, &bytes);
        member.group.destroy(PATIENCE).expect("it works");
    } else {
        assert!(member.received().bytes() == bytes);
        assert_eq!(member.ended().reason, EndReason::Left);
    }
}

/// Runs all members; answers whether the victim died.
fn run(death: Death) -> bool {
    let started = Instant::now();
    let members: Vec<Child> = (0..MEMBERS).map(|rank| spawn(death, rank)).collect();
    let outputs: Vec<Output> = members
        .into_iter()
        .map(|member| member.wait_with_output().expect("it ends"))
        .collect();
    let died = outputs[death.victim].status.signal() == Some(9);
    for (rank, output) in outputs.iter().enumerate() {
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("SURVIVED") || (died && rank == death.victim),
            "victim {} at post {}, member {rank}: {text}\n{errors}",
            death.victim,
            death.post
        );
    }
    let took = started.elapsed();
    assert!(took < BOUND, "all of it took {took:?}");
    died
}

/// Kills one member before each of its posts, until it needs no more of them.
fn kill_everywhere(victim: usize) {
    let last = (0..)
        .find(|&post| !run(Death { victim, post }))
        .unwrap_or_default();
    println!("member {victim} was killed at {last} posts");
    assert!(last as usize > BLOCKS, "it has part in the transfer");
}

#[test]
fn a_root_that_is_killed_at_any_step_ends_its_group_only() {
    kill_everywhere(0);
}

#[test]
fn a_member_that_is_killed_at_any_step_ends_its_groups_only() {
    for victim in 1..MEMBERS {
        kill_everywhere(victim);
    }
}
