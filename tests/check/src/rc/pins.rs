// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asking for an RC queue pair, and waiting for it.

use std::time::Duration;

use anyhow::{ensure, Result};
use weft_shim::{Device, Error, Transport};

use super::registration::none_after;
use crate::world::{counter, gid, wait_for, Baseline, Link};
use weft_testkit::report::Report;

/// A queue pair is there within this time, on the slowest machine.
const UP: Duration = Duration::from_secs(30);

/// Pins that cannot be.
pub fn refusals(report: &mut Report) {
    report.check("a node does not pin itself", || {
        let refused = Device::open_on(0)?.pool_pin(gid(0));
        ensure!(
            matches!(refused, Err(Error::NoRcPeer(_))),
            "it is {refused:?}"
        );
        Ok(())
    });
    report.check("what is not pinned is not unpinned", || {
        let refused = Device::open_on(0)?.pool_unpin(gid(7));
        ensure!(
            matches!(refused, Err(Error::NotPinned(_))),
            "it is {refused:?}"
        );
        Ok(())
    });
    report.check(
        "a node that is not there can be pinned, and unpinned",
        || {
            let device = Device::open_on(0)?;
            device.pool_pin(gid(7))?;
            device.pool_pin(gid(7))?;
            Ok(device.pool_unpin(gid(7))?)
        },
    );
    report.check("until somebody pins, requests go by DC", || {
        let before = counter("rc_chains")?;
        Link::new(1, 4096, 4)?.works(1)?;
        ensure!(counter("rc_chains")? == before, "they go by RC");
        Ok(())
    });
}

/// Pins node 1 at node 0, has node 1 use the queue pair too, and waits.
pub fn pin() -> Result<()> {
    Device::open_on(0)?.pool_pin(gid(1))?;
    wait_for("requests from node 0 go by RC", UP, || goes_by_rc(0, 1))?;
    Device::open_on(1)?.pool_use(gid(0), Some(Transport::Rc))?;
    wait_until_up()
}

/// Has requests between nodes 0 and 1 go by RC, runs checks, and sees that they leave nothing
/// behind on so many nodes.
pub fn with_rc(report: &mut Report, nodes: u32, checks: impl FnOnce(&mut Report)) {
    let up = report.need("a pinned peer is connected by RC", pin);
    let take = |()| report.need("the gauges stand still with it", || Baseline::take(nodes));
    let Some(baseline) = up.and_then(take) else {
        return;
    };
    checks(report);
    report.check("what went by RC leaves nothing behind", || {
        baseline.is_back()?;
        none_after()
    });
}

/// Waits until new VQPs between nodes 0 and 1 use RC, both ways.
pub fn wait_until_up() -> Result<()> {
    wait_for("requests from node 0 go by RC", UP, || goes_by_rc(0, 1))?;
    wait_for("requests from node 1 go by RC", UP, || goes_by_rc(1, 0))
}

/// Whether a new VQP's request goes by RC; it has to work anyway.
pub fn goes_by_rc(from: u8, to: u8) -> Result<bool> {
    let mut link = Link::between(from, to, 4096, 4)?;
    let before = counter("rc_chains")?;
    link.works(3)?;
    Ok(counter("rc_chains")? > before)
}

/// One offer makes one queue pair: a queue at each end.
pub fn both_ends() -> Result<()> {
    wait_for("there is one queue pair", UP, || {
        Ok(counter("rc_queues")? == 2)
    })?;
    ensure!(goes_by_rc(0, 1)? && goes_by_rc(1, 0)?, "one way goes by DC");
    ensure!(counter("rc_queues")? == 2, "there is another one");
    Ok(())
}
