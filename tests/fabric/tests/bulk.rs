// SPDX-License-Identifier: MIT OR Apache-2.0

//! Large messages of processes over shared memory. `WEFT_SOAK=N` does N times as many.

use std::process::Command;

#[test]
fn large_messages_over_shared_memory_go_on_when_receivers_are_killed_and_others_come() {
    let times = std::env::var("WEFT_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let status = Command::new(env!("CARGO_BIN_EXE_weft-fabric"))
        .args(["bulk", "shm"])
        .arg(format!("--changes={}", 8 * times))
        .status();
    assert!(status.expect("weft-fabric runs").success());
}
