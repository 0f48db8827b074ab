// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Memory regions.

use super::{pod, Pod};

/// The peer may not touch the region; this session may read it.
pub const ACCESS_LOCAL_READ: u32 = 0;
/// This session's READs may land in the region.
pub const ACCESS_LOCAL_WRITE: u32 = 1;
/// Peers may write the region.
pub const ACCESS_REMOTE_WRITE: u32 = 1 << 1;
/// Peers may read the region.
pub const ACCESS_REMOTE_READ: u32 = 1 << 2;
/// Peers may change words of the region atomically.
pub const ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
/// The owner does not mind in which order peers' writes appear: it waits for a completion or
/// a message before it reads them (`IBV_ACCESS_RELAXED_ORDERING`). Some
/// adapters keep no order among the writes to memory that the kernel registers: peers write
/// there by RC only with this flag, else by DC, which keeps it.
pub const ACCESS_RELAXED_ORDERING: u32 = 1 << 20;
/// All rights that there are.
pub const ACCESS_ALL: u32 =
    ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

pod! {
    /// `IOC_MR_REG`. The pages are pinned, and count against `RLIMIT_MEMLOCK`.
    ///
    /// If that leaves no room, memory of rings that the session has destroyed, and keeps for the
    /// next ones, makes way. What other sessions of the process keep does not, nor what the
    /// process still has mapped.
    ///
    /// Errors: `EINVAL` (no length, longer than [`MAX_MR_BYTES`], unknown access
    /// flags, remote write without local write), `EFAULT` (not all of it is
    /// mapped, or not writable), `ENOMEM` (over `RLIMIT_MEMLOCK`), `EMFILE`
    /// ([`MAX_MRS_PER_SESSION`] or [`MAX_MRS_PER_USER`] reached), `ENODEV` (the node is gone).
    /// Only a signal that ends the process ends it too soon.
    ///
    /// [`MAX_MR_BYTES`]: super::MAX_MR_BYTES
    /// [`MAX_MRS_PER_SESSION`]: super::MAX_MRS_PER_SESSION
    /// [`MAX_MRS_PER_USER`]: super::MAX_MRS_PER_USER
    pub struct MrReg [32] {
        /// In: first byte.
        pub addr: u64,
        /// In: length in bytes.
        pub len: u64,
        /// In: `ACCESS_*`.
        pub access: u32,
        /// Out: names the region in this session's requests.
        pub lkey: u32,
        /// Out: names the region in a peer's requests.
        pub rkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_MW_BIND`.
    ///
    /// Binds a memory window (`ibv_bind_mw(3)`): another key to a region of this session, or to
    /// a part of it, with rights of its own. It ends by itself, with [`MrDereg`], and the region
    /// and its other windows are as before. The pages are neither pinned nor charged again. A
    /// region stays as long as it has windows.
    ///
    /// Errors: `EINVAL` (no length, a range that is not in the region, unknown access flags, no
    /// rights for peers, rights to change a region that the session itself may not write, a
    /// window in place of a region), `ENOENT` (the session has no such region), `EMFILE`
    /// ([`MAX_MWS_PER_SESSION`] or [`MAX_MWS_PER_USER`] reached), `ENOMEM`, `ENODEV` (the node is
    /// gone).
    ///
    /// [`MAX_MWS_PER_SESSION`]: super::MAX_MWS_PER_SESSION
    /// [`MAX_MWS_PER_USER`]: super::MAX_MWS_PER_USER
    pub struct MwBind [32] {
        /// In: first byte, as the region's requests name it.
        pub addr: u64,
        /// In: length in bytes.
        pub len: u64,
        /// In: the region's `lkey`.
        pub lkey: u32,
        /// In: [`ACCESS_REMOTE_READ`], [`ACCESS_REMOTE_WRITE`], [`ACCESS_REMOTE_ATOMIC`],
        /// [`ACCESS_RELAXED_ORDERING`].
        pub access: u32,
        /// Out: names the window in a peer's requests.
        pub rkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_MR_DEREG`. Errors: `ENOENT` (the session has no such region), `EBUSY` (it has
    /// memory windows).
    ///
    /// When it returns nobody touches the memory any more. It waits for that through
    /// signals that do not kill: the key is gone at once, so an interrupted caller could
    /// not wait again. A peer that is silent is waited for 1.3 s, one that still uses
    /// the region 10 s.
    pub struct MrDereg [8] {
        /// The region's `lkey`, or a window's `rkey`.
        pub lkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}
