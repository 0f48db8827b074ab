// SPDX-License-Identifier: GPL-2.0

//! Kernel memory that a device reads and writes.

use core::sync::atomic::AtomicU64;

use kernel::prelude::*;

use crate::bindings;
use crate::rdma::Device;

/// Bytes that a device reads and writes.
///
/// # Invariants
///
/// `dma` is the device's mapping of `bytes`, as long as the value lives.
pub(crate) struct DmaBuffer {
    device: Device,
    bytes: KVec<u8>,
    dma: u64,
}

impl DmaBuffer {
    /// `len` zeroes.
    pub(crate) fn new(device: Device, len: usize) -> Result<Self> {
        let mut bytes = KVec::from_elem(0, len, GFP_KERNEL)?;
        // SAFETY: the device is valid and the bytes are ours until `drop`; the allocation
        // is physically contiguous and does not move.
        let dma =
            unsafe { bindings::weft_ib_dma_map(device.as_ptr(), bytes.as_mut_ptr().cast(), len) };
        // SAFETY: the device is valid.
        if unsafe { bindings::weft_ib_dma_failed(device.as_ptr(), dma) } {
            return Err(ENOMEM);
        }
        // INVARIANT: mapped just above.
        Ok(Self { device, bytes, dma })
    }

    /// The address that the device knows it by.
    pub(crate) fn addr(&self) -> u64 {
        self.dma
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that the device has left in the first `len`. Only between two
    /// requests that use the buffer: `&mut` says that there is none.
    pub(crate) fn received(&mut self, len: usize) -> &[u8] {
        self.sync(true);
        self.bytes.get(..len).unwrap_or(&[])
    }

    /// Puts bytes where the device will find them.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.sync(false);
    }

    fn sync(&mut self, for_cpu: bool) {
        // SAFETY: device and mapping are valid by the invariant.
        unsafe { bindings::weft_ib_dma_sync(self.device.as_ptr(), self.dma, self.len(), for_cpu) };
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        // SAFETY: device and mapping are valid by the invariant.
        unsafe { bindings::weft_ib_dma_unmap(self.device.as_ptr(), self.dma, self.len()) };
    }
}

/// Words that processors write and the device reads, in one piece. They stay mapped, and
/// peers READ them at any time. So a change is stored word by word and then shown to the
/// device; between the two it may see some words and not others. Where memory for the
/// device has to be copied (SWIOTLB), a table of more than 256 KiB cannot be mapped, and
/// there is no RC.
///
/// # Invariants
///
/// As for [`DmaBuffer`].
pub(crate) struct DmaWords {
    device: Device,
    words: KVec<AtomicU64>,
    dma: u64,
}

impl DmaWords {
    /// `count` zeroes.
    pub(crate) fn new(device: Device, count: usize) -> Result<Self> {
        let mut words = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            words.push(AtomicU64::new(0), GFP_KERNEL)?;
        }
        let bytes = count * size_of::<AtomicU64>();
        // SAFETY: the device is valid and the words are ours until `drop`; the
        // allocation is physically contiguous and does not move.
        let dma =
            unsafe { bindings::weft_ib_dma_map(device.as_ptr(), words.as_mut_ptr().cast(), bytes) };
        // SAFETY: the device is valid.
        if unsafe { bindings::weft_ib_dma_failed(device.as_ptr(), dma) } {
            return Err(ENOMEM);
        }
        // INVARIANT: mapped just above.
        Ok(Self { device, words, dma })
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Their size.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words())
    }

    /// The address that the device knows them by.
    pub(crate) fn addr(&self) -> u64 {
        self.dma
    }

    /// Shows the device what was stored, where that needs doing.
    pub(crate) fn flush(&self) {
        // SAFETY: device and mapping are valid by the invariant.
        unsafe { bindings::weft_ib_dma_sync(self.device.as_ptr(), self.dma, self.bytes(), false) };
    }
}

impl Drop for DmaWords {
    fn drop(&mut self) {
        // SAFETY: device and mapping are valid by the invariant.
        unsafe { bindings::weft_ib_dma_unmap(self.device.as_ptr(), self.dma, self.bytes()) };
    }
}
