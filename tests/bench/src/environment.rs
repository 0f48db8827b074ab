// SPDX-License-Identifier: MIT OR Apache-2.0

//! What figures come from: each result names the machine and the programs.
//!
//! A guest cannot know everything about itself. `scripts/vm` hands over which
//! accelerator it runs on and what the module was loaded with, `scripts/bench`
//! which commit this is, as environment variables.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::{env, fs};

use serde::Serialize;

/// What a variable or file that is not there is called.
const UNKNOWN: &str = "unknown";

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
    /// Versions of the programs that are compared with.
    #[serde(flatten)]
    versions: BTreeMap<&'static str, String>,
}

impl Environment {
    /// This process's.
    pub fn here() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease");
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let is_loaded = Path::new("/sys/module/weft").exists();
        Self {
            kernel: release.map_or_else(|_| UNKNOWN.to_owned(), |text| text.trim().to_owned()),
            accel: variable("VM_ACCEL").unwrap_or_else(|| "native".to_owned()),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            commit: variable("WEFT_COMMIT").unwrap_or_else(|| UNKNOWN.to_owned()),
            module_args: is_loaded.then(|| variable("VM_MODULE_ARGS").unwrap_or_default()),
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
        let mut environment = Environment::here();
        environment.name_version("perftest", "6.24".to_owned());
        let json = serde_json::to_value(&environment).unwrap();
        for field in ["kernel", "accel", "cpus", "commit", "perftest"] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert_ne!(json["kernel"], UNKNOWN);
        assert!(json.get("module_args").is_some());
    }
}
