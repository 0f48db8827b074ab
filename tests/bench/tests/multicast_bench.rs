// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench multicast` runs over shared memory and says what it promises to
//! say. How fast anything is is not judged here.

use std::process::Command;

use serde_json::Value;

/// What the contract of the benchmark names.
const FIELDS: [&str; 17] = [
    "fabric",
    "members",
    "senders",
    "bytes",
    "window",
    "subgroups",
    "opts",
    "gb_per_s",
    "msgs_per_s",
    "lat_us_p50",
    "lat_us_p99",
    "posts",
    "posts_per_msg",
    "nulls",
    "raw_write_gb_per_s",
    "touch",
    "syscalls_per_msg",
];

fn bench(experiments: &str, sizes: &str) -> Vec<Value> {
    let json = std::env::temp_dir().join(format!(
        "weft-multicast-{}-{experiments}.json",
        std::process::id()
    ));
    let output = Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .args(["multicast", "--quick", "--rounds", "1", "--slice-ms", "500"])
        .args(["--experiments", experiments, "--sizes", sizes])
        .arg("--json")
        .arg(&json)
        .output()
        .expect("weft-bench runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = std::fs::read_to_string(&json).expect("results");
    std::fs::remove_file(&json).expect("they were there");
    let rows = lines.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().expect("JSON lines")
}

#[test]
fn each_rung_of_the_ladder_delivers_and_has_all_fields() {
    let rows = bench("raw,ladder", "128");
    let rungs: Vec<&Value> = rows
        .iter()
        .filter(|row| row["experiment"] == "ladder")
        .collect();
    let opts: Vec<&str> = rungs
        .iter()
        .filter_map(|row| row["opts"].as_str())
        .collect();
    let all = weft::Options::LADDER.map(|(name, _)| name);
    assert_eq!(opts, all);
    for row in rungs {
        for field in FIELDS {
            assert!(!row[field].is_null(), "{field} of {row}");
        }
        assert!(row["msgs_per_s"].as_f64() > Some(0.0), "{row}");
        assert!(row["send_batches"]["count"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn an_idle_group_posts_nothing_and_a_lone_message_arrives() {
    let rows = bench("lone,idle", "8");
    let of = |experiment: &str| {
        let row = rows.iter().find(|row| row["experiment"] == experiment);
        row.expect("a row")
    };
    assert_eq!(of("idle")["posts"], 0);
    assert!(of("idle")["cpu_us_per_s"].is_number());
    for field in ["lat_us_p50", "wake_us_p50", "posts_per_msg"] {
        assert!(of("lone")[field].as_f64() > Some(0.0), "{field}");
    }
}

#[test]
fn messages_that_nobody_reads_have_no_bandwidth() {
    let rows = bench("touch", "10240");
    let of = |touch: &'static str| rows.iter().filter(move |row| row["touch"] == touch);
    assert!(of("full").count() > 0 && of("full").count() == of("none").count());
    for row in &rows {
        assert!(row["msgs_per_s"].as_f64() > Some(0.0), "{row}");
    }
    assert!(of("full").all(|row| row["gb_per_s"].is_number()));
    assert!(of("none").all(|row| row["gb_per_s"].is_null() && row["raw_share"].is_null()));
}

#[test]
fn a_group_with_views_is_measured_beside_a_fixed_one() {
    for (experiment, bytes) in [("views", "10240"), ("lone", "8")] {
        let rows = bench(experiment, bytes);
        let views = rows.iter().map(|row| row["views"].as_bool());
        assert!(views.eq([Some(false), Some(true)]), "{experiment}");
        for row in &rows {
            assert!(row["lat_us_p50"].as_f64() > Some(0.0), "{row}");
        }
    }
}
