// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process registers memory of which it answers the page faults itself (userfaultfd),
//! and does not. Only the process waits for that.

use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{c_ulong, ioctl, syscall, SYS_userfaultfd, O_CLOEXEC, O_NONBLOCK};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use weft_testkit::pace::patient;

use super::{BOUND, DELETE};
use crate::raw::{Memory, Session};

const LEN: usize = 1 << 16;

/// `UFFDIO_API`, `UFFDIO_REGISTER` and what they take (`linux/userfaultfd.h`).
const UFFDIO_API: c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;

/// Answers no fault until it is dropped: then the kernel does.
struct Unanswered {
    fd: OwnedFd,
}

impl Unanswered {
    /// The faults of all of `memory`, which nobody has touched.
    fn new(memory: &Memory) -> Result<Self> {
        // Only one that does not block can be polled.
        let flags = O_CLOEXEC | O_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = Errno::result(unsafe { syscall(SYS_userfaultfd, flags) });
        let fd = fd.context("userfaultfd")?;
        // SAFETY: made just now, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd)?) };
        let call = |request, words: &mut [u64]| {
            // SAFETY: the request's struct consists of so many words.
            let done = unsafe { ioctl(fd.as_raw_fd(), request, words.as_mut_ptr()) };
            Errno::result(done).with_context(|| format!("{} bytes", size_of_val(words)))
        };
        call(UFFDIO_API, &mut [UFFD_API, 0, 0])?;
        let range = [memory.addr(), LEN as u64, REGISTER_MODE_MISSING, 0];
        call(UFFDIO_REGISTER, &mut { range })?;
        Ok(Self { fd })
    }

    /// Waits until somebody waits for one of the pages.
    fn wait_for_fault(&self) -> Result<()> {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(patient(BOUND))?)?;
        let told = fds[0].revents().context("flags that nobody knows")?;
        let is_there = told.contains(PollFlags::POLLIN);
        ensure!(is_there, "nobody waits for its pages: {told:?}");
        Ok(())
    }
}

/// The device of node 1 is deleted meanwhile.
pub fn device_goes() -> Result<()> {
    let memory = Memory::map(LEN)?;
    let unanswered = Unanswered::new(&memory)?;
    let session = Session::open(1)?;
    thread::scope(|scope| {
        let registers = scope.spawn(|| session.register(&memory, 0, LEN as u64, 7));
        let waits = unanswered.wait_for_fault();
        let gone = waits.and_then(|()| deleted_in_time());
        // Whatever came of it: the thread has to end.
        drop(unanswered);
        let registered = registers.join().map_err(|_| anyhow!("it panicked"))?;
        gone?;
        let errno = registered.map(drop);
        ensure!(errno == Err(Errno::ENODEV), "the registration: {errno:?}");
        Ok(())
    })
}

fn deleted_in_time() -> Result<()> {
    let mut words = DELETE.split(' ');
    let program = words.next().context("no program")?;
    let mut child = Command::new(program).args(words).spawn()?;
    let deadline = Instant::now() + patient(BOUND);
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "`{DELETE}`: {status}");
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the device is still there after {BOUND:?}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
