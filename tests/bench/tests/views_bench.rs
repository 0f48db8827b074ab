// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench views` runs over shared memory and says what it promises to say. How fast
//! anything is is not judged here.

use std::process::Command;

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
    assert_eq!(changes, ["kill", "leave", "join", "hang"]);
    let (hang, others) = rows.split_last().expect("rows");
    // A group in which somebody was put out wrongly is counted by itself.
    let groups = ["changes", "wrong"].map(|field| hang[field].as_u64().expect("a count"));
    assert_eq!(groups.iter().sum::<u64>(), 1, "{hang}");
    for row in others {
        assert_eq!(row["changes"], 2, "{row}");
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
