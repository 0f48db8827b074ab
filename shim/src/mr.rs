// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions: memory that work requests may name.
//!
//! The module pins a region's pages while it is registered. Dropping a region
//! with requests in flight is safe: they fail, or end in pages that nobody
//! sees any more.

use crate::device::Device;
use crate::error::Error;
use crate::ioctl;
use crate::memory::{Pages, SharedBytes};
use crate::ring::Mapping;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use weft_core::uapi::{self, Pod, MAX_MR_BYTES, MAX_MSG_BYTES};

bitflags::bitflags! {
    /// Who may do what to a region. None of them: this session's WRITEs may
    /// read it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// This session's READs may land in it.
        const LOCAL_WRITE = uapi::ACCESS_LOCAL_WRITE;
        /// Peers may write it. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = uapi::ACCESS_REMOTE_WRITE;
        /// Peers may read it.
        const REMOTE_READ = uapi::ACCESS_REMOTE_READ;
        /// Peers may change its words atomically. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = uapi::ACCESS_REMOTE_ATOMIC;
        /// Its owner does not mind in which order peers' writes appear: it waits for a
        /// completion or a message before it reads them. On adapters that keep no order
        /// (mlx5), peers' requests to a region that they may write go by RC only with
        /// this.
        const RELAXED_ORDERING = uapi::ACCESS_RELAXED_ORDERING;
    }
}

/// An address in a peer's memory, and the key to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The address, as the peer sees it.
    pub addr: u64,
    /// The `rkey` of the peer's region.
    pub rkey: u32,
}

impl Remote {
    /// The address this many bytes further. Wraps at the end of the address
    /// space; the peer checks the range.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self {
            addr: self.addr.wrapping_add(bytes),
            ..self
        }
    }
}

/// Part of a region, for a work request to read from or write to.
#[derive(Clone, Copy, Debug)]
pub struct LocalSlice<'mr> {
    addr: u64,
    len: u32,
    lkey: u32,
    region: PhantomData<&'mr MemoryRegion>,
}

impl LocalSlice<'_> {
    /// Length in bytes, at most [`MAX_MSG_BYTES`].
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) const fn to_raw(self) -> uapi::Sge {
        uapi::Sge {
            addr: self.addr,
            len: self.len,
            lkey: self.lkey,
        }
    }
}

/// Registered memory.
///
/// Peers may write it at any time, and READs land in it. So there is no
/// `&[u8]` of it: bytes are loaded, stored and copied, see the methods.
pub struct MemoryRegion {
    bytes: SharedBytes,
    /// The address by which requests name its first byte.
    addr: u64,
    lkey: u32,
    rkey: u32,
    access: Access,
    device: Device,
    /// Dropped after `drop` has deregistered it.
    _memory: Memory,
}

/// The owner of a region's memory.
enum Memory {
    Callers,
    Own { _pages: Pages },
    OfQueues { _mapping: Arc<Mapping> },
}

impl MemoryRegion {
    /// Allocates `len` zeroed bytes, aligned to a page, and registers them.
    ///
    /// # Errors
    ///
    /// [`Error::BadRegion`], [`Error::OutOfMemory`], [`Error::TooManyRegions`],
    /// [`Error::NodeGone`].
    pub fn allocate(device: &Device, len: usize, access: Access) -> Result<Self, Error> {
        let bad = Error::BadRegion { len: len as u64 };
        let Some(len) = NonZeroUsize::new(len).filter(|len| len.get() as u64 <= MAX_MR_BYTES)
        else {
            return Err(bad);
        };
        let pages = Pages::map(len)?;
        // SAFETY: the region keeps the mapping as long as itself, and the
        // address is given out only as a number.
        let mut region = unsafe { Self::register_raw(device, pages.base(), len.get(), access) }?;
        region._memory = Memory::Own { _pages: pages };
        Ok(region)
    }

    /// Registers memory that the caller owns. It is pinned where it is; a
    /// mapping put over it later is not what peers see.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`], and [`Error::NotMapped`].
    ///
    /// # Safety
    ///
    /// While the region exists, the `len` bytes at `addr` stay mapped, readable
    /// and writable, and nothing else in the process touches them but by volatile
    /// operations, or by atomic ones of the same size as [`Self::copy_in`]'s. No other
    /// region that has some of them in another word overlaps it.
    pub unsafe fn register_raw(
        device: &Device,
        addr: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Self, Error> {
        // SAFETY: the caller promises it.
        let bytes = unsafe { SharedBytes::new(addr, len) };
        let mut arg = uapi::MrReg {
            addr: bytes.addr(),
            len: len as u64,
            access: access.bits(),
            ..Pod::zeroed()
        };
        let registered = device.lot().with_room(|| {
            // SAFETY: the caller promises that all treat it as written by others.
            unsafe { ioctl::mr_reg(device.fd(), &mut arg) }
        });
        registered.map_err(|errno| Error::of_mr_reg(errno, arg.addr, arg.len))?;
        Ok(Self {
            addr: bytes.addr(),
            bytes,
            lkey: arg.lkey,
            rkey: arg.rkey,
            access,
            device: device.clone(),
            _memory: Memory::Callers,
        })
    }

    /// The region that has come with queues. `None`: what is said of it cannot be.
    pub(crate) fn of_queues(
        device: &Device,
        mapping: &Arc<Mapping>,
        said: &uapi::RingsCreate,
        access: Access,
    ) -> Option<Self> {
        let (at, len) = (said.memory_offset as usize, said.memory_bytes as usize);
        if at.checked_add(len)? > mapping.len() {
            return None;
        }
        // SAFETY: within the mapping, as was just looked at.
        let base = unsafe { mapping.base().add(at) };
        Some(Self {
            // SAFETY: mapped as long as the mapping that the region keeps. Rings end
            // before it, and the address is given out to nobody.
            bytes: unsafe { SharedBytes::new(base, len) },
            addr: said.memory_addr,
            lkey: said.memory_key,
            rkey: said.memory_key,
            access,
            device: device.clone(),
            _memory: Memory::OfQueues {
                _mapping: Arc::clone(mapping),
            },
        })
    }

    /// The address by which requests name the first byte: where it is in this process,
    /// or 0 if it has come with queues ([`crate::Start`]).
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes, which never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key by which this session's requests name it.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which peers' requests name it.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Who may do what to it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// What a peer has to know to reach the first byte.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote {
            addr: self.addr(),
            rkey: self.rkey,
        }
    }

    /// The session that has registered it.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// A range that is within it.
    pub(crate) fn check(&self, range: Range<usize>) -> Result<Range<usize>, Error> {
        self.bytes.check(range)
    }

    /// Part of it, for a work request.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], or [`Error::TooLong`] over [`MAX_MSG_BYTES`].
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Result<LocalSlice<'_>, Error> {
        let range = self.check(range)?;
        slice_of(range, self.addr, self.lkey)
    }

    /// The word at this offset; what was written before it by a peer that
    /// orders its writes, or by [`Self::store_u64`], is seen too (Acquire).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, Error> {
        Ok(self.bytes.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores a word after everything that was stored before (Release).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), Error> {
        self.bytes.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Copies bytes into the region. Aligned words of 8 bytes are written whole, and
    /// part of one by compare and swap, so that threads may copy into neighbouring
    /// bytes at the same time; bytes at the ends of a region that are no whole word are
    /// written one by one. The copy as a whole is not atomic.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.bytes.copy_in(offset, from)
    }

    /// Copies bytes out of the region, as [`Self::copy_in`] does.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.bytes.copy_out(offset, to)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let mut arg = uapi::MrDereg {
            lkey: self.lkey,
            ..Pod::zeroed()
        };
        // It fails only if the region went before, with its node.
        let _ = ioctl::mr_dereg(self.device.fd(), &mut arg);
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

#[inline]
fn slice_of<'mr>(range: Range<usize>, base: u64, lkey: u32) -> Result<LocalSlice<'mr>, Error> {
    let len = u32::try_from(range.len())
        .ok()
        .filter(|len| *len <= MAX_MSG_BYTES)
        .ok_or(Error::TooLong(range.len()))?;
    // Within the region, so the sum is an address.
    let addr = base + range.start as u64;
    Ok(LocalSlice {
        addr,
        len,
        lkey,
        region: PhantomData,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A slice of a region that is nowhere.
    pub(crate) fn dangling_slice(addr: u64, len: u32, lkey: u32) -> LocalSlice<'static> {
        LocalSlice {
            addr,
            len,
            lkey,
            region: PhantomData,
        }
    }

    #[test]
    fn a_slice_is_within_its_region() {
        let pages = Pages::map(NonZeroUsize::new(4096).unwrap()).unwrap();
        // SAFETY: mapped until the end of this function, and nobody else's.
        let bytes = unsafe { SharedBytes::new(pages.base(), 100) };
        let slice_of = |range| slice_of(bytes.check(range)?, bytes.addr(), 7);
        let slice = slice_of(10..30).unwrap();
        assert_eq!(
            (slice.addr - bytes.addr(), slice.len(), slice.lkey),
            (10, 20, 7)
        );
        assert!(slice_of(100..100).unwrap().is_empty());
        let error = |start, end| {
            Some(Error::OutOfBounds {
                start,
                end,
                len: 100,
            })
        };
        assert_eq!(slice_of(90..101).err(), error(90, 101));
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        let reversed = 30..10;
        assert_eq!(slice_of(reversed).err(), error(30, 10));
    }

    #[test]
    fn a_remote_address_moves_with_its_offset() {
        let remote = Remote {
            addr: 0x1000,
            rkey: 5,
        };
        assert_eq!(
            remote.offset(16),
            Remote {
                addr: 0x1010,
                rkey: 5
            }
        );
    }
}
