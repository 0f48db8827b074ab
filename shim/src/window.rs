// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows: further keys to regions.

use crate::error::Error;
use crate::ioctl;
use crate::mr::{Access, MemoryRegion, Remote};
use std::ops::Range;
use std::sync::Arc;
use weft_core::uapi::{self, Pod};

/// Another key to a region, or to a part of it, with rights of its own (`ibv_bind_mw(3)`). So
/// each peer can have a key that ends by itself: when the window is dropped, requests by its
/// key fail, and the region and other windows are as before. It takes a system call, however
/// long the region is: pages are pinned and charged once.
#[derive(Debug)]
pub struct MemoryWindow {
    region: Arc<MemoryRegion>,
    addr: u64,
    len: usize,
    rkey: u32,
    rights: Access,
}

impl MemoryWindow {
    /// Binds a window to these bytes of a region.
    ///
    /// `rights` are [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`],
    /// [`Access::REMOTE_ATOMIC`] and [`Access::RELAXED_ORDERING`]. Peers need not have them by
    /// the region's own key; but a region that they may change needs [`Access::LOCAL_WRITE`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::BadWindow`], [`Error::TooManyWindows`],
    /// [`Error::OutOfMemory`], [`Error::NodeGone`].
    pub fn bind(
        region: &Arc<MemoryRegion>,
        range: Range<usize>,
        rights: Access,
    ) -> Result<Self, Error> {
        let range = region.check(range)?;
        // Within the region, so the sum is an address.
        let addr = region.addr() + range.start as u64;
        let mut arg = uapi::MwBind {
            addr,
            len: range.len() as u64,
            lkey: region.lkey(),
            access: rights.bits(),
            ..Pod::zeroed()
        };
        ioctl::mw_bind(region.device().fd(), &mut arg).map_err(Error::of_mw_bind)?;
        Ok(Self {
            region: Arc::clone(region),
            addr,
            len: range.len(),
            rkey: arg.rkey,
            rights,
        })
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// The address and the key by which a peer reaches the first byte.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote {
            addr: self.addr,
            rkey: self.rkey,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rights of peers.
    #[must_use]
    pub fn rights(&self) -> Access {
        self.rights
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let mut arg = uapi::MrDereg {
            lkey: self.rkey,
            ..Pod::zeroed()
        };
        // It fails only if the window went before, with its node.
        let _ = ioctl::mr_dereg(self.region.device().fd(), &mut arg);
    }
}
