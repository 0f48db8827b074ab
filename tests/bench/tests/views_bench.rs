// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench views` runs over shared memory and says what it promises to say. How fast
//! anything is is not judged here.

use std::process::Command;

use serde_json::Value;

#[test]
fn kills_leaves_and_joins_are_measured_at_each_member() {
    let json = std::env::temp_dir().join(format!("weft-views-{}.json", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .args(["views", "--rounds", "2", "--json"])
        .arg(&json)
        .output()
        .expect("weft-bench runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = std::fs::read_to_string(&json).expect("results");
    std::fs::remove_file(&json).expect("they were there");
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON lines"))
        .collect();
    let changes: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["change"].as_str())
        .collect();
    assert_eq!(changes, ["kill", "leave", "join"]);
    for row in &rows {
        assert_eq!(row["changes"], 2, "{row}");
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
