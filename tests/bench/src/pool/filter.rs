// SPDX-License-Identifier: MIT OR Apache-2.0

//! A filter that can delay the packets of DC, and no others, between nodes 0 and 1.
//!
//! It is there before there is traffic, and until there is none: a filter that comes or
//! goes drops packets. Only its delay changes meanwhile.

use std::process::Command;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

/// The UDP port of DC, unless the module was told another one.
const DC_PORT: u16 = 4793;
/// What is delayed is in band 2; all else is in band 1.
const PRIORITIES: &str = "prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
/// Packets that may be under way in it: more than there ever are.
const LIMIT: u32 = 100_000;
/// Each end: what runs a command where its interface is, and the interface.
const ENDS: [(&str, &str); 2] = [("", "v0"), ("ip netns exec n1 ", "v1")];

/// The filter at both ends. It goes when this is dropped.
pub struct Filter(());

impl Filter {
    /// Installs it, with no delay yet.
    pub fn install() -> Result<Self> {
        shell("modprobe -a sch_prio sch_netem cls_u32")?;
        let this = Self(());
        for (on, interface) in ENDS {
            let tc = format!("{on}tc");
            shell(&format!(
                "{tc} qdisc add dev {interface} root handle 1: {PRIORITIES} && \
                 {tc} qdisc add dev {interface} parent 1:2 netem delay 0us limit {LIMIT} && \
                 {tc} filter add dev {interface} parent 1: protocol ip \
                 u32 match ip dport {DC_PORT} 0xffff flowid 1:2"
            ))?;
        }
        Ok(this)
    }

    /// Each packet of DC takes this much longer from now on.
    pub fn delay(&self, delay: Duration) -> Result<()> {
        let us = delay.as_micros();
        ENDS.into_iter().try_for_each(|(on, interface)| {
            shell(&format!(
                "{on}tc qdisc change dev {interface} parent 1:2 netem delay {us}us limit {LIMIT}"
            ))
        })
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        for (on, interface) in ENDS {
            // One that could not be installed is not there.
            let _ = shell(&format!(
                "{on}tc qdisc del dev {interface} root 2>/dev/null"
            ));
        }
    }
}

/// Runs a shell command, which has to end well.
pub(super) fn shell(command: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", command]).status();
    let status = status.context("cannot run a shell")?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}
