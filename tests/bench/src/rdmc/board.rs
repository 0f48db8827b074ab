// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where members, which are processes, write down when they began to send and
//! when they had everything, by the machine's clock: a file in memory, with a row
//! for each sample. It is mapped: to note a time takes no system call.

use std::fs::{remove_file, File, OpenOptions};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use nix::time::{clock_gettime, ClockId};

const WORD: usize = size_of::<u64>();
/// How often a member looks whether the others are done. The message that is
/// measured was received by then at the one who looks.
const LOOK: Duration = Duration::from_micros(50);

/// The machine's clock, the same for all processes.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The file of one group of processes. Gone when dropped.
pub struct BoardFile(PathBuf);

impl BoardFile {
    /// A new one.
    pub fn create() -> Result<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let nth = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-bench-{}-{nth}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for BoardFile {
    fn drop(&mut self) {
        if let Err(error) = remove_file(&self.0) {
            eprintln!("weft-bench: {} stays: {error}", self.0.display());
        }
    }
}

/// The board as a member sees it.
pub struct Board {
    /// Mapped until drop; two words for each member and sample.
    words: NonNull<AtomicU64>,
    count: usize,
    rank: usize,
    members: usize,
}

// SAFETY: the mapping belongs to the process, and all its words are atomic.
unsafe impl Send for Board {}
// SAFETY: as for `Send`.
unsafe impl Sync for Board {}

/// When a sample began and ended.
struct Row {
    begun_ns: Vec<u64>,
    done_ns: Vec<u64>,
}

impl Board {
    /// Maps it, with room for so many samples, of which nothing is known yet.
    pub fn open(path: &Path, rank: usize, members: usize, rows: usize) -> Result<Self> {
        let count = rows * 2 * members;
        let bytes = NonZeroUsize::new(count * WORD).context("nothing is measured")?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        // All members make it as long.
        file.set_len(bytes.get() as u64)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // No page is touched for the first time while it counts.
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { mmap(None, bytes, prot, flags, &file, 0) }?;
        Ok(Self {
            words: base.cast(),
            count,
            rank,
            members,
        })
    }

    /// This member begins to send.
    pub fn begins(&self, row: usize) -> Result<()> {
        self.note(row * 2)
    }

    /// This member has all of the sample.
    pub fn has_all(&self, row: usize) -> Result<()> {
        self.note(row * 2 + 1)
    }

    /// Waits until all members have all of the sample.
    pub fn wait_for_all(&self, row: usize, patience: Duration) -> Result<()> {
        let began = Instant::now();
        while self.row(row)?.done_ns.contains(&0) {
            ensure!(began.elapsed() < patience, "a message did not come in time");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// From the first send of a sample to the last completion, in seconds.
    pub fn seconds(&self, row: usize) -> Result<f64> {
        let Row { begun_ns, done_ns } = self.row(row)?;
        let first = begun_ns.into_iter().filter(|&ns| ns != 0).min();
        let last = done_ns.into_iter().max().unwrap_or_default();
        let first = first.context("nobody has sent")?;
        Ok(last.saturating_sub(first) as f64 / 1e9)
    }

    fn note(&self, line: usize) -> Result<()> {
        let word = self.words().get(line * self.members + self.rank);
        let word = word.context("there are more samples than were told")?;
        word.store(now_ns(), Ordering::Release);
        Ok(())
    }

    /// What nobody has written yet is 0.
    fn row(&self, row: usize) -> Result<Row> {
        let mut lines = self.words().chunks(self.members).skip(2 * row);
        let mut next = || {
            let line = lines.next().context("there is no such sample")?;
            let times = line.iter().map(|word| word.load(Ordering::Acquire));
            anyhow::Ok(times.collect())
        };
        Ok(Row {
            begun_ns: next()?,
            done_ns: next()?,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped while this lives.
        unsafe { NonNull::slice_from_raw_parts(self.words, self.count).as_ref() }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and nobody borrows it any more.
        let unmapped = unsafe { munmap(self.words.cast(), self.count * WORD) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lasts_from_the_first_send_to_the_last_completion() {
        let file = BoardFile::create().unwrap();
        let boards: Vec<_> = (0..3)
            .map(|rank| Board::open(file.path(), rank, 3, 5).unwrap())
            .collect();
        let patience = Duration::from_millis(1);
        let before = now_ns();
        boards[1].begins(4).unwrap();
        boards[2].begins(4).unwrap();
        boards[0].has_all(4).unwrap();
        boards[2].has_all(4).unwrap();
        assert!(boards[0].wait_for_all(4, patience).is_err());
        boards[1].has_all(4).unwrap();
        boards[0].wait_for_all(4, patience).unwrap();
        let all = (now_ns() - before) as f64 / 1e9;
        let seconds = boards[0].seconds(4).unwrap();
        assert!(seconds > 0.0 && seconds < all, "{seconds} of {all}");
        assert!(boards[0].seconds(3).is_err());
        assert!(boards[0].begins(5).is_err());
        assert!(boards[0].seconds(5).is_err());
    }
}
