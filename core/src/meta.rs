// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Node records and the two messages between a node and a meta server.
//!
//! A record says how to reach a node's DC target (krcore §4.2): a DC target
//! number and a DC key, 12 bytes, as in the paper, then the node's incarnation
//! and the UDP port of its software transport. Meta servers keep records in a
//! [`crate::kv`] table under the node's GID; nodes READ it.
//!
//! A node connects to a meta server by rdma_cm. The server's reply carries a
//! [`Welcome`] as private data: where its table is. The node then SENDs a
//! [`Publication`] and knows that it took effect by looking itself up.
//!
//! The request for a connection, and requests on it, can be forged by whoever can send
//! a UDP packet: nothing in RoCE is secret. So the reply carries a random token, which
//! each publication repeats. Only who has received the reply, at the address that the
//! connection is from, can publish for that address.

use crate::dc::wire::Destination;
use crate::gid::Gid;
use crate::kv;

/// rdma_cm port of a meta server, unless said otherwise.
pub const DEFAULT_PORT: u16 = 7471;

/// How to reach a node's DC target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The DC target's number.
    pub dct_number: u32,
    /// The DC target's key.
    pub dct_key: u64,
    /// Drawn anew each time the node starts.
    pub incarnation: u32,
    /// UDP port of the software DC transport.
    pub udp_port: u16,
}

impl Record {
    /// The target as its packets name it.
    #[must_use]
    pub const fn destination(&self) -> Destination {
        Destination {
            dct_number: self.dct_number,
            dct_key: self.dct_key,
            incarnation: self.incarnation,
        }
    }

    /// The record as a table value.
    #[must_use]
    pub fn to_value(self) -> kv::Value {
        let mut value = [0; kv::VALUE_BYTES];
        value[..4].copy_from_slice(&self.dct_number.to_le_bytes());
        value[4..12].copy_from_slice(&self.dct_key.to_le_bytes());
        value[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        value[16..18].copy_from_slice(&self.udp_port.to_le_bytes());
        value
    }

    /// The record in a table value.
    #[must_use]
    pub fn from_value(value: &kv::Value) -> Self {
        Self {
            dct_number: le_u32(value, 0),
            dct_key: le_u64(value, 4),
            incarnation: le_u32(value, 12),
            udp_port: u16::from_le_bytes([value[16], value[17]]),
        }
    }
}

/// A meta server's answer to a connection: where its table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Address of the table's first byte in the server's memory.
    pub table_addr: u64,
    /// Remote key of the table.
    pub table_rkey: u32,
    /// Shape of the table.
    pub geometry: kv::Geometry,
    /// Random; the publications on this connection repeat it.
    pub token: u64,
}

/// Bytes of an encoded [`Welcome`]; fits rdma_cm's private data.
pub const WELCOME_BYTES: usize = 40;
const WELCOME_MAGIC: u32 = u32::from_le_bytes(*b"WFTm");
/// Version of the messages and of the table's layout.
const META_VERSION: u32 = 2;

impl Welcome {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut out = [0; WELCOME_BYTES];
        out[..4].copy_from_slice(&WELCOME_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&META_VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.table_addr.to_le_bytes());
        out[16..20].copy_from_slice(&self.table_rkey.to_le_bytes());
        out[20..24].copy_from_slice(&self.geometry.main_buckets().to_le_bytes());
        out[24..28].copy_from_slice(&self.geometry.total_buckets().to_le_bytes());
        out[32..40].copy_from_slice(&self.token.to_le_bytes());
        out
    }

    /// Reads private data, which rdma_cm may have padded. `None`: whoever
    /// answered is not a meta server of this version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; WELCOME_BYTES] = bytes.get(..WELCOME_BYTES)?.try_into().ok()?;
        if le_u32(bytes, 0) != WELCOME_MAGIC || le_u32(bytes, 4) != META_VERSION {
            return None;
        }
        Some(Self {
            table_addr: le_u64(bytes, 8),
            table_rkey: le_u32(bytes, 16),
            geometry: kv::Geometry::new(le_u32(bytes, 20), le_u32(bytes, 24))?,
            token: le_u64(bytes, 32),
        })
    }
}

/// What a node tells a meta server about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The node's record, new or changed.
    Publish(Gid, Record),
    /// The node of this incarnation stops; a newer one's record stays.
    Withdraw(Gid, u32),
}

/// Bytes of an encoded [`Publication`].
pub const PUBLICATION_BYTES: usize = 56;
const PUBLICATION_MAGIC: u32 = u32::from_le_bytes(*b"WFTp");
const PUBLISH: u32 = 1;
const WITHDRAW: u32 = 2;

impl Publication {
    /// The message as bytes, for the connection whose [`Welcome`] had this token.
    #[must_use]
    pub fn encode(&self, token: u64) -> [u8; PUBLICATION_BYTES] {
        let mut out = [0; PUBLICATION_BYTES];
        out[..4].copy_from_slice(&PUBLICATION_MAGIC.to_le_bytes());
        match self {
            Self::Publish(gid, record) => {
                out[4..8].copy_from_slice(&PUBLISH.to_le_bytes());
                out[8..24].copy_from_slice(&gid.0);
                out[24..24 + kv::VALUE_BYTES].copy_from_slice(&record.to_value());
            }
            Self::Withdraw(gid, incarnation) => {
                out[4..8].copy_from_slice(&WITHDRAW.to_le_bytes());
                out[8..24].copy_from_slice(&gid.0);
                out[36..40].copy_from_slice(&incarnation.to_le_bytes());
            }
        }
        out[48..56].copy_from_slice(&token.to_le_bytes());
        out
    }

    /// Reads a message and the token that it repeats. `None`: it is malformed or names
    /// the zero GID.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, u64)> {
        let bytes: &[u8; PUBLICATION_BYTES] = bytes.try_into().ok()?;
        let gid = Gid(bytes[8..24].try_into().ok()?);
        if le_u32(bytes, 0) != PUBLICATION_MAGIC || gid.is_zero() {
            return None;
        }
        let value: kv::Value = bytes[24..24 + kv::VALUE_BYTES].try_into().ok()?;
        let record = Record::from_value(&value);
        let publication = match le_u32(bytes, 4) {
            PUBLISH => Self::Publish(gid, record),
            WITHDRAW => Self::Withdraw(gid, record.incarnation),
            _ => return None,
        };
        Some((publication, le_u64(bytes, 48)))
    }
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(all(test, not(loom)))]
mod tests;
