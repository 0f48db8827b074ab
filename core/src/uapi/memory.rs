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
    /// `IOC_MR_REG`.
    ///
    /// Errors: `EINVAL` (no length, longer than [`MAX_MR_BYTES`], unknown access
    /// flags, remote write without local write), `EFAULT` (not all of it is
    /// mapped, or not writable), `EINTR` (a signal came; nothing is registered), `ENOMEM` (over `RLIMIT_MEMLOCK`), `EMFILE`
    /// ([`MAX_MRS_PER_SESSION`] or [`MAX_MRS_PER_USER`] reached), `ENODEV` (the node is gone).
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
    /// `IOC_MR_DEREG`. Errors: `ENOENT` (the session has no such region).
    ///
    /// When it returns nobody touches the memory any more. It waits for that through
    /// signals that do not kill: the key is gone at once, so an interrupted caller could
    /// not wait again. A peer that is silent is waited for 1.3 s, one that still uses
    /// the region 10 s.
    pub struct MrDereg [8] {
        /// The region's `lkey`.
        pub lkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}
