// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups with views, of processes that are killed under load. This test binary runs itself
//! once for each member ([`as_member`]). `WEFT_SOAK=N` does N times as many rounds.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weft::fabric::shm::Shm;
use weft::{Group, Subgroup};

const PATIENCE: Duration = Duration::from_secs(60);
const ROLE: &str = "WEFT_TEST_VIEWS";
const MEMBERS: usize = 5;

/// A member's process, and the lines that it prints.
struct Member {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Member {
    fn spawn(name: &str, rank: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["as_member", "--exact", "--nocapture"])
            .env(ROLE, format!("{name} {rank}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = child.stdout.take().expect("a pipe");
        Self {
            child,
            lines: BufReader::new(output).lines(),
        }
    }

    /// The next line that begins with a word.
    fn line(&mut self, word: &str) -> String {
        let lines = self.lines.by_ref().map_while(Result::ok);
        let mut lines = lines.filter(|line| line.starts_with(word));
        lines.next().unwrap_or_else(|| panic!("no {word}"))
    }

    fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it is dead");
    }

    /// Lets it leave, and answers with the rest of its lines.
    fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let rest = self.lines.map_while(Result::ok).collect();
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {rest:?}");
        rest
    }
}

/// Not a test of its own: what a member's process does. It sends all the time, until its
/// input ends; then it leaves. At each view it prints a hash of all that it has delivered.
#[test]
fn as_member() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // A test that waits for a member that hangs is to fail, not to hang.
    std::thread::spawn(|| {
        std::thread::sleep(2 * PATIENCE);
        eprintln!("a member hangs");
        std::process::exit(3);
    });
    let (name, rank) = role.split_once(' ').expect("two words");
    let node = Shm::new(name, rank.parse().expect("a rank"), MEMBERS).expect("a node");
    let hash = Arc::new(AtomicU64::new(0xcbf2_9ce4_8422_2325));
    let hashed = Arc::clone(&hash);
    let mut next = [0; MEMBERS];
    let group = Group::builder(node)
        .subgroup(Subgroup::new("test").window(16).max_message(8))
        .timeout(PATIENCE)
        .deliver("test", move |batch| {
            let mut hash = hashed.load(Ordering::Relaxed);
            for message in batch {
                let number: u64 = *message.value().expect("a number");
                assert_eq!(number, next[message.sender], "of {}", message.sender);
                next[message.sender] += 1;
                for word in [message.sender as u64, number, message.sequence] {
                    hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(9);
                }
            }
            hashed.store(hash, Ordering::Relaxed);
        })
        .on_view(move |view| {
            let hash = hash.load(Ordering::Relaxed);
            println!("\nVIEW {} {:?} {hash:x}", view.number, view.members);
        })
        .join()
        .expect("a group");
    let sender = group.sender("test").expect("it sends");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    for number in 0_u64.. {
        if end.try_recv().is_ok() {
            break;
        }
        sender.send_value(&number).expect("it is sent");
    }
    group.leave(PATIENCE).expect("all is delivered");
    println!("\nLEFT");
}

/// Kills some members under load, one after the other, and lets the others leave.
fn kill(round: u64, victims: &[usize]) {
    let name = format!("views-{}-{round}", std::process::id());
    let mut members: Vec<_> = (0..MEMBERS)
        .map(|rank| Some(Member::spawn(&name, rank)))
        .collect();
    for member in members.iter_mut().flatten() {
        member.line("VIEW 1 ");
    }
    let mut views = Vec::new();
    for (number, &victim) in (2..).zip(victims) {
        // In the midst of its sending.
        std::thread::sleep(Duration::from_micros(500 + 3137 * (round % 11)));
        members[victim].take().expect("it is there").kill();
        let word = format!("VIEW {number} ");
        let staying = members.iter_mut().flatten();
        let lines: Vec<String> = staying.map(|member| member.line(&word)).collect();
        assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
        views.push(lines[0].clone());
    }
    assert_eq!(views.len(), victims.len());
    for member in members.into_iter().flatten() {
        let rest = member.end();
        assert!(rest.iter().any(|line| line == "LEFT"), "{rest:?}");
    }
}

#[test]
fn survivors_of_kills_under_load_go_on_with_the_same_sequence() {
    let times = std::env::var("WEFT_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let victims = [&[0, 1, 2][..], &[4, 0], &[2, 3, 4], &[1], &[3, 0, 1]];
    let rounds = victims.iter().cycle().take(victims.len() * times);
    for (round, victims) in (0..).zip(rounds) {
        kill(round, victims);
    }
}
