// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the module and the network count: how much of something a measurement
//! took, which is the same on any machine.

use anyhow::{Context as _, Result};

const COUNTERS: &str = "/sys/kernel/debug/weft/counters";
/// Where the network counts the packets of the clients' node.
const STATISTICS: &str = "/sys/class/net/v0/statistics";

/// One of the module's counters.
pub fn counter(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(COUNTERS)
        .with_context(|| format!("cannot read {COUNTERS}: this needs root and weft.ko"))?;
    find(&text, name).with_context(|| format!("{COUNTERS} has no {name}"))
}

/// Packets that the clients' node has sent and received.
pub fn packets() -> Result<u64> {
    let mut sum = 0;
    for name in ["tx_packets", "rx_packets"] {
        let path = format!("{STATISTICS}/{name}");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        sum += text.trim().parse::<u64>()?;
    }
    Ok(sum)
}

fn find(text: &str, name: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.into_iter().find(|(known, _)| *known == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "rc_chains_all 1\nrc_chains 42\n";
        assert_eq!(find(text, "rc_chains"), Some(42));
        assert_eq!(find(text, "rc"), None);
    }
}
