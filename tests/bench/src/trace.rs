// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts this thread's system calls, by the kernel's tracing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where tracefs is, or debugfs has it.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The event of a system call's begin.
const EVENT: &str = "events/raw_syscalls/sys_enter";

/// Counts from when it is made. An instance of the tracing of its own, which goes
/// when this is dropped.
pub struct Syscalls(PathBuf);

impl Syscalls {
    /// Starts counting; `None` where the kernel does not trace system calls.
    pub fn count() -> Option<Self> {
        let root = ROOTS
            .iter()
            .map(Path::new)
            .find(|root| root.join(EVENT).exists())?;
        let name = format!("weft-bench-{}", std::process::id());
        let instance = root.join("instances").join(name);
        fs::create_dir(&instance).ok()?;
        // Removes the instance if it does not work.
        let this = Self(instance);
        let event = this.0.join(EVENT);
        let thread = nix::unistd::gettid();
        fs::write(event.join("filter"), format!("common_pid == {thread}")).ok()?;
        fs::write(event.join("enable"), "1").ok()?;
        Some(this)
    }

    /// Stops, and answers with how many there were.
    pub fn stop(self) -> Result<u64> {
        // Closing the file that began it, opening the one that ends it, and writing
        // that count too.
        let own = 3;
        fs::write(self.0.join(EVENT).join("enable"), "0")?;
        let cpus = fs::read_dir(self.0.join("per_cpu"))?;
        let mut sum = 0;
        for cpu in cpus {
            let text = fs::read_to_string(cpu?.path().join("stats"))?;
            sum += entries(&text).context("the kernel's tracing tells no count")?;
        }
        Ok(sum.saturating_sub(own))
    }
}

impl Drop for Syscalls {
    fn drop(&mut self) {
        // Left over, it would only keep some memory.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Events that a processor's buffer holds, and those that it had no room for.
fn entries(stats: &str) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(number("entries:")? + number("overrun:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_were_lost_count_too() {
        let stats = "entries: 40\noverrun: 2\ncommit overrun: 0\nbytes: 900\n";
        assert_eq!(entries(stats), Some(42));
        assert_eq!(entries("bytes: 1\n"), None);
    }
}
