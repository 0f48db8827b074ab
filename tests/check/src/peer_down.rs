// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer behind a link that is down: an error in time, no harm to others, and
//! a connection again when the link is back. Three nodes.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_shim::{Device, Error, WcStatus};

use crate::world::{counter, gid, system, timely, wait_for, Baseline, Link};
use weft_testkit::report::Report;

/// A dead peer is told within this time.
const BOUND: Duration = Duration::from_secs(10);
const BACK: Duration = Duration::from_secs(30);
/// A node looks after its connections to the meta servers several times meanwhile.
const TRIES: Duration = Duration::from_secs(6);

fn set_link(state: &str) -> Result<()> {
    system(&format!("ip -n n1 link set v1 {state}"))
}

/// All of it, in order.
pub fn run(report: &mut Report) {
    let baseline = report.need("the gauges stand still", || Baseline::take(3));
    let outcome = (|| -> Result<()> {
        let mut before = Link::new(1, 4096, 16)?;
        let mut bystander = Link::new(2, 4096, 16)?;
        before.works(1)?;
        bystander.works(1)?;
        set_link("down")?;
        report.check("a request on its way to a dead peer: RetryExcErr", || {
            let status = timely(BOUND, || before.outcome(BOUND))??;
            ensure!(status == WcStatus::RetryExcErr, "{status:?}");
            Ok(())
        });
        report.check("the next one is flushed", || {
            let status = timely(BOUND, || before.outcome(BOUND))??;
            ensure!(status == WcStatus::WrFlushErr, "{status:?}");
            Ok(())
        });
        report.check(
            "connecting to it, or the first request, fails in time",
            || {
                let status = timely(2 * BOUND, || -> Result<_> {
                    match Link::new(1, 4096, 16) {
                        Ok(mut link) => Ok(Some(link.outcome(BOUND)?)),
                        Err(error) => match error.downcast_ref::<Error>() {
                            Some(Error::UnknownPeer(_)) => Ok(None),
                            _ => Err(error),
                        },
                    }
                })??;
                ensure!(
                    matches!(status, None | Some(WcStatus::RetryExcErr)),
                    "{status:?}"
                );
                Ok(())
            },
        );
        report.check("a VQP to another node noticed nothing", || {
            bystander.works(2)
        });
        report.check("new connections to another node work", || {
            Link::new(2, 4096, 16)?.works(3)
        });
        let isolated = Device::open_on(1)?;
        report.check(
            "the node behind it finds nobody, and says so in time",
            || {
                let outcome = timely(BOUND, || isolated.lookup(gid(2)))?;
                let expected = [Error::MetaTimeout, Error::NoMetaServer];
                let error = outcome.err().context("it found a node")?;
                ensure!(expected.contains(&error), "{error:?}");
                Ok(())
            },
        );
        // So that the node tries to come back before it can.
        thread::sleep(TRIES);
        set_link("up")?;
        report.check("a new connection works when the link is back", || {
            wait_for("it works", BACK, || {
                Ok(Link::new(1, 4096, 16)
                    .and_then(|mut link| link.works(4))
                    .is_ok())
            })
        });
        report.check("the node behind it finds others again", || {
            wait_for("it does", BACK, || Ok(isolated.lookup(gid(2)).is_ok()))
        });
        report.check("and is published", || {
            wait_for("all are", BACK, || Ok(counter("nodes_published")? == 3))
        });
        report.check("the failed VQP stays failed", || {
            let status = before.outcome(BOUND)?;
            ensure!(status == WcStatus::WrFlushErr, "{status:?}");
            Ok(())
        });
        Ok(())
    })();
    if let Err(error) = outcome {
        report.check("all of it could be tried", || Err(error));
    }
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}
