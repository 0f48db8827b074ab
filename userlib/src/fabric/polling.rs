// SPDX-License-Identifier: MIT OR Apache-2.0

//! Polling of any number of descriptors.
//!
//! poll(2) takes no more of them at once than RLIMIT_NOFILE allows to open, and a process may
//! lower that limit when it has more. Then they are polled in pieces.

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::resource::{getrlimit, Resource};
use std::time::{Duration, Instant};

/// How long the first piece is waited for before the others are looked at again.
const PIECE_WAIT_MS: u16 = 10;
/// How long a thread waits that cannot poll at all, before it says so and tries again.
const RETRY: Duration = Duration::from_secs(1);

/// Waits until one of them has fired, a signal has come, or the time is over.
pub(super) fn poll_all(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<(), Errno> {
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(Errno::EINVAL) => poll_in_pieces(fds, timeout, limit()?),
        Err(errno) => Err(errno),
    }
}

/// As [`poll_all`], for a thread that goes on whatever happens, and answers whether it is to
/// stop. The event that says so is the first of the descriptors.
pub(super) fn wait_or_stop(fds: &mut [PollFd<'_>], timeout: PollTimeout, stop: &EventFd) -> bool {
    match poll_all(fds, timeout) {
        Ok(()) => has_fired(fds, 0),
        Err(errno) => {
            tracing::warn!(%errno, "peers cannot be listened to for the moment");
            std::thread::sleep(RETRY);
            stop.read().is_ok()
        }
    }
}

/// Whether there is something to read, or an end.
pub(super) fn has_fired(fds: &[PollFd<'_>], at: usize) -> bool {
    fds[at].any().unwrap_or(true)
}

/// Descriptors that the kernel polls at once.
fn limit() -> Result<usize, Errno> {
    let (soft, _hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(usize::try_from(soft).unwrap_or(usize::MAX))
}

fn poll_in_pieces(fds: &mut [PollFd<'_>], timeout: PollTimeout, limit: usize) -> Result<(), Errno> {
    if limit == 0 {
        return Err(Errno::EINVAL);
    }
    // Negative, if there is no end.
    let timeout_ms = u64::try_from(i32::from(timeout)).ok();
    let end = timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left_ms = left.map_or(u128::MAX, |left| left.as_millis());
        let wait_ms = left_ms.min(PIECE_WAIT_MS.into());
        let mut wait = PollTimeout::from(u16::try_from(wait_ms).unwrap_or(PIECE_WAIT_MS));
        let mut fired = 0;
        for piece in fds.chunks_mut(limit) {
            fired += match poll(piece, wait) {
                Ok(fired) => fired,
                Err(Errno::EINTR) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            wait = PollTimeout::ZERO;
        }
        if fired > 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::PollFlags;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn polled(lines: &[(UnixStream, UnixStream)]) -> Vec<PollFd<'_>> {
        let fds = lines.iter().map(|(end, _)| end.as_fd());
        fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect()
    }

    #[test]
    fn more_descriptors_than_may_be_polled_at_once_are_all_heard() {
        let line = |_| UnixStream::pair().expect("a line");
        for limit in 1..=6 {
            let mut lines: Vec<_> = (0..5).map(line).collect();
            // Nobody has said anything.
            let mut fds = polled(&lines);
            let answer = poll_in_pieces(&mut fds, PollTimeout::from(1_u16), limit);
            assert_eq!(answer, Ok(()));
            assert!((0..5).all(|at| !has_fired(&fds, at)));
            // Two have, whichever piece they are in.
            for at in [1, 4] {
                lines[at].1.write_all(b"x").expect("room");
            }
            let mut fds = polled(&lines);
            assert_eq!(poll_in_pieces(&mut fds, PollTimeout::NONE, limit), Ok(()));
            let fired: Vec<_> = (0..5).filter(|&at| has_fired(&fds, at)).collect();
            assert_eq!(fired, [1, 4], "{limit}");
        }
    }
}
