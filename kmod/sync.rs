// SPDX-License-Identifier: GPL-2.0

//! Synchronisation that the kernel crate lacks, for code that runs in softirqs and for paths of a
//! microsecond: locks that keep softirqs out, sleeping on a counter, eventfds,
//! work and timers that can be stopped.

mod bh;
mod event;
mod eventfd;
mod mutex;
mod once;
mod poll;
mod spinner;
mod timer;
mod versioned;
mod work;

pub(crate) use bh::{cpu, new_lock, BhDisabled, BhGuard, BhLock, FastGuard, FastLock, FastMutex};
pub(crate) use event::{new_event_count, EventCount, Woken};
pub(crate) use eventfd::EventFd;
pub(crate) use mutex::lock_interruptible;
pub(crate) use once::Once;
pub(crate) use poll::{new_poll_queue, PollQueue};
pub(crate) use spinner::{reschedule_if_needed, Spinner};
pub(crate) use timer::{Timed, Timer};
pub(crate) use versioned::{is_same, Versioned, NO_VERSION};
pub(crate) use work::{new_periodic, Classes, Periodic, Routine};
