// SPDX-License-Identifier: MIT OR Apache-2.0

//! The factors that are no READ.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_shim::{Remote, SendWr, Wc};

use crate::nodes::SERVER;
use crate::round_robin::{Case, Sample};
use crate::weft::WeftLink;

/// Longest wait for a request that is refused.
const PATIENCE: Duration = Duration::from_secs(1);

fn timed(call: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let start = Instant::now();
    call()?;
    Ok(Sample {
        call: start.elapsed(),
        ..Sample::default()
    })
}

/// The call that submits and waits, with nothing to submit and no time to wait.
pub struct EmptyEnter(WeftLink);

impl EmptyEnter {
    /// Connects to a peer's memory.
    pub fn connect(remote: Remote) -> Result<Self> {
        Ok(Self(WeftLink::connect(SERVER, remote, 8, 16)?))
    }
}

impl Case for EmptyEnter {
    fn sample(&mut self) -> Result<Sample> {
        timed(|| {
            let mut room = [Wc::default()];
            // To ask for a completion is what makes it call the module at all.
            let progress = self.0.vqp.enter(&[], &mut room, 1, Duration::ZERO)?;
            ensure!(progress.completed == 0, "a completion of nothing");
            Ok(())
        })
    }
}

/// A request on a VQP that has failed.
pub struct Refused(WeftLink);

impl Refused {
    /// Connects to a peer's memory, and lets a request fail.
    pub fn connect(remote: Remote) -> Result<Self> {
        let mut this = Self(WeftLink::connect(SERVER, remote, 8, 16)?);
        // A key that is none: the region's own, with every bit changed.
        let wrong = Remote {
            rkey: !remote.rkey,
            ..remote
        };
        ensure!(this.post(wrong)?.result().is_err(), "a wrong key was taken");
        Ok(this)
    }

    fn post(&mut self, remote: Remote) -> Result<Wc> {
        let WeftLink { vqp, memory, .. } = &mut self.0;
        let request = [SendWr::read(memory.slice(0..8)?, remote).signaled()];
        let mut room = [Wc::default()];
        let progress = vqp.enter(&request, &mut room, 1, PATIENCE)?;
        ensure!(progress.completed == 1, "a request without completion");
        Ok(room[0])
    }
}

impl Case for Refused {
    fn sample(&mut self) -> Result<Sample> {
        let remote = self.0.remote;
        timed(|| {
            let wc = self.post(remote)?;
            ensure!(wc.result().is_err(), "a VQP in error took a request");
            Ok(())
        })
    }
}
