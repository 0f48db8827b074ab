// SPDX-License-Identifier: MIT OR Apache-2.0

//! A filter for packets that node 0 sends, which are told by their UDP port: those to a port
//! can be slowed down or dropped, and so can those to one RC queue pair.
//!
//! It is there before there is traffic, and until there is none: one that comes or goes drops
//! packets itself. soft-RoCE may warn of that in the kernel's log, and may break a queue pair
//! that has lost part of a READ's answer.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::world::system;

/// Port of DC and of messages, unless the module was told another one.
pub const DC: u16 = 4793;
/// Port of RoCE.
pub const ROCE: u16 = 4791;
/// Packets that may be under way in it: more than there ever are.
const LIMIT: u32 = 100_000;
/// The first band is for the packets that it leaves alone.
const FIRST_BAND: usize = 2;

/// The filter on node 0's interface. It goes when this is dropped.
pub struct Filter {
    /// The ports of the bands from the second on. The last band, behind them, drops all that
    /// comes into it.
    ports: &'static [u16],
}

impl Filter {
    /// Makes it for the packets to these ports, which pass at once for now.
    pub fn new(ports: &'static [u16]) -> Result<Self> {
        system("modprobe -a sch_prio sch_netem cls_u32")?;
        let this = Self { ports };
        let bands = this.last_band();
        system(&format!(
            "tc qdisc add dev v0 root handle 1: prio bands {bands} \
             priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        ))?;
        for (band, port) in (FIRST_BAND..).zip(ports) {
            this.netem("add", band, "delay 0ms")?;
            system(&format!(
                "tc filter add dev v0 parent 1: protocol ip \
                 u32 match ip dport {port} 0xffff flowid 1:{band}"
            ))?;
        }
        this.netem("add", bands, "loss 100%")?;
        Ok(this)
    }

    /// Each packet to the port takes so much longer from now on.
    pub fn slow(&self, port: u16, delay: Duration) -> Result<()> {
        let delay = format!("delay {}ms", delay.as_millis());
        self.netem("change", self.band(port)?, &delay)
    }

    /// All packets to the port are dropped from now on.
    pub fn cut(&self, port: u16) -> Result<()> {
        self.netem("change", self.band(port)?, "loss 100%")
    }

    /// Packets to the port pass at once again.
    pub fn mend(&self, port: u16) -> Result<()> {
        self.slow(port, Duration::ZERO)
    }

    /// Packets to a queue pair at an address are dropped from now on: those whose transport
    /// header names it.
    pub fn cut_queue_pair(&self, to: Ipv4Addr, qpn: u32) -> Result<()> {
        let band = self.last_band();
        system(&format!(
            "tc filter add dev v0 parent 1: protocol ip pref 1 u32 match ip dst {to} \
             match ip dport {ROCE} 0xffff match u32 {qpn:#010x} 0x00ffffff at 32 flowid 1:{band}"
        ))
    }

    /// They pass again.
    pub fn mend_queue_pair(&self) -> Result<()> {
        system("tc filter del dev v0 parent 1: pref 1")
    }

    fn band(&self, port: u16) -> Result<usize> {
        let at = self.ports.iter().position(|known| *known == port);
        Ok(FIRST_BAND + at.with_context(|| format!("it has no band for port {port}"))?)
    }

    fn last_band(&self) -> usize {
        FIRST_BAND + self.ports.len()
    }

    fn netem(&self, verb: &str, band: usize, what: &str) -> Result<()> {
        system(&format!(
            "tc qdisc {verb} dev v0 parent 1:{band} netem {what} limit {LIMIT}"
        ))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // One that could not be made is not there.
        let _ = system("tc qdisc del dev v0 root");
    }
}
