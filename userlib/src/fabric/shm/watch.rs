// SPDX-License-Identifier: MIT OR Apache-2.0

//! Noticing deaths: a thread that sleeps until a peer's line hangs up.
//!
//! The kernel closes the lines of a process that ends in whichever way, so
//! nobody has to ask peers whether they live, and an idle node runs nothing.

use super::Shared;
use crate::fabric::polling::{has_fired, wait_or_stop};
use crate::fabric::thread::Thread;
use crate::fabric::FabricError;
use nix::poll::{PollFd, PollFlags, PollTimeout};
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
        let all = [stop.as_fd()].into_iter();
        let all = all.chain(lines.iter().map(|(_, line)| line.as_fd()));
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        if wait_or_stop(&mut fds, PollTimeout::NONE, stop) {
            return;
        }
        let fired: Vec<bool> = (1..fds.len()).map(|at| has_fired(&fds, at)).collect();
        drop(fds);
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
