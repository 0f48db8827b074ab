// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups with views, of processes that are killed, and join, under load. This test binary
//! runs itself once for each member ([`as_member`]). `WEFT_SOAK=N` does N times as many rounds,
//! `WEFT_SEED` repeats those of joins.

mod joins;
mod kills;
mod member;

use member::PATIENCE;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "WEFT_TEST_VIEWS";

/// Not a test of its own: what a member's process does.
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
    member::run(&role);
}

/// Starts a member's process; answers with its ends too: it leaves when its input ends.
fn spawn(role: &str) -> (Child, ChildStdin, ChildStdout) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["as_member", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let input = child.stdin.take().expect("a pipe");
    let output = child.stdout.take().expect("a pipe");
    (child, input, output)
}

/// How many times as many rounds.
fn times() -> usize {
    std::env::var("WEFT_SOAK").map_or(1, |times| times.parse().expect("a number"))
}
