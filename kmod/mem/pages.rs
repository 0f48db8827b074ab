// SPDX-License-Identifier: GPL-2.0

//! A range of memory that a user has mapped and softirqs read and write: the user's own,
//! pinned, or the module's, lent to the user.

use core::ptr::NonNull;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::mm::Mm;
use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

use crate::bindings;
use crate::counters::{Counted, COUNTERS};
use crate::net::Skb;
use crate::rdma::Span;

/// Pages that one call pins; signals are looked at in between.
const PIN_BATCH: usize = 512;

/// The owner of pages that it has lent, which stay until it is dropped.
pub(crate) trait Lender: Send + Sync {}

/// The reason why pages stay where they are.
enum Keeper {
    /// They are pinned.
    Pins { _charge: Charge, _count: Counted },
    /// They are the lender's, which has charged them.
    Lender { _lender: Arc<dyn Lender> },
}

/// A user's memory.
///
/// # Invariants
///
/// - Every page in `pages` is pinned for as long as the value lives, or the lender's.
/// - The range of `len` bytes from `offset` into the first page lies within the
///   pages.
pub(crate) struct UserPages {
    pages: KVVec<NonNull<bindings::page>>,
    offset: usize,
    len: usize,
    writable: bool,
    keeper: Keeper,
}

// SAFETY: pages are not tied to a thread.
unsafe impl Send for UserPages {}
// SAFETY: what `&self` allows is copying bytes in and out, as peers and the
// owner may do at any time; nobody holds references into the pages.
unsafe impl Sync for UserPages {}

/// Pages charged to an address space.
///
/// # Invariants
///
/// `mm` has been charged for `pages`.
pub(crate) struct Charge {
    mm: ARef<Mm>,
    pages: usize,
}

impl Charge {
    /// Charges so many pages to the caller, by the rule that ib_core uses for those that
    /// it pins (`ib_umem_get`).
    ///
    /// # Errors
    ///
    /// `ENOMEM`: over `RLIMIT_MEMLOCK`.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        let task = current!();
        let mm: &Mm = task.mm().ok_or(ENOMEM)?;
        let (mm, count) = (ARef::from(mm), isize::try_from(pages)?);
        // SAFETY: the reference keeps the address space.
        let charged = unsafe { bindings::weft_mm_pinned_add(mm.as_raw().cast(), count) };
        // INVARIANT: charged just now. An error drops it, which takes that back.
        let charge = Self { mm, pages };
        // SAFETY: no requirement.
        let limit = unsafe { bindings::weft_memlock_pages() };
        // SAFETY: called from a system call.
        if charged > limit as u64 && !unsafe { bindings::weft_capable_ipc_lock() } {
            return Err(ENOMEM);
        }
        Ok(charge)
    }

    /// Whether the caller is charged.
    pub(crate) fn is_callers(&self) -> bool {
        current!()
            .mm()
            .is_some_and(|mm| mm.as_raw() == self.mm.as_raw())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // The last reference to an address space frees its page tables, which is not for
        // softirqs: users of this are dropped in process context.
        // SAFETY: `mm` is referenced, and was charged by the invariant; `new` has found
        // that the number fits.
        unsafe { bindings::weft_mm_pinned_add(self.mm.as_raw().cast(), -(self.pages as isize)) };
    }
}

impl UserPages {
    /// Pins `len` bytes at `addr` of the caller's memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no bytes, or past the end of the address space), `ENOMEM` (over
    /// `RLIMIT_MEMLOCK`, or no memory), `EFAULT` (not all mapped, or not
    /// writable), `EINTR` (a fatal signal came).
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
            keeper: Keeper::Pins {
                _charge: charge,
                _count: Counted::many(&COUNTERS.pinned_pages, count as i64),
            },
        };
        while this.pages.len() < count {
            this.pin_batch(first, count)?;
        }
        Ok(this)
    }

    /// The pages that `page_at` says, whole ones, which are lent.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// They are the lender's, and mapped in the kernel.
    pub(crate) unsafe fn lent(
        lender: Arc<dyn Lender>,
        count: usize,
        writable: bool,
        page_at: impl Fn(usize) -> Option<NonNull<bindings::page>>,
    ) -> Result<Self> {
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for index in 0..count {
            pages.push(page_at(index).ok_or(ENOMEM)?, GFP_KERNEL_ACCOUNT)?;
        }
        // INVARIANT: the caller promises whose they are; the range is all of them.
        Ok(Self {
            pages,
            offset: 0,
            len: count * PAGE_SIZE,
            writable,
            keeper: Keeper::Lender { _lender: lender },
        })
    }

    /// The pages, for a device to map.
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
        // Others would end it each time, where they come often: a profiler's.
        //
        // SAFETY: no requirement.
        if unsafe { bindings::weft_fatal_signal_pending() } {
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
        // SAFETY: the page is ours by the invariant, and writable; the word is aligned and
        // within it.
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
            // SAFETY: the page is ours by the invariant, and the piece within it; `to` has
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
                // SAFETY: the page is ours by the invariant, writable, and the piece within
                // it; the callee checks the packet's length.
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
        if matches!(self.keeper, Keeper::Lender { .. }) {
            return;
        }
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
