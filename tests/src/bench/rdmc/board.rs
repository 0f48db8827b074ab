// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where members, which are processes, write down when they began to send and
//! when they had everything, by the machine's clock: a file in memory, with a row
//! for each sample.

use std::fs::{remove_file, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
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
    file: File,
    rank: usize,
    members: usize,
}

/// When a sample began and ended.
struct Row {
    begun_ns: Vec<u64>,
    done_ns: Vec<u64>,
}

impl Board {
    /// Opens it.
    pub fn open(path: &Path, rank: usize, members: usize) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            file,
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
        let at = (line * self.members + self.rank) * WORD;
        Ok(self.file.write_all_at(&now_ns().to_ne_bytes(), at as u64)?)
    }

    /// What nobody has written yet is 0.
    fn row(&self, row: usize) -> Result<Row> {
        let mut bytes = vec![0; 2 * self.members * WORD];
        let start = row * bytes.len();
        let mut read = 0;
        while read < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[read..], (start + read) as u64)?
            {
                0 => break,
                more => read += more,
            }
        }
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let mut words: Vec<u64> = bytes.chunks(WORD).map(word).collect();
        let done_ns = words.split_off(self.members);
        Ok(Row {
            begun_ns: words,
            done_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lasts_from_the_first_send_to_the_last_completion() {
        let file = BoardFile::create().unwrap();
        let boards: Vec<_> = (0..3)
            .map(|rank| Board::open(file.path(), rank, 3).unwrap())
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
    }
}
