// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench views` runs over shared memory and says what it promises to say. How fast
//! anything is is not judged here.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;

#[test]
fn kills_leaves_joins_and_hangs_are_measured_at_each_member() {
    let json = std::env::temp_dir().join(format!("weft-views-{}.json", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .args([
            "views",
            "--rounds",
            "2",
            "--suspect-after",
            "3000",
            "--json",
        ])
        .arg(&json)
        .output()
        .expect("weft-bench runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = fs::read_to_string(&json).expect("results");
    fs::remove_file(&json).expect("they were there");
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON lines"))
        .collect();
    let changes: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["change"].as_str())
        .collect();
    assert_eq!(changes, ["kill", "leave", "join", "hang"]);
    let (hang, others) = rows.split_last().expect("rows");
    // A group in which somebody was put out wrongly is counted by itself.
    let groups = ["changes", "wrong"].map(|field| hang[field].as_u64().expect("a count"));
    assert_eq!(groups.iter().sum::<u64>(), 1, "{hang}");
    let named = |field: &str| {
        rows.iter()
            .map(|row| row[field].is_f64())
            .collect::<Vec<_>>()
    };
    assert_eq!(named("failover_us_p50"), [true, false, false, false]);
    assert_eq!(named("join_us_p50"), [false, false, true, false]);
    for row in others {
        assert_eq!(row["changes"], 2, "{row}");
        assert_eq!(row["state_bytes"], 4096, "{row}");
        assert!(row["message_us_p50"].as_f64().is_some(), "{row}");
        for field in [
            "resumed_us_p50",
            "resumed_us_max",
            "pause_us_p50",
            "pause_us_max",
        ] {
            assert!(
                row[field].as_f64().is_some_and(|us| us > 0.0),
                "{field}: {row}"
            );
        }
    }
}

/// Waits until a member of this rank, in this state, is in a group in which members that hang
/// are suspected.
fn member(bench: u32, rank: u32, state: &str) -> Pid {
    let parent = format!("PPid:\t{bench}\n");
    let rank = format!("--rank={rank}\0");
    let is_member = |folder: &std::path::Path| {
        let text = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let (status, words) = (text("status"), text("cmdline"));
        let is_right = status.contains(&parent) && status.contains(state);
        is_right && words.contains("--term-ms=") && words.contains(&rank)
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(120) {
        for entry in fs::read_dir("/proc").expect("processes") {
            let path = entry.expect("a process").path();
            if is_member(&path) {
                let pid = path.file_name().and_then(|name| name.to_str());
                return Pid::from_raw(pid.and_then(|pid| pid.parse().ok()).expect("a number"));
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no such member runs");
}

#[test]
fn a_member_that_crashes_is_not_counted_as_one_that_was_put_out() {
    let bench = Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .args(["views", "--rounds", "1", "--suspect-after", "3000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weft-bench runs");
    member(bench.id(), 0, "State:\tT");
    kill(member(bench.id(), 1, ""), Signal::SIGABRT).expect("it runs");
    let output = bench.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("ended too soon"), "{errors}");
}
