// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loads the module anew, as it was or with another `pool=`. `scripts/vm` tells where its
//! file is and what it was loaded with.

use std::env;
use std::ffi::OsStr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use crate::counters::counter;

/// The module's file, and its arguments.
const FILE: &str = "WEFT_KO";
const ARGUMENTS: &str = "VM_MODULE_ARGS";
/// How long the nodes may take until the meta server knows all of them.
const PATIENCE: Duration = Duration::from_secs(30);
const NAP: Duration = Duration::from_millis(20);

/// The loaded module. When this is dropped it is loaded as it was before.
pub struct Module {
    file: String,
    arguments: Vec<String>,
    /// Nodes that the meta server knows once it is of use.
    nodes: u64,
    is_changed: bool,
}

impl Module {
    /// The one that is loaded.
    pub fn here() -> Result<Self> {
        let file = env::var(FILE).with_context(|| {
            format!("{FILE} does not say where the module is: run by scripts/bench")
        })?;
        let arguments = env::var(ARGUMENTS).unwrap_or_default();
        Ok(Self {
            file,
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            nodes: counter("nodes_published")?,
            is_changed: false,
        })
    }

    /// Loads it anew as it was loaded before, or with this `pool=`. Answers its arguments.
    /// No session may be open.
    pub fn reload(&mut self, pool: Option<&str>) -> Result<String> {
        let arguments = arguments(&self.arguments, pool);
        run("rmmod", ["weft"])?;
        let words = [&self.file].into_iter().chain(&arguments);
        run("insmod", words)?;
        self.is_changed = pool.is_some();
        let deadline = Instant::now() + PATIENCE;
        while counter("nodes_published")? < self.nodes {
            ensure!(
                Instant::now() < deadline,
                "not all nodes were published within {PATIENCE:?}"
            );
            thread::sleep(NAP);
        }
        Ok(arguments.join(" "))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.is_changed {
            if let Err(error) = self.reload(None) {
                eprintln!("weft-bench: the module is not loaded as it was: {error:#}");
            }
        }
    }
}

/// What it is loaded with: another `pool=` than before, or the same.
fn arguments(before: &[String], pool: Option<&str>) -> Vec<String> {
    let mut arguments = before.to_vec();
    if let Some(pool) = pool {
        arguments.retain(|word| !word.starts_with("pool="));
        arguments.push(format!("pool={pool}"));
    }
    arguments
}

fn run(program: &str, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
    let status = Command::new(program).args(words).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_pool_takes_the_place_of_the_one_before() {
        let before = ["meta=10.77.0.1:7471", "pool=dc"].map(str::to_owned);
        assert_eq!(arguments(&before, None), before);
        assert_eq!(
            arguments(&before, Some("rc")),
            ["meta=10.77.0.1:7471", "pool=rc"]
        );
    }
}
