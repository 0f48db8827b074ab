// SPDX-License-Identifier: GPL-2.0

//! A range of user memory, pinned, so that softirqs can read and write it.

use core::ptr::NonNull;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::prelude::*;

use crate::bindings;
use crate::counters::{Counted, COUNTERS};
use crate::net::Skb;
use crate::rdma::Span;

/// Pages that one call pins; signals are looked at in between.
const PIN_BATCH: usize = 512;

/// Pinned user memory.
///
/// # Invariants
///
/// - Every page in `pages` is pinned for as long as the value lives.
/// - The range of `len` bytes from `offset` into the first page lies within the
///   pages.
pub(crate) struct UserPages {
    pages: KVVec<NonNull<bindings::page>>,
    offset: usize,
    len: usize,
    writable: bool,
    _charge: Charge,
    _count: Counted,
}

// SAFETY: pages are not tied to a thread.
unsafe impl Send for UserPages {}
// SAFETY: what `&self` allows is copying bytes in and out, as peers and the
// owner may do at any time; nobody holds references into the pages.
unsafe impl Sync for UserPages {}

/// What was charged to an address space for pages that it holds.
///
/// # Invariants
///
/// We hold a reference to `mm`, and have charged it for `pages`.
pub(crate) struct Charge {
    mm: NonNull<bindings::mm_struct>,
    pages: usize,
}

impl Charge {
    /// Charges so many pages to the caller.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: over `RLIMIT_MEMLOCK`.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        // SAFETY: called from a system call, so that there is a current task.
        let mm = NonNull::new(unsafe { bindings::weft_mm_charge(pages) }).ok_or(ENOMEM)?;
        // INVARIANT: so says the call.
        Ok(Self { mm, pages })
    }

    /// Whether the caller is charged.
    pub(crate) fn is_callers(&self) -> bool {
        // SAFETY: called from a system call, so that there is a current task.
        unsafe { bindings::weft_mm_is_current(self.mm.as_ptr()) }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // The last reference to an address space frees its page tables, which is not for
        // softirqs: users of this are dropped in process context.
        // SAFETY: charged and referenced by the invariant.
        unsafe { bindings::weft_mm_uncharge(self.mm.as_ptr(), self.pages) };
    }
}

impl UserPages {
    /// Pins `len` bytes at `addr` of the caller's memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no bytes, or past the end of the address space), `ENOMEM` (over
    /// `RLIMIT_MEMLOCK`, or no memory), `EFAULT` (not all mapped, or not
    /// writable), `EINTR`.
    pub(crate) fn pin(addr: usize, len: usize, writable: bool) -> Result<Self> {
        let end = addr.checked_add(len).filter(|_| len != 0).ok_or(EINVAL)?;
        let first = addr & !(PAGE_SIZE - 1);
        let count = (end - first).div_ceil(PAGE_SIZE);
        let charge = Charge::new(count)?;
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
            offset: addr - first,
            len,
            writable,
            _charge: charge,
            _count: Counted::many(&COUNTERS.pinned_pages, count as i64),
        };
        while this.pages.len() < count {
            this.pin_batch(first, count)?;
        }
        Ok(this)
    }

    /// What is pinned, for a device to be told of it.
    pub(crate) fn span(&self) -> Span<'_> {
        Span {
            pages: &self.pages,
            offset: self.offset,
            len: self.len,
            writable: self.writable,
        }
    }

    /// Pins the next pages. On an error `drop` unpins what was pinned before.
    fn pin_batch(&mut self, first: usize, count: usize) -> Result {
        // SAFETY: no requirement.
        if unsafe { bindings::weft_signal_pending() } {
            return Err(EINTR);
        }
        let have = self.pages.len();
        let want = (count - have).min(PIN_BATCH);
        let write = if self.writable {
            bindings::FOLL_WRITE
        } else {
            0
        };
        let spare = self.pages.spare_capacity_mut().as_mut_ptr();
        // SAFETY: there is room for `count` pointers, of which `have` are used;
        // `NonNull<page>` has the layout of a page pointer.
        let pinned = unsafe {
            bindings::pin_user_pages_fast(
                first + (have << PAGE_SHIFT),
                want as i32,
                write | bindings::FOLL_LONGTERM,
                spare.cast(),
            )
        };
        if pinned <= 0 {
            return Err(if pinned == 0 {
                EFAULT
            } else {
                Error::from_errno(pinned)
            });
        }
        // INVARIANT: these are pinned.
        // SAFETY: the call wrote so many pointers, none of them NULL, and there
        // was room for them.
        unsafe { self.pages.inc_len(pinned as usize) };
        Ok(())
    }

    /// Calls `f(page, offset in page, offset in range, bytes)` for each piece of
    /// `len` bytes from `start` in the range; `false` if that is not within it.
    fn pieces(
        &self,
        start: usize,
        len: usize,
        mut f: impl FnMut(*mut bindings::page, usize, usize, usize) -> bool,
    ) -> bool {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return false;
        }
        let mut done = 0;
        while done < len {
            let at = self.offset + start + done;
            let in_page = at % PAGE_SIZE;
            let bytes = (PAGE_SIZE - in_page).min(len - done);
            let Some(page) = self.pages.get(at >> PAGE_SHIFT) else {
                return false;
            };
            if !f(page.as_ptr(), in_page, done, bytes) {
                return false;
            }
            done += bytes;
        }
        true
    }

    /// The page of the aligned, writable word at `start` in the range, and where
    /// in the page it is.
    fn word(&self, start: usize) -> Option<(*mut bindings::page, usize)> {
        let at = self.offset + start;
        let fits = start.checked_add(8)? <= self.len && at % 8 == 0 && self.writable;
        let page = self.pages.get(at >> PAGE_SHIFT).filter(|_| fits)?;
        Some((page.as_ptr(), at % PAGE_SIZE))
    }

    /// Swaps the word at `start` in the range if it is `compare`, atomically, and
    /// answers what it was; `None` if there is no such word that may be written.
    pub(crate) fn compare_swap(&self, start: usize, compare: u64, swap: u64) -> Option<u64> {
        let (page, offset) = self.word(start)?;
        // SAFETY: the page is pinned and writable; the word is aligned and within
        // it.
        Some(unsafe { bindings::weft_page_compare_swap(page, offset, compare, swap) })
    }

    /// Adds to the word at `start` in the range, atomically, and answers what it
    /// was; `None` as for [`UserPages::compare_swap`].
    pub(crate) fn fetch_add(&self, start: usize, add: u64) -> Option<u64> {
        let (page, offset) = self.word(start)?;
        // SAFETY: as above.
        Some(unsafe { bindings::weft_page_fetch_add(page, offset, add) })
    }

    /// Copies bytes from `start` in the range out to `to`; `false` if they are
    /// not within it. Aligned words are copied whole.
    pub(crate) fn read(&self, start: usize, to: &mut [u8]) -> bool {
        let len = to.len();
        self.pieces(start, len, |page, in_page, done, bytes| {
            let Some(to) = to.get_mut(done..done + bytes) else {
                return false;
            };
            // SAFETY: the page is pinned and the piece within it; `to` has
            // `bytes` bytes.
            unsafe { bindings::weft_page_read(page, in_page, to.as_mut_ptr().cast(), bytes) };
            true
        })
    }

    /// Copies `len` bytes of a packet, from byte `from`, to `start` in the range;
    /// `false` if that is not within it. Aligned words are copied whole.
    pub(crate) fn write(&self, start: usize, packet: &Skb, from: u32, len: usize) -> bool {
        self.writable
            && self.pieces(start, len, |page, in_page, done, bytes| {
                // SAFETY: the page is pinned, writable, and the piece within it;
                // the callee checks the packet's length.
                let err = unsafe {
                    bindings::weft_page_write_skb(
                        page,
                        in_page,
                        packet.as_ptr(),
                        from as i32 + done as i32,
                        bytes,
                    )
                };
                err == 0
            })
    }
}

impl Drop for UserPages {
    fn drop(&mut self) {
        // Pages that peers may have written are dirty, whatever the page tables
        // say.
        // SAFETY: these pages are pinned by the invariant, and `NonNull<page>`
        // has the layout of a page pointer. Process context: a region that was
        // registered is dropped as a deferred free (`mem::deferred`), any other by the
        // system call that was to register it.
        unsafe {
            bindings::unpin_user_pages_dirty_lock(
                self.pages.as_mut_ptr().cast(),
                self.pages.len(),
                self.writable,
            );
        }
    }
}
