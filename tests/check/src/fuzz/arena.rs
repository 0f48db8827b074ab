// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory that fuzzed addresses point to. It lies where nothing else of the
//! process is near: an address with a flipped bit hits nothing of Rust's.

use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{ensure, Result};
use nix::libc;
use weft_core::uapi::Pod;

/// A page.
pub const PAGE: u64 = 4096;
/// Where the first thread's part begins.
const BASE: u64 = 0x10_0000_0000;
/// Bytes between two threads' parts.
const STRIDE: u64 = 1 << 20;
/// Bytes of data at the end of a part.
pub const DATA_BYTES: u64 = 64 * PAGE;

const READ_ONLY: u64 = PAGE;
/// Behind it is nothing up to the data.
const CONTROL_BYTES: u64 = 4 * PAGE;
const DATA: u64 = 64 * PAGE;

/// One thread's part.
#[derive(Clone, Copy)]
pub struct Arena {
    base: u64,
}

impl Arena {
    /// Maps the part of a thread.
    pub fn map(thread: u64) -> Result<Self> {
        let this = Self {
            base: BASE + thread * STRIDE,
        };
        map_at(this.base, CONTROL_BYTES)?;
        protect(this.base + READ_ONLY, PAGE, libc::PROT_READ);
        map_at(this.data(), DATA_BYTES)?;
        Ok(this)
    }

    /// Where arguments go.
    pub fn args(self) -> u64 {
        self.base
    }

    /// Memory to register.
    pub fn data(self) -> u64 {
        self.base + DATA
    }

    /// A page that may not be written.
    pub fn read_only(self) -> u64 {
        self.base + READ_ONLY
    }

    /// The first byte of a hole.
    pub fn hole(self) -> u64 {
        self.base + CONTROL_BYTES
    }

    /// Puts a struct there, which is in the part but not in its data.
    pub fn put<T: Pod>(self, at: u64, value: &T) {
        for (i, word) in value.as_bytes().chunks_exact(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            self.word(at + 8 * i as u64)
                .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// Takes a struct from there.
    pub fn get<T: Pod>(self, at: u64) -> T {
        let mut value = T::zeroed();
        for (i, word) in value.as_bytes_mut().chunks_exact_mut(8).enumerate() {
            let bytes = self.word(at + 8 * i as u64).load(Ordering::Relaxed);
            word.copy_from_slice(&bytes.to_ne_bytes());
        }
        value
    }

    /// A word of arguments.
    pub fn word(self, at: u64) -> &'static AtomicU64 {
        let offset = at - self.base;
        assert!(offset + 8 <= PAGE && at % 8 == 0, "not a word of arguments");
        // SAFETY: mapped by `map`, never unmapped, and touched by atomics and the
        // kernel alone.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(at as usize)) }
    }

    /// Takes pages of the data away, makes them unwritable, or gives them back
    /// new.
    pub fn disturb(self, page: u64, pages: u64, how: u64) {
        let from = self.data() + page % 64 * PAGE;
        let len = pages.min(64 - page % 64) * PAGE;
        match how % 4 {
            0 => {
                // SAFETY: pages of the data, which Rust has no reference to.
                unsafe { libc::munmap(with_exposed_provenance_mut(from as usize), len as usize) };
            }
            1 => protect(from, len, libc::PROT_READ),
            2 => protect(from, len, libc::PROT_NONE),
            _ => {}
        }
        if how % 8 > 3 || how % 4 == 3 {
            // All of it comes back, so that most registrations find memory.
            let _ = map_at(self.data(), DATA_BYTES);
        }
    }
}

/// Maps memory at an address of the arena.
fn map_at(addr: u64, len: u64) -> Result<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let wanted = with_exposed_provenance_mut(addr as usize);
    // SAFETY: only the arena is in that range of addresses, and nothing of
    // Rust's is in the arena.
    let got = unsafe { libc::mmap(wanted, len as usize, prot, flags, -1, 0) };
    ensure!(got == wanted, "the arena cannot be mapped");
    Ok(())
}

fn protect(addr: u64, len: u64, prot: i32) {
    // SAFETY: pages of the arena that Rust does not touch afterwards.
    unsafe {
        libc::mprotect(
            with_exposed_provenance_mut(addr as usize),
            len as usize,
            prot,
        )
    };
}
