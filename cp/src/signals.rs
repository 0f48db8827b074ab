// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGINT, SIGTERM and SIGHUP as events: a transfer that is interrupted removes
//! its temporaries and tells the others. Who started this process may have had it
//! ignore some, as nohup does: that is left so.

use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};

type Interrupted = Box<dyn Fn() + Send>;

/// The signals of this process, which a thread waits for.
pub struct Signals(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    whom: Option<Interrupted>,
    /// Some were told. A transfer that was over, or was being given up, may not have heard it.
    were_told: bool,
}

impl Signals {
    /// Blocks the signals, for this thread and those that it starts from now on.
    /// Until `Self::tell` they end the process: before there is a transfer there
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
        let state = Arc::new(Mutex::new(State::default()));
        let told = Arc::clone(&state);
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                lock(&told).hear(signal);
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).context("no thread for signals")?;
        Ok(Self(state))
    }

    /// They end the process again: nothing is under way.
    pub(crate) fn forget(&self) {
        lock(&self.0).whom = None;
    }

    /// From now on, signals are told, as long as somebody else can tell something: the thread that
    /// waits for that is to learn that nobody is left.
    pub(crate) fn tell<T: Send + 'static>(
        &self,
        tell: &Arc<Sender<T>>,
        interrupted: impl Fn() -> T + Send + 'static,
    ) {
        let tell = Arc::downgrade(tell);
        let interrupted = move || {
            if let Some(tell) = tell.upgrade() {
                // Without a receiver nobody is interested any more.
                let _ = tell.send(interrupted());
            }
        };
        lock(&self.0).whom = Some(Box::new(interrupted));
    }

    /// Whether a signal was told, to which the process is still to answer with its end.
    pub(crate) fn were_told(&self) -> bool {
        lock(&self.0).were_told
    }
}

impl State {
    fn hear(&mut self, signal: Signal) {
        let Some(interrupted) = &self.whom else {
            // The process ends whether the line can be written or not.
            let _ = writeln!(
                io::stderr(),
                "weft-cp: error: {signal} while no transfer was under way"
            );
            std::process::exit(1);
        };
        self.were_told = true;
        interrupted();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, RecvTimeoutError};
    use std::time::Duration;

    #[test]
    fn a_signal_is_told_but_nobody_waits_for_signals_alone() {
        let signals = Signals(Arc::default());
        let (tell, events) = channel();
        let tell = Arc::new(tell);
        signals.tell(&tell, || 1);
        lock(&signals.0).hear(Signal::SIGINT);
        assert_eq!(events.recv(), Ok(1));
        drop(tell);
        let waited = events.recv_timeout(Duration::from_secs(60));
        assert_eq!(waited, Err(RecvTimeoutError::Disconnected));
        lock(&signals.0).hear(Signal::SIGINT);
        assert!(signals.were_told());
    }
}
