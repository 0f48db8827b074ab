// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that all workers of a mesh share, whether they are threads or processes:
//! where they leave what others have to know, and where they meet.
//!
//! It takes the place of a network by which verbs workers would exchange addresses,
//! and costs less than any: that favours verbs.

use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::libc;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use weft_testkit::pace::patient;
use weft_verbs::Endpoint;

use super::MESHES;
use crate::peer::Region;

/// Words of the barrier: who has come, and up to whom all have come.
const ARRIVED: usize = 0;
const RELEASED: usize = 1;
const HEAD: usize = 2;
/// Meshes that a worker has memory for.
const KINDS: usize = MESHES.len();
const REGION_WORDS: usize = Region::BYTES / 4;
const ENDPOINT_WORDS: usize = Endpoint::BYTES / 4;
/// How long a worker waits for the others, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(500);

/// See the module.
///
/// # Invariants
///
/// `words` is mapped, shared, and `count` words long for as long as this exists.
pub struct Board {
    words: NonNull<AtomicU32>,
    count: usize,
    workers: usize,
    file: File,
}

// SAFETY: the words are atomic, and the mapping belongs to no thread.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Makes one for so many workers, with no name: it goes with the last process.
    pub fn create(workers: usize) -> Result<Self> {
        let file = File::from(memfd_create(c"weft-bench-mesh", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(u64::try_from(
            Self::words_for(workers) * size_of::<AtomicU32>(),
        )?)?;
        Self::map(file, workers)
    }

    /// Opens another process's.
    pub fn open(path: &Path, workers: usize) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Self::map(file.context("cannot open the mesh's memory")?, workers)
    }

    /// Where other processes open it, while this one lives.
    pub fn path(&self) -> PathBuf {
        let (pid, fd) = (std::process::id(), self.file.as_raw_fd());
        format!("/proc/{pid}/fd/{fd}").into()
    }

    fn words_for(workers: usize) -> usize {
        HEAD + workers * (KINDS * REGION_WORDS + workers * ENDPOINT_WORDS)
    }

    fn map(file: File, workers: usize) -> Result<Self> {
        let count = Self::words_for(workers);
        let bytes = NonZeroUsize::new(count * size_of::<AtomicU32>()).context("an empty board")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, &file, 0) }?;
        // INVARIANT: mapped here, for so many words; unmapped by `drop`.
        Ok(Self {
            words: at.cast(),
            count,
            workers,
            file,
        })
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: the invariant; any bits are a valid word, and all access is atomic.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// Waits until all workers have come here. What they left before is there after.
    pub fn meet(&self) -> Result<()> {
        let workers = u32::try_from(self.workers)?;
        let (arrived, released) = (&self.words()[ARRIVED], &self.words()[RELEASED]);
        let place = arrived.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let last = place.next_multiple_of(workers);
        if place == last {
            released.store(last, Ordering::Release);
            futex_wake_all(released);
            return Ok(());
        }
        let deadline = Instant::now() + patient(PATIENCE);
        loop {
            let now = released.load(Ordering::Acquire);
            // They may already have met once more, but no further than that.
            if now >= last {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("a worker of the mesh is lost: the others waited for it");
            }
            futex_wait(released, now);
        }
    }

    /// Leaves the memory of a worker that others WRITE to.
    pub fn post_region(&self, kind: usize, worker: usize, region: Region) {
        self.store(self.region_at(kind, worker), &region.encode());
    }

    /// The memory that a worker left.
    pub fn region(&self, kind: usize, worker: usize) -> Result<Region> {
        let mut bytes = [0; Region::BYTES];
        self.load(self.region_at(kind, worker), &mut bytes);
        Region::decode(&bytes)
    }

    /// Leaves the address of a queue pair, for one other worker.
    pub fn post(&self, from: usize, to: usize, endpoint: &Endpoint) {
        self.store(self.endpoint_at(from, to), &endpoint.encode());
    }

    /// The address that a worker left for another.
    pub fn endpoint(&self, from: usize, to: usize) -> Result<Endpoint> {
        let mut bytes = [0; Endpoint::BYTES];
        self.load(self.endpoint_at(from, to), &mut bytes);
        Endpoint::decode(&bytes).context("a worker made no queue pair")
    }

    fn region_at(&self, kind: usize, worker: usize) -> usize {
        HEAD + (kind * self.workers + worker) * REGION_WORDS
    }

    fn endpoint_at(&self, from: usize, to: usize) -> usize {
        let regions = KINDS * self.workers * REGION_WORDS;
        HEAD + regions + (from * self.workers + to) * ENDPOINT_WORDS
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        for (word, chunk) in self.words()[at..].iter().zip(bytes.chunks_exact(4)) {
            let mut value = [0; 4];
            value.copy_from_slice(chunk);
            word.store(u32::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    fn load(&self, at: usize, bytes: &mut [u8]) {
        for (word, chunk) in self.words()[at..].iter().zip(bytes.chunks_exact_mut(4)) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nobody borrows any more.
        let unmapped = unsafe { munmap(self.words.cast(), self.count * size_of::<AtomicU32>()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Sleeps while the word is `value`, and not for long.
fn futex_wait(word: &AtomicU32, value: u32) {
    let nap = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(LOOK.subsec_nanos()),
    };
    let (word, nap) = (word.as_ptr(), std::ptr::from_ref(&nap));
    // SAFETY: word and time live through the call, which changes neither. Whatever it
    // answers, the caller looks again.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, nap) };
}

fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the word lives through the call, which does not change it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[test]
    fn nobody_leaves_before_all_have_come() {
        const WORKERS: usize = 5;
        let board = Board::create(WORKERS).unwrap();
        let come = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                // Another process's view of the same memory.
                let (board, come) = (Board::open(&board.path(), WORKERS).unwrap(), &come);
                scope.spawn(move || {
                    for round in 1..=200 {
                        come.fetch_add(1, Ordering::Relaxed);
                        board.meet().unwrap();
                        assert!(come.load(Ordering::Relaxed) >= round * WORKERS);
                    }
                });
            }
        });
    }

    #[test]
    fn what_workers_leave_does_not_overlap() {
        let board = Board::create(3).unwrap();
        let region = |n: usize| Region {
            addr: n as u64 + 1,
            rkey: n as u32,
        };
        let endpoint = |n: usize| {
            let mut bytes = [n as u8 + 1; Endpoint::BYTES];
            bytes[Endpoint::BYTES - 1] = 3;
            bytes[19] = 0;
            Endpoint::decode(&bytes).unwrap()
        };
        for n in 0..9 {
            if n < 9.min(KINDS * 3) {
                board.post_region(n / 3, n % 3, region(n));
            }
            board.post(n / 3, n % 3, &endpoint(n));
        }
        for n in 0..9 {
            if n < 9.min(KINDS * 3) {
                assert_eq!(board.region(n / 3, n % 3).unwrap(), region(n));
            }
            assert_eq!(board.endpoint(n / 3, n % 3).unwrap(), endpoint(n));
        }
        assert!(Board::create(2).unwrap().endpoint(0, 1).is_err());
    }
}
