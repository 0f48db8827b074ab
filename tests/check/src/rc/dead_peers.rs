// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that are down, pinned or used, do not delay the queue pair of one that is up;
//! and those that nobody pinned are no longer wanted after a while. Twelve nodes, of
//! which 2 to 11 are down.

use std::time::Duration;

use anyhow::{ensure, Result};
use weft_shim::{Device, SendWr};

use super::goes_by_rc;
use crate::world::{connect, counter, full_access, gid, system, wait_for, Link};
use weft_testkit::report::Report;

const DEAD: std::ops::RangeInclusive<u8> = 2..=11;
/// How much later than without them the live peer may have its queue pair.
const DELAY: Duration = Duration::from_secs(3);
/// The module forgets a peer that is not used after 30 s.
const FORGOTTEN: Duration = Duration::from_secs(60);

fn set_links(state: &str) -> Result<()> {
    DEAD.clone()
        .try_for_each(|k| system(&format!("ip -n n{k} link set v{k} {state}")))
}

/// Both the dead peers first, then the live one.
pub fn run(report: &mut Report, pool: bool) {
    let outcome = (|| -> Result<()> {
        set_links("down")?;
        if pool {
            used(report)
        } else {
            pinned(report)
        }
    })();
    if let Err(error) = outcome {
        report.check("dead peers could be wanted", || Err(error));
    }
    report.check("the links come back", || set_links("up"));
}

fn pinned(report: &mut Report) -> Result<()> {
    let device = Device::open_on(0)?;
    for k in DEAD {
        device.pool_pin(gid(k))?;
    }
    device.pool_pin(gid(1))?;
    report.check(
        "ten dead pinned peers delay a live one by less than 3 s",
        || wait_for("it is up", DELAY, || goes_by_rc(0, 1)),
    );
    report.check(
        "pinned peers stay wanted, however long they are dead",
        || {
            std::thread::sleep(Duration::from_secs(20));
            let wants = counter("rc_wants")?;
            ensure!(wants == 11, "{wants} are wanted");
            Ok(())
        },
    );
    report.check("unpinning lets go of all of them at once", || {
        for k in std::iter::once(1).chain(DEAD) {
            device.pool_unpin(gid(k))?;
        }
        wait_for("only the live queue pair is left", DELAY, || {
            Ok(counter("rc_wants")? == 0 && counter("rc_queues")? == 2)
        })
    });
    Ok(())
}

fn used(report: &mut Report) -> Result<()> {
    let device = Device::open_on(0)?;
    let local = weft_shim::MemoryRegion::allocate(&device, 4096, full_access())?;
    let mut vqps = Vec::new();
    for k in DEAD {
        let mut vqp = connect(&device, k, 4)?;
        let wr = SendWr::write(local.slice(0..8)?, local.remote()).signaled();
        vqp.post_send(&[wr])?;
        vqps.push(vqp);
    }
    report.check(
        "ten dead peers in use delay a live one by less than 3 s",
        || {
            let mut link = Link::new(1, 4096, 4)?;
            link.works(1)?;
            wait_for("it is up", DELAY, || goes_by_rc(0, 1))
        },
    );
    drop(vqps);
    report.check("peers that nobody uses are no longer wanted", || {
        wait_for("none is", FORGOTTEN, || Ok(counter("rc_wants")? == 0))
    });
    Ok(())
}
