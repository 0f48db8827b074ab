// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a client has to know of the peer's memory.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weft_shim::Remote;

/// Memory that a client may READ and WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    pub addr: u64,
    pub rkey: u32,
}

impl Region {
    /// Bytes of an encoded region.
    pub const BYTES: usize = 12;

    /// The region as bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..].copy_from_slice(&self.rkey.to_le_bytes());
        bytes
    }

    /// Reads what [`Region::encode`] wrote, which may be followed by padding.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes = bytes
            .first_chunk::<{ Self::BYTES }>()
            .context("the peer did not say where its memory is")?;
        let [a, b, c, d, e, f, g, h, rkey @ ..] = *bytes;
        Ok(Self {
            addr: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_le_bytes(rkey),
        })
    }
}

impl From<Remote> for Region {
    fn from(remote: Remote) -> Self {
        Self {
            addr: remote.addr,
            rkey: remote.rkey,
        }
    }
}

impl From<Region> for Remote {
    fn from(region: Region) -> Self {
        Self {
            addr: region.addr,
            rkey: region.rkey,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_survives_its_bytes_and_their_padding() {
        let region = Region {
            addr: 0x7f00_1234_5678_9abc,
            rkey: 0xfeed,
        };
        let mut bytes = region.encode().to_vec();
        bytes.resize(196, 0);
        assert_eq!(Region::decode(&bytes).unwrap(), region);
        assert!(Region::decode(&bytes[..11]).is_err());
    }
}
