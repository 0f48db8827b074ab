// SPDX-License-Identifier: MIT OR Apache-2.0

//! How fast the kernel is on which tests wait for something.

use std::sync::OnceLock;
use std::time::Duration;

/// A limit for a stock kernel, as it is for the one that this runs on: `scripts/vm` says
/// how many times slower that is.
pub fn patient(bound: Duration) -> Duration {
    bound * slowness()
}

fn slowness() -> u32 {
    static SLOWNESS: OnceLock<u32> = OnceLock::new();
    *SLOWNESS.get_or_init(|| {
        let told = std::env::var("VM_SLOWNESS").ok();
        told.and_then(|text| text.parse().ok()).unwrap_or(1)
    })
}

/// Whether the kernel is slower than a stock one, so that the module's own time limits,
/// which are those of a network, may pass while it is at work.
pub fn is_slow() -> bool {
    slowness() > 1
}

/// Whether the kernel keeps memory for a while that was freed (KASAN's quarantine), so that
/// the amount of it says little. `scripts/vm` tells.
pub fn keeps_freed_memory() -> bool {
    std::env::var("VM_KERNEL").as_deref() == Ok("checked")
}

/// Says that something cannot be checked on this kernel, and why.
pub fn skip(name: &str, why: &str) {
    println!("ok {name} # SKIP {why}");
}
