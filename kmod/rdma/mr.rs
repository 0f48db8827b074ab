// SPDX-License-Identifier: GPL-2.0

//! Memory regions as the RDMA device knows them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use kernel::error::{from_err_ptr, to_result};
use kernel::ffi;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi;

use crate::bindings;
use crate::counters::{Counted, COUNTERS};
use crate::rdma::{Device, DmaWords, Pd};

/// `ib_access_flags` for the access flags of a region. Without `with_atomics` the
/// device has no part in atomic operations: they go by DC.
fn ib_access(access: u32, with_atomics: bool) -> i32 {
    let atomic = match with_atomics {
        true => bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC,
        false => 0,
    };
    let pairs = [
        (
            uapi::ACCESS_LOCAL_WRITE,
            bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
        ),
        (
            uapi::ACCESS_REMOTE_WRITE,
            bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
        ),
        (
            uapi::ACCESS_REMOTE_READ,
            bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        ),
        (uapi::ACCESS_REMOTE_ATOMIC, atomic),
    ];
    let flags = pairs.iter().filter(|(ours, _)| access & ours != 0);
    flags.fold(0, |flags, (_, theirs)| flags | *theirs as i32)
}

/// Pages that are mapped for a device.
///
/// # Invariants
///
/// `table` lists pages that stay pinned, and is mapped for `device` as long as the
/// value lives.
struct Mapping {
    device: Device,
    table: bindings::sg_table,
    writable: bool,
}

impl Mapping {
    /// # Safety
    ///
    /// The pages stay pinned until the value is dropped.
    unsafe fn new(device: Device, pages: Span<'_>) -> Result<Self> {
        let mut table = bindings::sg_table::default();
        let count = u32::try_from(pages.pages.len()).map_err(|_| E2BIG)?;
        // SAFETY: `NonNull<page>` has the layout of a page pointer, and the call only
        // reads the array; the range lies within the pages (by `Span`); the table is
        // local.
        to_result(unsafe {
            bindings::sg_alloc_table_from_pages_segment(
                &mut table,
                pages.pages.as_ptr().cast_mut().cast(),
                count,
                pages.offset as u32,
                pages.len as ffi::c_ulong,
                bindings::weft_ib_dma_max_segment(device.as_ptr()),
                bindings::weft_gfp_kernel_account(),
            )
        })?;
        // SAFETY: the device is valid, the table was made just above.
        let mapped = to_result(unsafe {
            bindings::weft_ib_dma_map_table(device.as_ptr(), &mut table, pages.writable)
        });
        if let Err(error) = mapped {
            // SAFETY: made above, and not mapped.
            unsafe { bindings::sg_free_table(&mut table) };
            return Err(error);
        }
        // INVARIANT: as just made; the rest is the caller's promise.
        Ok(Self {
            device,
            table,
            writable: pages.writable,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by the invariant; the device is there.
        unsafe {
            bindings::weft_ib_dma_unmap_table(self.device.as_ptr(), &mut self.table, self.writable);
        }
        // SAFETY: ours, and no longer mapped.
        unsafe { bindings::sg_free_table(&mut self.table) };
    }
}

/// A region and its mapping. Fields are dropped in order.
struct Registered {
    mr: RawMr,
    _mapping: Mapping,
    _count: Counted,
}

/// # Invariants
///
/// Valid, and ours.
struct RawMr(NonNull<bindings::ib_mr>);

impl RawMr {
    /// A region of a domain, for so many pages.
    fn new(pd: &Pd, pages: u32) -> Result<Self> {
        // SAFETY: the domain is valid.
        let raw = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(pd.as_ptr(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        // INVARIANT: just made.
        NonNull::new(raw).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for RawMr {
    fn drop(&mut self) {
        // SAFETY: valid by the invariant, ours, and no longer used.
        let err = unsafe { bindings::ib_dereg_mr_user(self.0.as_ptr(), core::ptr::null_mut()) };
        if err != 0 {
            pr_err!("a memory region could not be deregistered: {err}\n");
        }
    }
}

/// Bytes in pinned pages: `len` from `offset` into the first page on.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) pages: &'a [NonNull<bindings::page>],
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) writable: bool,
}

impl<'a> Span<'a> {
    /// `len` of its bytes, from byte `start` on, in the pages that they are in.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it has fewer.
    pub(crate) fn part(&self, start: usize, len: usize) -> Result<Span<'a>> {
        let end = start.checked_add(len).filter(|end| *end <= self.len);
        let (from, to) = (self.offset + start, self.offset + end.ok_or(EINVAL)?);
        let pages = self.pages.get(from / PAGE_SIZE..to.div_ceil(PAGE_SIZE));
        Ok(Span {
            pages: pages.ok_or(EINVAL)?,
            offset: from % PAGE_SIZE,
            len,
            writable: self.writable,
        })
    }
}

/// Memory that is registered with a device the way the kernel's own consumers do it
/// (fast registration): the pages are pinned by us, mapped for the device, and listed
/// in a region whose key a request on a queue pair of the domain makes valid. The
/// driver never sees a user's address.
///
/// A key is made valid once, and goes with the region: no request invalidates it. It is
/// valid for all queue pairs of the domain.
///
/// mlx5 lets writes to such a region pass each other on the bus (PCI Express relaxed
/// ordering), and no request can tell it not to (`mlx5_set_umr_free_mkey`, `set_reg_wr`):
/// of two WRITEs a processor may see the later one first.
///
/// It can be released before it is dropped, when the device goes.
///
/// # Invariants
///
/// `registered` is from `KBox::into_raw`, or null once it was released.
pub(crate) struct FastMr {
    registered: AtomicPtr<Registered>,
    lkey: u32,
    rkey: u32,
    access: i32,
}

impl FastMr {
    /// Prepares the registration of pages, which peers are to know by `addr` and up.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `E2BIG` (more pages than the device takes), and those of the driver.
    ///
    /// # Safety
    ///
    /// The pages stay pinned until the value is dropped or released.
    pub(crate) unsafe fn new(
        device: Device,
        pd: &Pd,
        pages: Span<'_>,
        addr: u64,
        access: u32,
    ) -> Result<Self> {
        let count = u32::try_from(pages.pages.len()).map_err(|_| E2BIG)?;
        if count > device.most_pages() {
            return Err(E2BIG);
        }
        // SAFETY: the caller's promise.
        let mapping = unsafe { Mapping::new(device, pages) }?;
        let registered = Registered {
            mr: RawMr::new(pd, count)?,
            _mapping: mapping,
            _count: Counted::one(&COUNTERS.device_mrs),
        };
        let mut registered = KBox::new(registered, GFP_KERNEL)?;
        let raw = registered.mr.0.as_ptr();
        let table = &mut registered._mapping.table;
        // SAFETY: region and mapping are valid; the device's pages are at least as
        // large as ours.
        let mapped = unsafe {
            bindings::ib_map_mr_sg(
                raw,
                table.sgl,
                table.nents as i32,
                core::ptr::null_mut(),
                PAGE_SIZE as u32,
            )
        };
        if mapped != table.nents as i32 {
            return Err(if mapped < 0 {
                Error::from_errno(mapped)
            } else {
                E2BIG
            });
        }
        // Peers use the user's addresses. Within a page they are the device's: the
        // request that makes the key valid takes the address from here, as that of
        // net/sunrpc/xprtrdma/frwr_ops.c does. (ocrdma alone takes it for the device's
        // address of the first byte: `ocrdma_build_reg`.)
        // SAFETY: the region is valid and ours, its keys do not change.
        let (lkey, rkey) = unsafe {
            (*raw).iova = addr;
            ((*raw).lkey, (*raw).rkey)
        };
        // INVARIANT: from `into_raw`.
        Ok(Self {
            registered: AtomicPtr::new(KBox::into_raw(registered)),
            lkey,
            rkey,
            access: ib_access(access, device.has_global_atomics()),
        })
    }

    /// Its key for requests of this node; `None` once it was released.
    pub(crate) fn lkey(&self) -> Option<u32> {
        (!self.registered.load(Ordering::Acquire).is_null()).then_some(self.lkey)
    }

    /// Its key for peers' requests.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The request that makes its key valid. Only the thread that made the value asks
    /// for it, before anybody else could release it.
    pub(super) fn request(&self, wr_id: u64) -> Result<bindings::ib_reg_wr> {
        let registered = self.registered.load(Ordering::Acquire);
        // SAFETY: valid by the invariant, or null.
        let registered = unsafe { registered.as_ref() }.ok_or(ENODEV)?;
        Ok(reg_wr(registered.mr.0, self.rkey, self.access, wr_id))
    }

    /// Takes it from the device. No request may use it any more. Process context,
    /// while the device is there; later calls do nothing.
    pub(crate) fn release(&self) {
        let registered = self
            .registered
            .swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !registered.is_null() {
            // SAFETY: from `into_raw`, and by the swap nobody else's.
            drop(unsafe { KBox::from_raw(registered) });
        }
    }
}

impl Drop for FastMr {
    fn drop(&mut self) {
        self.release();
    }
}

/// A signalled request that makes a region's key valid.
fn reg_wr(mr: NonNull<bindings::ib_mr>, key: u32, access: i32, wr_id: u64) -> bindings::ib_reg_wr {
    let mut wr = bindings::ib_reg_wr {
        mr: mr.as_ptr(),
        key,
        access,
        ..Default::default()
    };
    wr.wr.__bindgen_anon_1.wr_id = wr_id;
    wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
    wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
    wr
}

/// A table that peers may READ, registered with a device. Its key is valid once
/// a queue pair of the domain has carried out the request that
/// [`crate::rdma::Registrar::register_table`] posts. Fields are dropped in order.
///
/// # Invariants
///
/// `raw` is of the domain `_pd`, and maps the words that it was made for.
pub(crate) struct TableMr {
    raw: RawMr,
    _pd: Arc<Pd>,
}

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl Send for TableMr {}
// SAFETY: as above.
unsafe impl Sync for TableMr {}

impl TableMr {
    /// Pages that a table of so many bytes may take.
    pub(crate) const fn pages(bytes: usize) -> usize {
        bytes.div_ceil(PAGE_SIZE) + 1
    }

    /// A region for the words; to be dropped before they are, and after the last
    /// queue pair through which they are read.
    pub(crate) fn new(pd: Arc<Pd>, words: &DmaWords) -> Result<Self> {
        let raw = RawMr::new(&pd, Self::pages(words.bytes()) as u32)?;
        // INVARIANT: made in the domain; mapped below, or dropped.
        let this = Self { raw, _pd: pd };
        // SAFETY: the region is valid; the words stay mapped, as the caller
        // promises by the order in which it drops.
        to_result(unsafe {
            bindings::weft_ib_map_mr(this.as_ptr(), words.addr(), words.bytes() as u32)
        })?;
        Ok(this)
    }

    fn as_ptr(&self) -> *mut bindings::ib_mr {
        self.raw.0.as_ptr()
    }

    /// The request that makes its key valid.
    pub(super) fn request(&self, wr_id: u64) -> bindings::ib_reg_wr {
        let access = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ as i32;
        reg_wr(self.raw.0, self.rkey(), access, wr_id)
    }

    /// The key by which peers will read it.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: valid by the invariant; the key does not change.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The address by which they will.
    pub(crate) fn addr(&self) -> u64 {
        // SAFETY: valid by the invariant; set when the words were mapped.
        unsafe { (*self.as_ptr()).iova }
    }
}
