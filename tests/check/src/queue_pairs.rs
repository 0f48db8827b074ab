// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's RC queue pairs, as `rdma` tells an administrator.

use std::process::Command;

use anyhow::{Context as _, Result};

/// A queue pair of the kernel's that can send.
pub struct QueuePair {
    pub device: String,
    pub number: u32,
    /// The number of its other end.
    pub rqpn: u32,
}

/// All of them, on all devices.
pub fn queue_pairs() -> Result<Vec<QueuePair>> {
    let output = Command::new("rdma")
        .args(["-j", "resource", "show", "qp"])
        .output()?;
    let all: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let all = all.as_array().context("no list of queue pairs")?;
    // Those of programs have a process.
    let is_it =
        |qp: &&serde_json::Value| qp["type"] == "RC" && qp["state"] == "RTS" && qp["pid"].is_null();
    let number = |of: &serde_json::Value| u32::try_from(of.as_u64()?).ok();
    let pair = |qp: &serde_json::Value| {
        Some(QueuePair {
            device: qp["ifname"].as_str()?.to_owned(),
            number: number(&qp["lqpn"])?,
            rqpn: number(&qp["rqpn"])?,
        })
    };
    Ok(all.iter().filter(is_it).filter_map(pair).collect())
}
