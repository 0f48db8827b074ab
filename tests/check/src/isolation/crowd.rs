// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes of an attacker's, for what one process may not have, and for calls
//! that may not return.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{pause, Pid};

use super::users::in_child;

/// Processes that live until it is dropped.
pub struct Crowd(Vec<Pid>);

/// By which one of them says how much it has.
pub struct Ready(UnixStream);

impl Ready {
    /// Others may look from now on.
    pub fn with(&self, count: u64) -> Result<()> {
        Ok((&self.0).write_all(&count.to_le_bytes())?)
    }
}

impl Crowd {
    /// Starts them, one after the other is ready; answers with how much they have.
    /// What `body` makes is kept as long as its process.
    pub fn of<T>(processes: usize, body: impl Fn(&Ready) -> Result<T>) -> Result<(Self, u64)> {
        let (mut this, mut sum) = (Self(Vec::new()), 0);
        for _ in 0..processes {
            let (mut ours, theirs) = UnixStream::pair()?;
            let ready = Ready(theirs);
            this.0.push(in_child(|| {
                set_pdeathsig(Signal::SIGKILL)?;
                let _kept = body(&ready)?;
                loop {
                    pause();
                }
            })?);
            drop(ready);
            let mut count = [0; 8];
            ours.read_exact(&mut count)
                .context("a process of the attacker's has ended")?;
            sum += u64::from_le_bytes(count);
        }
        Ok((this, sum))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &self.0 {
            let _ = kill(*child, Signal::SIGKILL);
            let _ = waitpid(*child, None);
        }
    }
}
