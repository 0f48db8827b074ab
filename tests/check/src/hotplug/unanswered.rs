// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process registers memory of which it answers the page faults itself (userfaultfd),
//! and does not. Only the process waits for that.

use std::mem::size_of_val;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{c_ulong, ioctl, syscall, SYS_userfaultfd, O_CLOEXEC};
use weft_testkit::pace::{patient, skip};

use super::{BOUND, DELETE};
use crate::raw::{Memory, Session};

const LEN: usize = 1 << 16;
/// How long the registration is given to reach its page fault.
const BEGUN: Duration = Duration::from_millis(300);

/// `UFFDIO_API`, `UFFDIO_REGISTER` and what they take (`linux/userfaultfd.h`).
const UFFDIO_API: c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;

/// Answers no fault until it is dropped: then the kernel does.
struct Unanswered {
    _fd: OwnedFd,
}

impl Unanswered {
    /// The faults of all of `memory`, which nobody has touched. `None`: the kernel cannot.
    fn new(memory: &Memory) -> Result<Option<Self>> {
        // SAFETY: no memory is involved.
        let fd = match Errno::result(unsafe { syscall(SYS_userfaultfd, O_CLOEXEC) }) {
            Err(Errno::ENOSYS) => return Ok(None),
            fd => fd.context("userfaultfd")?,
        };
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
        Ok(Some(Self { _fd: fd }))
    }
}

/// The device of node 1 is deleted meanwhile.
pub fn device_goes() -> Result<()> {
    let memory = Memory::map(LEN)?;
    let Some(unanswered) = Unanswered::new(&memory)? else {
        skip("a page that never comes", "the kernel has no userfaultfd");
        // The device has to go all the same, for what follows.
        return super::system(DELETE);
    };
    let session = Session::open(1)?;
    thread::scope(|scope| {
        let registers = scope.spawn(|| session.register(&memory, 0, LEN as u64, 7));
        thread::sleep(BEGUN);
        let waits = !registers.is_finished();
        let gone = deleted_in_time();
        // Whatever came of it: the thread has to end.
        drop(unanswered);
        let registered = registers.join().map_err(|_| anyhow!("it panicked"))?;
        ensure!(
            waits,
            "it did not wait for its page: {:?}",
            registered.map(drop)
        );
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
