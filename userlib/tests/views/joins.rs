// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members are killed and others join, at the same time.

use crate::member::PATIENCE;
use crate::{spawn, times};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SEATS: usize = 6;
const FOUNDERS: usize = 3;
/// Changes in a round.
const CHANGES: usize = 8;

/// A member's process. A thread collects what it says of views.
struct Member {
    child: Child,
    input: ChildStdin,
    /// Numbers of views, and what it says of each.
    views: Arc<Mutex<Vec<(u64, String)>>>,
    reader: JoinHandle<bool>,
}

impl Member {
    fn spawn(role: &str) -> Self {
        let (child, input, output) = spawn(role);
        let views = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&views);
        let reader = std::thread::spawn(move || {
            let mut has_left = false;
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                has_left |= line == "LEFT";
                let view = line
                    .strip_prefix("VIEW ")
                    .and_then(|line| line.split_once(' '));
                if let Some((number, view)) = view {
                    let number = number.parse().expect("a number");
                    heard
                        .lock()
                        .expect("no panic")
                        .push((number, view.to_owned()));
                }
            }
            has_left
        });
        Self {
            child,
            input,
            views,
            reader,
        }
    }

    fn views(&self) -> Vec<(u64, String)> {
        self.views.lock().expect("no panic").clone()
    }

    /// Kills it, and answers with all that it has said.
    fn kill(mut self) -> Vec<(u64, String)> {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it is dead");
        self.reader.join().expect("no panic");
        let views = self.views.lock().expect("no panic");
        let mut views = views.clone();
        // The last line may not be whole.
        views.pop();
        views
    }

    fn leave(mut self) -> Vec<(u64, String)> {
        drop(self.input);
        let status = self.child.wait().expect("it ends");
        let has_left = self.reader.join().expect("no panic");
        assert!(status.success() && has_left, "{status}");
        let views = self.views.lock().expect("no panic");
        views.clone()
    }
}

/// Waits until all are in the same view, which has as many members.
fn settle(members: &[Member]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let last: Vec<_> = members.iter().map(|member| member.views().pop()).collect();
        let view = last[0].as_ref().map_or("", |view| &view.1);
        let count = view
            .split_once('}')
            .map_or(0, |view| view.0.split(", ").count());
        if count == members.len() && last.iter().all(|view| *view == last[0]) {
            return;
        }
        assert!(Instant::now() < end, "{last:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Some changes, each a newcomer, a kill, or both; then all leave. Everybody has to say the
/// same of each view.
fn churn(round: usize, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let name = format!("joins-{}-{round}", std::process::id());
    let founder = |rank| format!("{rank} founder {name} {rank} {FOUNDERS} {SEATS}");
    let mut members: Vec<_> = (0..FOUNDERS)
        .map(|rank| Member::spawn(&founder(rank)))
        .collect();
    let mut said = Vec::new();
    settle(&members);
    for person in FOUNDERS..FOUNDERS + CHANGES {
        let comes = members.len() < SEATS - 1 && rng.u8(..) < 192 || members.len() <= FOUNDERS;
        if comes {
            members.push(Member::spawn(&format!("{person} newcomer {name} {SEATS}")));
        }
        // A newcomer is in after some milliseconds, on a machine that has time.
        std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
        // Not the first founders' majority: one of at least four.
        if members.len() > FOUNDERS && rng.u8(..) < 192 {
            let victim = rng.usize(0..members.len());
            said.push(members.swap_remove(victim).kill());
        }
        settle(&members);
    }
    said.extend(members.into_iter().map(Member::leave));
    let mut views: BTreeMap<u64, String> = BTreeMap::new();
    for (number, view) in said.into_iter().flatten() {
        let known = views.entry(number).or_insert_with(|| view.clone());
        assert_eq!(*known, view, "of view {number}, seed {seed}");
    }
}

#[test]
fn members_that_join_while_others_are_killed_have_the_same_behind_them_at_each_view() {
    let seed = std::env::var("WEFT_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("a number"),
    );
    for round in 0..4 * times() {
        println!("seed {seed}, round {round}");
        churn(round, seed.wrapping_add(round as u64));
    }
}
