// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's process, as the test holds it: what it is told, and what it has said.

use super::member::Role;
use crate::PATIENCE;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

#[derive(Default)]
struct Said {
    lines: Mutex<(Vec<String>, bool)>,
    more: Condvar,
}

pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Said>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    pub fn founder(name: &str, seat: usize, post: Option<u64>) -> Self {
        Self::start(&Role {
            name: name.to_owned(),
            founder: Some(seat),
            post,
        })
    }

    pub fn newcomer(name: &str) -> Self {
        Self::start(&Role {
            name: name.to_owned(),
            founder: None,
            post: None,
        })
    }

    fn start(role: &Role) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["views::as_member", "--exact", "--nocapture"])
            .envs([role.to_env()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let said = Arc::<Said>::default();
        let heard = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                heard.lines.lock().expect("no panic").0.push(line);
                heard.more.notify_all();
            }
            heard.lines.lock().expect("no panic").1 = true;
            heard.more.notify_all();
        });
        Self {
            input: child.stdin.take(),
            child,
            said,
            reader: Some(reader),
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// It may be dead.
    pub fn tell(&mut self, what: &str) {
        if let Some(input) = &mut self.input {
            writeln!(input, "{what}").ok();
        }
    }

    /// Has it do this in the middle of the next message, and waits until it knows.
    pub fn order(&mut self, what: &str) {
        self.tell(what);
        self.hears(&format!("WILL {what}"));
    }

    pub fn let_go(&mut self) {
        self.input = None;
    }

    /// Waits until what it has said, and whether it has ended, is what is waited for.
    fn wait(&self, what: &str, is_it: impl Fn(&[String], bool) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut said = self.said.lines.lock().expect("no panic");
        while !is_it(&said.0, said.1) {
            let left = end.saturating_duration_since(Instant::now());
            let id = self.id();
            assert!(!left.is_zero(), "{id} does not: {what}; {:#?}", said.0);
            said = self.said.more.wait_timeout(said, left).expect("no panic").0;
        }
    }

    /// Waits for a line.
    pub fn hears(&self, line: &str) {
        self.wait(line, |said, has_ended| {
            let is_said = said.iter().any(|said| said == line);
            assert!(is_said || !has_ended, "it ended before {line}: {said:#?}");
            is_said
        });
    }

    /// The view that it has installed last, as it has said it.
    pub fn view(&self) -> String {
        self.wait("VIEW", |said, _| {
            said.iter().any(|line| line.starts_with("VIEW"))
        });
        let said = self.said.lines.lock().expect("no panic");
        let view = said.0.iter().rev().find(|line| line.starts_with("VIEW"));
        view.expect("a view").clone()
    }

    /// Waits until it is dead, or has said so many lines of a kind. Says whether it is dead.
    pub fn dies_or_hears(&self, kind: &str, count: usize) -> bool {
        let has_all = |said: &[String]| said.iter().filter(|line| line.starts_with(kind)).count();
        self.wait(kind, |said, has_ended| has_ended || has_all(said) >= count);
        self.said.lines.lock().expect("no panic").1
    }

    pub fn dies(&self) {
        self.wait("dies", |_, has_ended| has_ended);
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it is dead");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no panic");
        }
    }

    /// Of each root it has received a row of messages, each once. That they are whole the
    /// process has seen itself.
    pub fn check_messages(&self) {
        let said = self.said.lines.lock().expect("no panic");
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for line in &said.0 {
            if let Some((root, number)) = line.strip_prefix("GOT ").and_then(|s| s.split_once(' '))
            {
                let number: u64 = number.parse().expect("a number");
                let before = last.insert(root, number);
                assert!(
                    before.is_none_or(|before| number == before + 1),
                    "{:#?}",
                    said.0
                );
            }
        }
    }

    /// It was told of the end of each view that has lost a member, once.
    pub fn check_ends(&self) {
        self.wait("one end of each view that has failed", |said, has_ended| {
            assert!(!has_ended, "{said:#?}");
            let mut told: BTreeMap<u64, usize> = BTreeMap::new();
            for line in said.iter().filter_map(|line| line.strip_prefix("ENDED ")) {
                *told.entry(line.parse().expect("a number")).or_default() += 1;
            }
            assert!(told.values().all(|&times| times == 1), "{said:#?}");
            // It was no member of the view before its first one.
            let views = said.iter().filter_map(|line| line.strip_prefix("VIEW "));
            let failed = views
                .skip(1)
                .filter_map(|view| view.strip_suffix(" FAILED"));
            let mut failed = failed.map(|view| view.parse::<u64>().expect("a number"));
            failed.all(|view| told.contains_key(&(view - 1)))
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
