// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mappings of rings that were destroyed.
//!
//! The kernel gives the memory of rings that are gone to the session's next ones. Left mapped
//! meanwhile, it costs those neither a mapping nor the flush of the processor's
//! address cache that an unmapping is.

use crate::memory::Pages;
use nix::errno::Errno;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::process;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use weft_core::uapi::{self, KEPT_RINGS, MAX_KEPT_RING_BYTES};

/// A session's mappings, left for its next rings.
#[derive(Debug)]
pub(crate) struct Lot {
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    /// The process that has the mappings: in a forked child of it nothing is mapped there, or
    /// something else.
    process: u32,
    /// Oldest first, with their offset in the device.
    mappings: Vec<(u64, Pages)>,
}

impl Lot {
    /// One with nothing in it.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            left: Mutex::new(Left {
                process: 0,
                mappings: Vec::new(),
            }),
        })
    }

    /// New rings, mapped.
    ///
    /// # Errors
    ///
    /// `EPROTO`: what the kernel says of them cannot be. `ENOMEM`: so much memory may not be
    /// mapped. Else those of `mmap`.
    pub(super) fn map(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        said: &uapi::RingsCreate,
    ) -> Result<Mapping, Errno> {
        let pages = match self.take(said.map_offset, said.ring_bytes as usize) {
            Some(pages) => pages,
            None => self.with_room(|| new_pages(fd, said))?,
        };
        Ok(Mapping {
            pages: ManuallyDrop::new(pages),
            home: Some((Arc::downgrade(self), said.map_offset)),
        })
    }

    /// Makes a call that takes memory for rings, maps it, or pins memory. If there is none, what
    /// is left here makes way: it counts against `RLIMIT_MEMLOCK` as long as it is mapped.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub(crate) fn with_room<T>(
        &self,
        mut call: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match call() {
            Err(Errno::ENOMEM) if self.clear() => call(),
            result => result,
        }
    }

    /// Unmaps what is left; answers whether there was anything.
    fn clear(&self) -> bool {
        let mappings = std::mem::take(&mut self.left().mappings);
        !mappings.is_empty()
    }

    fn take(&self, offset: u64, len: usize) -> Option<Pages> {
        let mut left = self.left();
        let is_it = |(at, pages): &(u64, Pages)| *at == offset && pages.len() == len;
        let found = left.mappings.iter().rposition(is_it)?;
        Some(left.mappings.remove(found).1)
    }

    fn leave(&self, offset: u64, pages: Pages) {
        if pages.len() > MAX_KEPT_RING_BYTES as usize {
            return;
        }
        let mut left = self.left();
        // The kernel keeps no more; what it threw away is among the oldest.
        let oldest = (left.mappings.len() >= KEPT_RINGS).then(|| left.mappings.remove(0));
        left.process = process::id();
        left.mappings.push((offset, pages));
        drop(left);
        drop(oldest);
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.forget_parents();
        left
    }
}

impl Left {
    /// Forgets, in a forked child, what was mapped in its parent.
    fn forget_parents(&mut self) {
        // Workers that leave no mapping make no system call for it.
        if !self.mappings.is_empty() && self.process != process::id() {
            self.mappings.drain(..).for_each(std::mem::forget);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.forget_parents();
    }
}

/// Maps rings that are not mapped yet.
fn new_pages(fd: BorrowedFd<'_>, said: &uapi::RingsCreate) -> Result<Pages, Errno> {
    let len = NonZeroUsize::new(said.ring_bytes as usize).ok_or(Errno::EPROTO)?;
    Pages::of_device(fd, said.map_offset, len).map_err(of_mmap)
}

/// `mmap` says `EAGAIN` if memory that is to be locked (`MCL_FUTURE` of `mlockall`) would be
/// more than `RLIMIT_MEMLOCK`. It is no use to try again.
fn of_mmap(errno: Errno) -> Errno {
    match errno {
        Errno::EAGAIN => Errno::ENOMEM,
        errno => errno,
    }
}

/// Mapped rings; left in the session's lot on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    pages: ManuallyDrop<Pages>,
    home: Option<(Weak<Lot>, u64)>,
}

impl Mapping {
    /// New rings and memory, mapped. Unmapped on drop: the kernel does not give them to
    /// others.
    ///
    /// # Errors
    ///
    /// As [`Lot::map`].
    pub(crate) fn alone(fd: BorrowedFd<'_>, said: &uapi::RingsCreate) -> Result<Self, Errno> {
        Ok(Self {
            pages: ManuallyDrop::new(new_pages(fd, said)?),
            home: None,
        })
    }

    /// Of memory that goes with it.
    #[cfg(test)]
    pub(super) fn of(pages: Pages) -> Self {
        Self {
            pages: ManuallyDrop::new(pages),
            home: None,
        }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.pages.base()
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: here alone, and it is not used after this.
        let pages = unsafe { ManuallyDrop::take(&mut self.pages) };
        let home = self.home.take();
        if let Some((Some(lot), offset)) = home.map(|(lot, offset)| (lot.upgrade(), offset)) {
            lot.leave(offset, pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(len: usize) -> Pages {
        Pages::map(NonZeroUsize::new(len).unwrap()).unwrap()
    }

    #[test]
    fn what_was_left_is_found_by_its_place_and_length() {
        let lot = Lot::new();
        lot.leave(1 << 24, pages(4096));
        lot.leave(2 << 24, pages(8192));
        assert!(lot.take(3 << 24, 4096).is_none());
        assert!(lot.take(1 << 24, 8192).is_none());
        assert_eq!(lot.take(1 << 24, 4096).unwrap().len(), 4096);
        assert!(lot.take(1 << 24, 4096).is_none());
        assert_eq!(lot.take(2 << 24, 8192).unwrap().len(), 8192);
    }

    #[test]
    fn only_so_many_are_left_and_none_that_are_large() {
        let lot = Lot::new();
        lot.leave(0, pages(MAX_KEPT_RING_BYTES as usize + 4096));
        assert!(lot.left().mappings.is_empty());
        for place in 0..=KEPT_RINGS as u64 {
            lot.leave(place, pages(4096));
        }
        assert!(lot.take(0, 4096).is_none(), "the oldest made way");
        assert_eq!(lot.left().mappings.len(), KEPT_RINGS);
    }

    #[test]
    fn what_is_left_makes_way_once() {
        let lot = Lot::new();
        let mut calls = 0;
        let mut refused = |lot: &Lot| {
            calls = 0;
            lot.with_room(|| {
                calls += 1;
                Err::<(), _>(Errno::ENOMEM)
            })
            .unwrap_err();
            calls
        };
        assert_eq!(refused(&lot), 1, "there is nothing to make way");
        lot.leave(7, pages(4096));
        assert_eq!(refused(&lot), 2);
        assert!(lot.take(7, 4096).is_none());
        lot.leave(7, pages(4096));
        assert_eq!(
            lot.with_room(|| Err::<(), _>(Errno::EMFILE)),
            Err(Errno::EMFILE)
        );
        assert_eq!(lot.with_room(|| Ok(1)), Ok(1));
        assert!(lot.take(7, 4096).is_some(), "for nothing else it does");
    }

    #[test]
    fn what_is_left_makes_way_for_a_mapping_that_may_not_be_locked() {
        let lot = Lot::new();
        lot.leave(7, pages(4096));
        let mut calls = 0;
        let refused = lot.with_room(|| {
            calls += 1;
            Err::<(), _>(of_mmap(Errno::EAGAIN))
        });
        assert_eq!((refused, calls), (Err(Errno::ENOMEM), 2));
        assert!(lot.take(7, 4096).is_none());
        assert_eq!(of_mmap(Errno::ENODEV), Errno::ENODEV);
    }

    #[test]
    fn a_mapping_comes_back_and_outlives_no_lot() {
        let lot = Lot::new();
        let mapping = |place| Mapping {
            pages: ManuallyDrop::new(pages(4096)),
            home: Some((Arc::downgrade(&lot), place)),
        };
        let (first, second) = (mapping(7), mapping(8));
        drop(first);
        assert!(lot.take(7, 4096).is_some());
        drop(lot);
        drop(second);
    }

    #[test]
    fn a_child_touches_nothing_of_its_parents() {
        let lot = Lot::new();
        lot.leave(0, pages(4096));
        // What a child would see: another process's mark, and addresses that are not
        // its own.
        lot.left.lock().unwrap().process = 0;
        assert!(lot.take(0, 4096).is_none());
    }
}
