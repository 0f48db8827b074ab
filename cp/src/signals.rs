// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGINT, SIGTERM and SIGHUP as events: a transfer that is interrupted removes
//! its temporaries and tells the others. Who started this process may have had it
//! ignore some, as nohup does: that is left so.

use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};

type Interrupted = Box<dyn Fn() + Send>;

/// The signals of this process, which a thread waits for.
pub struct Signals {
    whom: Arc<Mutex<Option<Interrupted>>>,
}

impl Signals {
    /// Blocks the signals, for this thread and those that it starts from now on.
    /// Until [`Self::tell`] they end the process: before there is a transfer there
    /// is nothing to remove.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn catch() -> Result<Self> {
        let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        let signals: SigSet = signals
            .into_iter()
            .filter(|&one| !is_ignored(one))
            .collect();
        signals.thread_block().context("cannot block signals")?;
        let whom = Arc::new(Mutex::new(None::<Interrupted>));
        let told = Arc::clone(&whom);
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                match &*told {
                    Some(interrupted) => interrupted(),
                    None => {
                        // The process ends whether the line can be written or not.
                        let _ = writeln!(
                            io::stderr(),
                            "weft-cp: error: {signal} while no transfer was under way"
                        );
                        std::process::exit(1);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).context("no thread for signals")?;
        Ok(Self { whom })
    }

    /// They end the process again: nothing is under way.
    pub(crate) fn forget(&self) {
        let mut whom = self.whom.lock().unwrap_or_else(PoisonError::into_inner);
        *whom = None;
    }

    /// From now on, signals are told.
    pub fn tell(&self, interrupted: impl Fn() + Send + 'static) {
        let mut whom = self.whom.lock().unwrap_or_else(PoisonError::into_inner);
        *whom = Some(Box::new(interrupted));
    }
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action it only writes the current one, for which there
    // is room.
    let asked = unsafe { libc::sigaction(signal as libc::c_int, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid action, and so is what the call has written.
    let action = unsafe { action.assume_init() };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
