// SPDX-License-Identifier: MIT OR Apache-2.0

//! Noticing deaths: a thread that sleeps until a peer's line hangs up.
//!
//! The kernel closes the lines of a process that ends in whichever way, so
//! nobody has to ask peers whether they live, and an idle node runs nothing.

use super::Shared;
use crate::fabric::thread::Thread;
use crate::fabric::FabricError;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Starts the thread that watches these lines.
pub(super) fn start(
    shared: Arc<Shared>,
    lines: Vec<(usize, UnixStream)>,
) -> Result<Thread, FabricError> {
    Thread::start("weft-watch", move |stop| watch(&shared, lines, stop))
}

fn watch(shared: &Shared, mut lines: Vec<(usize, UnixStream)>, stop: &EventFd) {
    loop {
        let mut fds: Vec<PollFd<'_>> = lines
            .iter()
            .map(|(_, line)| PollFd::new(line.as_fd(), PollFlags::POLLIN))
            .collect();
        fds.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                tracing::error!(%errno, "deaths of peers are no longer noticed");
                // The lines stay open: peers take the end of one for a death.
                let _ = stop.read();
                return;
            }
        }
        let fired: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        if fired.last() == Some(&true) {
            return;
        }
        // Nobody speaks on a line after the meeting: anything is its end.
        let mut at = 0;
        lines.retain(|(rank, _)| {
            let gone = fired[at];
            at += 1;
            if gone {
                shared.down.fetch_or(1 << rank, Ordering::Release);
                tracing::debug!(rank, "node is down");
            }
            !gone
        });
        shared.memory.bell().ring();
    }
}
