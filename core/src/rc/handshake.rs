// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What two nodes tell each other to connect a pair of RC queue pairs: an offer,
//! and its answer. What carries the two records is not known here.
//!
//! The one that answers is ready to receive before it answers. The one that
//! offered says so with the first message on the queue pair itself, as the
//! "ready to use" of InfiniBand's communication manager does; until then the
//! other does not post. That message carries the answer's nonce, which proves that
//! its sender has seen the answer: whoever forges the source of an offer has not.

use super::links::{Lane, MAX_LANES};
use crate::gid::Gid;
use crate::kv::Geometry;
use crate::mr::BlockSize;

/// Bytes of an encoded [`Hello`].
pub const HELLO_BYTES: usize = 76;
const MAGIC: u32 = u32::from_le_bytes(*b"WFTr");
/// Version of the record, and of the table that it names.
const VERSION: u8 = 4;
/// QPNs and PSNs have 24 bits.
const MAX_24: u32 = 0x00ff_ffff;
/// `IB_MTU_256` to `IB_MTU_4096`.
const MTUS: core::ops::RangeInclusive<u8> = 1..=5;

/// Which of the two records it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first.
    Offer,
    /// The second.
    Answer,
}

/// One side's half of a second queue pair, which carries SoftDc's packets.
///
/// # Invariants
///
/// `qpn` and `psn` have 24 bits; neither `qpn` nor `bytes` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketEnd {
    /// The sender's queue pair.
    pub qpn: u32,
    /// The first PSN that it sends.
    pub psn: u32,
    /// Bytes of the longest packet that it takes.
    pub bytes: u32,
}

/// One side's half of a connection.
///
/// # Invariants
///
/// `qpn` and `psn` have 24 bits, `mtu` is one of InfiniBand's, `gid` is not zero, `lane` is
/// below [`MAX_LANES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Offer or answer.
    pub role: Role,
    /// The sender.
    pub gid: Gid,
    /// The number of the lane: its place among the queue pairs of the two, below [`MAX_LANES`].
    pub lane: u8,
    /// The offer's number, random; the answer repeats it.
    pub token: u64,
    /// The sender's queue pair.
    pub qpn: u32,
    /// The first PSN that it sends.
    pub psn: u32,
    /// The largest packet that it takes, as a number of `ib_mtu`.
    pub mtu: u8,
    /// READs and atomic operations that it answers at a time.
    pub read_depth: u8,
    /// Where its table of valid memory regions is ([`crate::mr`]).
    pub table_addr: u64,
    /// Key of that table.
    pub table_rkey: u32,
    /// Shape of that table.
    pub geometry: Geometry,
    /// Of how many bytes the blocks are that it names.
    pub blocks: BlockSize,
    /// An answer's: random, and repeated by the first message on the queue pair. An
    /// offer's is 0.
    pub nonce: u32,
    /// The queue pair for packets; `None`: the sender has none for them.
    pub packets: Option<PacketEnd>,
}

impl Hello {
    /// The lane to its sender that it is about.
    #[must_use]
    pub fn lane_to_sender(&self) -> Lane {
        Lane {
            gid: self.gid,
            number: self.lane,
        }
    }

    /// The record as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        let role = match self.role {
            Role::Offer => 1,
            Role::Answer => 2,
        };
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&[VERSION, role, self.mtu, self.read_depth]);
        out[8..24].copy_from_slice(&self.gid.0);
        out[24..32].copy_from_slice(&self.token.to_le_bytes());
        // Both numbers have 24 bits.
        out[32..36].copy_from_slice(&self.qpn.to_le_bytes());
        out[35] = self.blocks.shift();
        out[36..40].copy_from_slice(&self.psn.to_le_bytes());
        out[39] = self.lane;
        out[40..48].copy_from_slice(&self.table_addr.to_le_bytes());
        out[48..52].copy_from_slice(&self.table_rkey.to_le_bytes());
        out[52..56].copy_from_slice(&self.geometry.main_buckets().to_le_bytes());
        out[56..60].copy_from_slice(&self.geometry.total_buckets().to_le_bytes());
        out[60..64].copy_from_slice(&self.nonce.to_le_bytes());
        if let Some(PacketEnd { qpn, psn, bytes }) = self.packets {
            out[64..68].copy_from_slice(&qpn.to_le_bytes());
            out[68..72].copy_from_slice(&psn.to_le_bytes());
            out[72..76].copy_from_slice(&bytes.to_le_bytes());
        }
        out
    }

    /// Reads a record. `None`: it is none of this version, or its numbers cannot
    /// be those of a queue pair.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO_BYTES] = bytes.try_into().ok()?;
        let [version, role, mtu, read_depth] = word(bytes, 4).to_le_bytes();
        let role = match role {
            1 => Role::Offer,
            2 => Role::Answer,
            _ => return None,
        };
        let hello = Self {
            role,
            gid: Gid(bytes[8..24].try_into().ok()?),
            token: u64::from_le_bytes(bytes[24..32].try_into().ok()?),
            qpn: word(bytes, 32) & MAX_24,
            psn: word(bytes, 36) & MAX_24,
            lane: bytes[39],
            mtu,
            read_depth,
            table_addr: u64::from_le_bytes(bytes[40..48].try_into().ok()?),
            table_rkey: word(bytes, 48),
            geometry: Geometry::new(word(bytes, 52), word(bytes, 56))?,
            blocks: BlockSize::new(bytes[35])?,
            nonce: word(bytes, 60),
            packets: packets(bytes)?,
        };
        let ours = word(bytes, 0) == MAGIC && version == VERSION;
        let table_fits = hello
            .table_addr
            .checked_add(hello.geometry.bytes())
            .is_some();
        // INVARIANT: just checked.
        let sane = hello.lane < MAX_LANES
            && MTUS.contains(&mtu)
            && read_depth != 0
            && (role == Role::Answer || hello.nonce == 0)
            && !hello.gid.is_zero();
        (ours && sane && table_fits).then_some(hello)
    }
}

/// Reads the queue pair for packets; `None`: its numbers cannot be those of one.
fn packets(bytes: &[u8; HELLO_BYTES]) -> Option<Option<PacketEnd>> {
    let end = PacketEnd {
        qpn: word(bytes, 64),
        psn: word(bytes, 68),
        bytes: word(bytes, 72),
    };
    if (end.qpn, end.psn, end.bytes) == (0, 0, 0) {
        return Some(None);
    }
    let sane = (1..=MAX_24).contains(&end.qpn) && end.psn <= MAX_24 && end.bytes != 0;
    // INVARIANT: just checked.
    sane.then_some(Some(end))
}

fn word(bytes: &[u8; HELLO_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
