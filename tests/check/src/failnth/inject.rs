// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's fault injection.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};

pub const DEBUGFS: &str = "/sys/kernel/debug";
/// What can fail. Pages for user space do not: the program would meet that in its own
/// memory, not in the call.
const SETTINGS: [(&str, &str); 7] = [
    ("failslab/ignore-gfp-wait", "N"),
    ("failslab/verbose", "0"),
    ("fail_page_alloc/ignore-gfp-wait", "N"),
    ("fail_page_alloc/ignore-gfp-highmem", "Y"),
    ("fail_page_alloc/min-order", "0"),
    ("fail_page_alloc/verbose", "0"),
    ("fail_usercopy/verbose", "0"),
];

/// Lets slab and page allocations fail whether or not they may sleep.
pub fn prepare_kernel() -> Result<()> {
    ensure!(
        Path::new("/proc/thread-self/fail-nth").exists(),
        "this kernel injects no faults: it needs CONFIG_FAULT_INJECTION, as the checked kernel has it"
    );
    ensure!(
        Path::new(DEBUGFS).join("failslab/require-start").exists(),
        "this kernel needs CONFIG_FAULT_INJECTION_STACKTRACE_FILTER: scripts/setup --checked builds it anew"
    );
    for (name, value) in SETTINGS {
        let path = format!("{DEBUGFS}/{name}");
        std::fs::write(&path, value).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

/// The calling thread's next faults.
pub struct Injection {
    file: File,
    armed: bool,
}

impl Injection {
    /// The `nth` point of this thread fails from now on; with 0 none does.
    pub fn arm(nth: u32) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/proc/thread-self/fail-nth")?;
        file.write_at(nth.to_string().as_bytes(), 0)?;
        let armed = nth != 0;
        Ok(Self { file, armed })
    }

    /// No point fails any more. Answers whether one has.
    pub fn disarm(self) -> Result<bool> {
        let mut text = [0; 16];
        // Reading copies to user space, which is a point too.
        let left = match self.file.read_at(&mut text, 0) {
            Ok(len) => std::str::from_utf8(&text[..len])?.trim().parse()?,
            Err(error) if is_fault(&error) => 1,
            Err(error) => bail!(error),
        };
        match self.file.write_at(b"0", 0) {
            Ok(_) => {}
            // That was a point too, the last one before the end.
            Err(error) if is_fault(&error) => {
                self.file.write_at(b"0", 0)?;
            }
            Err(error) => bail!(error),
        }
        Ok(self.armed && left == 0_u32)
    }
}

fn is_fault(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::EFAULT) || error.kind() == ErrorKind::OutOfMemory
}
