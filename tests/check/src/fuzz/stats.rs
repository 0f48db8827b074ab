// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a fuzzing thread has seen, in lines that add up.

use std::collections::BTreeMap;
use std::sync::Mutex;

use nix::errno::Errno;
use weft_core::uapi::WcStatus;

/// Counts by name.
#[derive(Default)]
pub struct Stats(BTreeMap<String, u64>);

/// Those of all threads of a process.
pub type Shared = Mutex<Stats>;

impl Stats {
    /// More of something.
    pub fn add(&mut self, name: &str, n: u64) {
        match self.0.get_mut(name) {
            Some(count) => *count += n,
            None => {
                self.0.insert(name.to_owned(), n);
            }
        }
    }

    /// How a call ended.
    pub fn outcome(&mut self, outcome: Result<(), Errno>) {
        match outcome {
            Ok(()) => self.add("errno none", 1),
            Err(errno) => self.add(&format!("errno {errno:?}"), 1),
        }
    }

    /// How a work request ended.
    pub fn completion(&mut self, status: u16) {
        match WcStatus::from_number(status.into()) {
            Some(known) => self.add(&format!("status {known:?}"), 1),
            None => self.add("status overwritten", 1),
        }
    }

    /// One count.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Takes another's.
    pub fn merge(&mut self, other: &Self) {
        for (name, n) in &other.0 {
            self.add(name, *n);
        }
    }

    /// A line for each.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(name, n)| format!("{n} {name}"))
    }

    /// Takes a line of another process.
    pub fn take_line(&mut self, line: &str) {
        if let Some((n, name)) = line.split_once(' ') {
            self.add(name, n.parse().unwrap_or(0));
        }
    }
}
