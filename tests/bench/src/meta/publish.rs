// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fills the meta server with records of nodes that do not exist, as the nodes
//! themselves would.

use std::net::SocketAddr;

use anyhow::{ensure, Result};
use weft_core::gid::Gid;
use weft_core::kv::SLOTS_PER_BUCKET;
use weft_core::meta::{Publication, Record};
use weft_testkit::meta_client::MetaClient;

/// Marks these records' incarnation.
const INCARNATION: u32 = 0xbe4c;

/// The `n`th node that does not exist: an address that nobody is given
/// (RFC 4193, with a prefix that says what it is for).
pub fn gid_of(n: u32) -> Gid {
    let mut gid = *b"\xfdweftbench\0\0\0\0\0\0";
    gid[12..].copy_from_slice(&n.to_be_bytes());
    Gid(gid)
}

/// Publishes them, and withdraws them again.
pub struct Publisher(MetaClient);

impl Publisher {
    /// Connects to the meta server.
    pub fn connect(server: SocketAddr) -> Result<Self> {
        Ok(Self(MetaClient::connect_as_node(server)?))
    }

    /// Publishes the first `records` nodes.
    pub fn publish(&mut self, records: u32) -> Result<()> {
        let buckets = u64::from(self.0.welcome().geometry.total_buckets());
        let slots = buckets * SLOTS_PER_BUCKET as u64;
        ensure!(
            u64::from(records) <= slots,
            "--records {records}: the server's table has {slots} slots in all; \
             start weft-meta with a larger --capacity"
        );
        (0..records).try_for_each(|n| {
            let record = Record {
                dct_number: n,
                dct_key: u64::from(n),
                incarnation: INCARNATION,
                udp_port: 1,
            };
            self.0.send(&Publication::Publish(gid_of(n), record))
        })
    }

    /// Withdraws them.
    pub fn withdraw(&mut self, records: u32) -> Result<()> {
        (0..records).try_for_each(|n| self.0.send(&Publication::Withdraw(gid_of(n), INCARNATION)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_records_share_an_address() {
        assert_ne!(gid_of(0), gid_of(1));
        assert_ne!(gid_of(1), gid_of(1 << 24));
    }
}
