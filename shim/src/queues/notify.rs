// SPDX-License-Identifier: MIT OR Apache-2.0

//! An eventfd that is signalled when completions come to queues, as the completion channel
//! of verbs is.

use super::Queues;
use crate::error::Error;
use crate::ioctl;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use weft_core::uapi::{self, Pod, EVENTFD_NONE, MAX_NOTIFY_COUNT, MAX_NOTIFY_US};

/// How many completions an eventfd is signalled for, and how long the first of them waits
/// at most. (`ibv_modify_cq`)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Completions that are signalled at once, 1 to 65,535.
    pub count: u32,
    /// Longest that fewer wait, up to 65,535 µs. Needed if `count` is more than 1.
    pub period: Duration,
}

impl Default for Moderation {
    /// Each completion is signalled.
    fn default() -> Self {
        Self {
            count: 1,
            period: Duration::ZERO,
        }
    }
}

impl Moderation {
    /// The period in microseconds, if the module takes both.
    fn period_us(self) -> Result<u32, Error> {
        let period_us = u32::try_from(self.period.as_nanos().div_ceil(1000)).ok();
        let period_us = period_us.filter(|period_us| *period_us <= MAX_NOTIFY_US);
        let is_one = self.count == 1;
        let fits = (1..=MAX_NOTIFY_COUNT).contains(&self.count);
        period_us
            .filter(|period_us| fits && (is_one || *period_us != 0))
            .ok_or(Error::BadModeration)
    }
}

impl Queues {
    /// Has an eventfd signalled when completions come here, in place of the one before. It
    /// is signalled at once if there are some. Read it first, then take completions until
    /// there are none: so none is missed. It may serve many queues, and may be closed at any
    /// time.
    ///
    /// Receive buffers that are posted after their VQP has failed come back when a request of it
    /// ends, or when somebody waits here or polls the device's descriptor: not before that is
    /// the eventfd signalled for them.
    ///
    /// # Errors
    ///
    /// [`Error::BadModeration`], [`Error::NotAnEventFd`], [`Error::OutOfMemory`].
    pub fn notify(&self, eventfd: impl AsFd, moderation: Moderation) -> Result<(), Error> {
        let period_us = moderation.period_us()?;
        let eventfd = u32::try_from(eventfd.as_fd().as_raw_fd());
        let eventfd = eventfd.map_err(|_| Error::NotAnEventFd)?;
        self.set_eventfd(eventfd, moderation.count, period_us)
    }

    /// Has no eventfd signalled any more.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn notify_none(&self) -> Result<(), Error> {
        self.set_eventfd(EVENTFD_NONE, 0, 0)
    }

    fn set_eventfd(&self, eventfd: u32, count: u32, period_us: u32) -> Result<(), Error> {
        let mut arg = uapi::CqNotify {
            rings: self.end.number(),
            eventfd,
            count,
            period_us,
            ..Pod::zeroed()
        };
        ioctl::cq_notify(self.end.device().fd(), &mut arg).map_err(|errno| match errno {
            // The rings are there, and the moderation was looked at.
            Errno::EINVAL | Errno::EBADF if eventfd != EVENTFD_NONE => Error::NotAnEventFd,
            errno => Error::of_node("IOC_CQ_NOTIFY", errno),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moderation_is_one_that_the_module_takes() {
        let of = |count, period| Moderation { count, period }.period_us();
        assert_eq!(Moderation::default().period_us(), Ok(0));
        assert_eq!(of(2, Duration::from_nanos(1)), Ok(1), "rounded up");
        let longest = Duration::from_micros(MAX_NOTIFY_US.into());
        assert_eq!(of(MAX_NOTIFY_COUNT, longest), Ok(MAX_NOTIFY_US));
        for (count, period) in [
            (0, longest),
            (2, Duration::ZERO),
            (MAX_NOTIFY_COUNT + 1, longest),
            (1, longest + Duration::from_nanos(1)),
            (1, Duration::MAX),
        ] {
            assert_eq!(of(count, period), Err(Error::BadModeration));
        }
    }
}
