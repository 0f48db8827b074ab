// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members are killed, one after the other.

use crate::{spawn, times};
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

const MEMBERS: usize = 5;

/// A member's process, and the lines that it prints.
struct Member {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Member {
    fn spawn(name: &str, rank: usize) -> Self {
        let (child, input, output) = spawn(&format!("{rank} fixed {name} {rank} {MEMBERS}"));
        Self {
            child,
            input,
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
        drop(self.input);
        let rest = self.lines.map_while(Result::ok).collect();
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {rest:?}");
        rest
    }
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
    let victims = [&[0, 1, 2][..], &[4, 0], &[2, 3, 4], &[1], &[3, 0, 1]];
    let rounds = victims.iter().cycle().take(victims.len() * times());
    for (round, victims) in (0..).zip(rounds) {
        kill(round, victims);
    }
}
