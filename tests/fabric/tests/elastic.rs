// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes over shared memory, which needs no RDMA. `WEFT_SOAK=N` does N times as many.

use std::process::Command;

#[test]
fn members_over_shared_memory_are_killed_and_join_and_all_have_the_same_sequence() {
    let times = std::env::var("WEFT_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let counts = [("--shrinking", 5), ("--changes", 16)];
    let counts = counts.map(|(what, count)| format!("{what}={}", count * times));
    let status = Command::new(env!("CARGO_BIN_EXE_weft-fabric"))
        .args(["elastic", "shm"])
        .args(counts)
        .args(["--posts=11", "--stops=1"])
        .status();
    assert!(status.expect("weft-fabric runs").success());
}
