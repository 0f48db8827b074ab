// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the module has left behind: memory that nothing points to, which kmemleak finds
//! where the kernel has it switched on, and what a module that is gone still has of the
//! kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use crate::world::wait_for;

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";
/// kmemleak takes what is younger than five seconds for not leaked yet.
const AGE: Duration = Duration::from_secs(6);
/// A pointer that moves while kmemleak looks can escape it, so it looks twice.
const BETWEEN: Duration = Duration::from_secs(1);
/// Bytes of its report that are shown.
const SHOWN: usize = 2000;

/// Objects of the kernel's own RDMA consumers.
const OBJECTS: [&str; 5] = ["pd", "cq", "qp", "cm_id", "mr"];
/// What there is while the module is loaded.
const PATHS: [&str; 3] = ["/sys/module/weft", "/sys/kernel/debug/weft", "/dev/weft"];
/// It goes within this.
const BOUND: Duration = Duration::from_secs(20);

/// Whether kmemleak is on (`--kernel leaks`).
pub fn are_looked_for() -> bool {
    std::env::var("VM_KERNEL").is_ok_and(|kernel| kernel == "leaks")
}

/// Lets kmemleak look, which takes minutes. What it finds is reported once.
pub fn none() -> Result<()> {
    let order = |text: &str| std::fs::write(KMEMLEAK, text).with_context(|| text.to_owned());
    std::thread::sleep(AGE);
    order("scan")?;
    std::thread::sleep(BETWEEN);
    order("scan")?;
    let found = std::fs::read(KMEMLEAK)?;
    if found.is_empty() {
        return Ok(());
    }
    order("clear")?;
    let shown = &found[..found.len().min(SHOWN)];
    bail!("kmemleak: {}", String::from_utf8_lossy(shown));
}

/// What there is of the kernel without the module.
pub struct Unloaded(BTreeMap<String, usize>);

impl Unloaded {
    /// To be called while it is not loaded.
    pub fn take() -> Result<Self> {
        gone()?;
        Ok(Self(held()?))
    }

    /// Whether the module has left as much as there was.
    pub fn is_back(&self) -> Result<()> {
        gone()?;
        let mut now = BTreeMap::new();
        let settled = wait_for("what the module held goes", BOUND, || {
            now = held()?;
            Ok(now == self.0)
        });
        settled.with_context(|| format!("there were {:?}, are {now:?}", self.0))
    }
}

/// Whether no trace of the module is in the file systems.
pub fn gone() -> Result<()> {
    for path in PATHS {
        ensure!(!Path::new(path).exists(), "{path} is still there");
    }
    Ok(())
}

/// Counts what the module can hold of the kernel: RDMA objects, and UDP sockets in the
/// nodes' namespaces.
fn held() -> Result<BTreeMap<String, usize>> {
    let mut all = BTreeMap::new();
    for object in OBJECTS {
        let text = output("rdma", &["-j", "resource", "show", object])?;
        let list: serde_json::Value = serde_json::from_str(&text)?;
        // Those of programs have a process.
        let own = |entry: &&serde_json::Value| entry["pid"].is_null();
        let count = list
            .as_array()
            .context("no list")?
            .iter()
            .filter(own)
            .count();
        all.insert(object.to_owned(), count);
    }
    let here = std::fs::read_to_string("/proc/net/udp")?;
    let there = output("ip", &["netns", "exec", "n1", "cat", "/proc/net/udp"])?;
    for (name, sockets) in [("UDP sockets at node 0", here), ("at node 1", there)] {
        all.insert(name.to_owned(), sockets.lines().count());
    }
    Ok(all)
}

fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", said.trim());
    Ok(String::from_utf8(output.stdout)?)
}
