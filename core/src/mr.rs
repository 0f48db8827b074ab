// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Memory regions as RC needs them: the record of a region in its node's table
//! (ValidMR), and the cache of checked remote ones (MRStore) with its leases
//! (krcore §4.2).
//!
//! A request with a bad remote key would break the queue pair that many virtual
//! ones share. So it is checked before it is posted: against the owner's table,
//! a [`crate::kv`] table of the regions' blocks ([`BlockName`]) that peers READ, or against the
//! cache.
//!
//! A region that goes is taken out of the table first. Then its owner tells the
//! peers that are connected ([`Ledger`], [`Notice`]): each forgets the key, waits
//! until its requests that were posted before that have ended, and answers. When
//! all have answered no request can come by that key, and the memory goes.
//!
//! ```text
//! owner:  removed from the table ── Gone ──┐                         ┌─> freed
//! peer:                                    └─> forgotten ... ended ──┘ Unused
//! ```
//!
//! A peer that is silent falls back on the lease of krcore §4.2: it trusts
//! what it has read for [`TRUST_NS`], and what it posted meanwhile ends or breaks
//! the queue pair within [`PATIENCE_NS`] of its turn, or somewhat later if the device
//! waits longer than it was told. Because of that, and because a request may wait
//! for its turn behind those of others, the owner ends the connection after
//! [`LEASE_NS`] of silence, and only then lets go of the memory. KRCore's period is
//! "e.g., 1 second". Many requests on a slow network take longer: a peer that says so
//! has [`LEASE_MAX_NS`].

mod block;
mod ledger;
mod notice;

pub use block::BlockSize;
pub use ledger::{Ledger, LEDGER_LINES, REPEAT_NS};
pub use notice::{Keys, Notice, NoticeKind, NOTICE_BYTES, NOTICE_KEYS};

use crate::kv;
use crate::rc::PATIENCE_NS;
use crate::uapi::{
    ACCESS_ALL, ACCESS_RELAXED_ORDERING, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ,
    ACCESS_REMOTE_WRITE,
};

/// How long a reader trusts what it has read, counted from before the READ.
pub const TRUST_NS: u64 = 500_000_000;
/// How long a peer may be silent after a notice before it loses its connection. 1.3 s.
pub const LEASE_NS: u64 = TRUST_NS + PATIENCE_NS;
/// How long a peer may go on saying that it uses a region before it loses its
/// connection. 10 s.
pub const LEASE_MAX_NS: u64 = 10_000_000_000;

/// Any of the flags that let peers touch a region.
pub const ACCESS_REMOTE: u32 = ACCESS_REMOTE_READ | ACCESS_CHANGE;
/// Those of them that let peers change it.
pub const ACCESS_CHANGE: u32 = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC;

/// Those of a region's access flags that hold for peers' requests by RC. A device that
/// `relaxes` writes shows them to processors in any order, so peers reach by it only regions
/// that they cannot write, or whose owner does not mind ([`ACCESS_RELAXED_ORDERING`]); the
/// others they reach by DC.
#[must_use]
pub const fn access_by_rc(access: u32, relaxes: bool) -> u32 {
    let is_written = access & ACCESS_CHANGE != 0;
    let has_order = !relaxes || access & ACCESS_RELAXED_ORDERING != 0;
    if is_written && !has_order {
        return 0;
    }
    access & ACCESS_REMOTE
}

/// Bits of a length in a record: 16 TiB.
const LEN_BITS: u32 = 44;
const _: () = assert!(ACCESS_ALL < 1 << (48 - LEN_BITS));
const _: () = assert!(crate::uapi::MAX_MR_BYTES < 1 << LEN_BITS);

/// What a node says to its peers of a block of a region. A region that its table lacks
/// is used by DC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// First byte.
    pub addr: u64,
    /// Bytes, fewer than 2^44.
    pub len: u64,
    /// `ACCESS_*`.
    pub access: u32,
    /// The key that the RDMA device knows the block by. Users never see it.
    pub rkey: u32,
}

impl Record {
    /// The record as a table value.
    #[must_use]
    pub fn to_value(self) -> kv::Value {
        let packed = (self.len & ((1 << LEN_BITS) - 1)) | (u64::from(self.access) << LEN_BITS);
        let mut value = [0; kv::VALUE_BYTES];
        value[..8].copy_from_slice(&self.addr.to_le_bytes());
        value[8..12].copy_from_slice(&self.rkey.to_le_bytes());
        value[12..].copy_from_slice(&packed.to_le_bytes()[..6]);
        value
    }

    /// The record in a table value.
    #[must_use]
    pub fn from_value(value: &kv::Value) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, p0, p1, p2, p3, p4, p5] = *value;
        let packed = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, 0, 0]);
        Self {
            addr: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: packed & ((1 << LEN_BITS) - 1),
            access: (packed >> LEN_BITS) as u32,
            rkey: u32::from_le_bytes([k0, k1, k2, k3]),
        }
    }

    /// Whether a peer may do what `access` says with `len` bytes at `addr`.
    #[inline]
    #[must_use]
    pub fn allows(&self, addr: u64, len: u32, access: u32) -> bool {
        let end = addr
            .checked_sub(self.addr)
            .and_then(|start| start.checked_add(u64::from(len)));
        self.access & access == access && end.is_some_and(|end| end <= self.len)
    }
}

/// A block of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockName {
    /// The region's key.
    pub key: u32,
    /// The block's number ([`BlockSize::block_of`], by the owner's size).
    pub block: u64,
}

impl BlockName {
    /// Its key in the table.
    #[must_use]
    pub fn table_key(self) -> kv::Key {
        let mut bytes = [0; kv::KEY_BYTES];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.block.to_le_bytes());
        bytes
    }
}

const SETS: usize = 64;
const WAYS: usize = 4;

#[derive(Clone, Copy)]
struct Line {
    name: BlockName,
    record: Record,
    /// Just before the READ that fetched it.
    asked_ns: u64,
}

#[derive(Clone, Copy)]
struct Set {
    lines: [Option<Line>; WAYS],
    victim: u8,
}

/// MRStore: blocks of a peer's regions as they were read from its table, for as long as
/// they may be trusted. Of fixed size; the oldest of a set makes room.
pub struct Store {
    sets: [Set; SETS],
    /// What is being looked up; one at a time is.
    asked: Option<BlockName>,
}

impl Store {
    /// Knows nothing.
    pub const EMPTY: Self = Self {
        sets: [Set {
            lines: [None; WAYS],
            victim: 0,
        }; SETS],
        asked: None,
    };

    #[inline]
    fn set(&mut self, name: BlockName) -> &mut Set {
        // Keys are random: any of their bits will do, and blocks of one are neighbours.
        &mut self.sets[name.key.wrapping_add(name.block as u32) as usize % SETS]
    }

    /// What is known of a block, and may still be trusted.
    #[inline]
    #[must_use]
    pub fn find(&mut self, name: BlockName, now_ns: u64) -> Option<Record> {
        let mut lines = self.set(name).lines.iter().flatten();
        let line = lines.find(|line| line.name == name)?;
        (now_ns.saturating_sub(line.asked_ns) < TRUST_NS).then_some(line.record)
    }

    /// The peer's table is about to be READ for this block.
    pub fn ask(&mut self, name: BlockName) {
        self.asked = Some(name);
    }

    /// Takes in what a READ, posted after `asked_ns` and after [`Store::ask`], has
    /// found. `false`: the region went meanwhile, so that it may not be used.
    #[must_use]
    pub fn learn(&mut self, name: BlockName, record: Record, asked_ns: u64) -> bool {
        let counts = self.asked.take() == Some(name);
        if counts {
            self.insert(name, record, asked_ns);
        }
        counts
    }

    /// The regions of these keys go: nothing that was read of them counts.
    pub fn forget(&mut self, keys: &[u32]) {
        let is_gone = |name: BlockName| keys.contains(&name.key);
        for place in self.sets.iter_mut().flat_map(|set| &mut set.lines) {
            place.take_if(|line| is_gone(line.name));
        }
        self.asked.take_if(|asked| is_gone(*asked));
    }

    fn insert(&mut self, name: BlockName, record: Record, asked_ns: u64) {
        let line = Line {
            name,
            record,
            asked_ns,
        };
        let set = self.set(name);
        let same = |known: &Option<Line>| known.is_some_and(|known| known.name == name);
        let way = set.lines.iter().position(same);
        let way = way.or_else(|| set.lines.iter().position(Option::is_none));
        let way = way.unwrap_or_else(|| {
            set.victim = (set.victim + 1) % WAYS as u8;
            usize::from(set.victim)
        });
        if let Some(place) = set.lines.get_mut(way) {
            *place = Some(line);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
