// SPDX-License-Identifier: MIT OR Apache-2.0

//! A thread of an endpoint's, which ends with it.

use crate::fabric::FabricError;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A thread that sleeps on descriptors, and on the event that tells it to stop. It has ended
/// when this was dropped.
#[derive(Debug)]
pub(in crate::fabric) struct Thread {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts it; `work` returns once its argument can be read.
    ///
    /// # Errors
    ///
    /// [`FabricError::System`].
    pub(in crate::fabric) fn start(
        name: &str,
        work: impl FnOnce(&EventFd) + Send + 'static,
    ) -> Result<Self, FabricError> {
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| FabricError::system("eventfd", errno))?;
        let stop = Arc::new(stop);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&stopped))
            .map_err(|error| FabricError::io("clone", &error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The counter cannot overflow by one; and if it could not be written,
        // joining would hang.
        if self.stop.write(1).is_ok() {
            if let Some(thread) = self.thread.take() {
                // A panic there has been printed; there is nothing to undo.
                let _ = thread.join();
            }
        }
    }
}
