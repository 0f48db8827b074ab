// SPDX-License-Identifier: MIT OR Apache-2.0

//! What figures come from: each result names the machine and the programs.
//!
//! A guest cannot know everything about itself. `scripts/vm` hands over which
//! accelerator it runs on and what the module was loaded with, `scripts/bench`
//! which commit the programs were built from and which run this is, as environment
//! variables.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::{env, fs};

use serde::Serialize;

/// What a variable or file that is not there is called.
const UNKNOWN: &str = "unknown";
/// A new random name each time that it is read.
const UUID: &str = "/proc/sys/kernel/random/uuid";

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The kernel's release.
    kernel: String,
    /// `kvm`, `tcg` (emulation), or `native` where there is no virtual machine of
    /// ours.
    accel: String,
    cpus: usize,
    commit: String,
    /// What the module was loaded with; none where it is not loaded.
    module_args: Option<String>,
    /// The run, which figures that are compared have in common: `scripts/bench` may start
    /// several processes for one.
    run: String,
    /// Whether it took fewer samples.
    quick: bool,
    /// Versions of the programs that are compared with.
    #[serde(flatten)]
    versions: BTreeMap<&'static str, String>,
}

impl Environment {
    /// This process's.
    pub fn here(quick: bool) -> Self {
        let read = |path| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let is_loaded = Path::new("/sys/module/weft").exists();
        Self {
            kernel: or_unknown(read("/proc/sys/kernel/osrelease").ok()),
            accel: variable("VM_ACCEL").unwrap_or_else(|| "native".to_owned()),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            commit: or_unknown(variable("WEFT_COMMIT")),
            module_args: is_loaded.then(|| variable("VM_MODULE_ARGS").unwrap_or_default()),
            run: or_unknown(variable("WEFT_RUN").or_else(|| read(UUID).ok())),
            quick,
            versions: BTreeMap::new(),
        }
    }

    /// What the module was loaded with.
    pub fn name_module_args(&mut self, arguments: &str) {
        self.module_args = Some(arguments.to_owned());
    }

    /// Names a program that is compared with, such as `perftest`.
    pub fn name_version(&mut self, program: &'static str, version: String) {
        self.versions.insert(program, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_names_what_it_comes_from() {
        let mut environment = Environment::here(true);
        environment.name_version("perftest", "6.24".to_owned());
        let json = serde_json::to_value(&environment).unwrap();
        for field in ["kernel", "accel", "cpus", "commit", "run", "perftest"] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert_ne!(json["kernel"], UNKNOWN);
        assert_ne!(json["run"], UNKNOWN);
        assert_eq!(json["quick"], true);
        assert!(json.get("module_args").is_some());
    }
}
