// SPDX-License-Identifier: MIT OR Apache-2.0

//! What one queue pair has to know of the other to connect.

use weft_core::gid::Gid;

use crate::{Error, PathMtu, Result};

/// Queue pair numbers have 24 bits.
const QP_NUM_MASK: u32 = 0xff_ffff;
/// So have packet sequence numbers.
pub(crate) const PSN_MASK: u32 = 0xff_ffff;

/// A queue pair's address, for the peer to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) gid: Gid,
    pub(crate) qp_num: u32,
    pub(crate) psn: u32,
    pub(crate) mtu: PathMtu,
}

impl Endpoint {
    /// Bytes of an encoded endpoint.
    pub const BYTES: usize = 24;

    /// The endpoint as bytes, for whatever connection the peers have already.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.gid.0);
        bytes[16..20].copy_from_slice(&self.qp_num.to_le_bytes());
        bytes[20..23].copy_from_slice(&self.psn.to_le_bytes()[..3]);
        bytes[23] = self.mtu.number();
        bytes
    }

    /// Reads what [`Endpoint::encode`] wrote.
    ///
    /// # Errors
    ///
    /// [`Error::BadEndpoint`]: it has no GID or MTU, or a number out of range.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        let [gid @ .., a, b, c, d, e, f, g, mtu] = *bytes;
        let (qp_num, psn) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, 0]),
        );
        let mtu = PathMtu::from_number(mtu.into()).ok_or(Error::BadEndpoint)?;
        if Gid(gid).is_zero() || qp_num > QP_NUM_MASK {
            return Err(Error::BadEndpoint);
        }
        Ok(Self {
            gid: Gid(gid),
            qp_num,
            psn,
            mtu,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_survives_its_bytes() {
        let endpoint = Endpoint {
            gid: Gid::from_ipv4([10, 77, 0, 2]),
            qp_num: 17,
            psn: 0xab_cdef,
            mtu: PathMtu::from_number(5).unwrap(),
        };
        assert_eq!(Endpoint::decode(&endpoint.encode()).unwrap(), endpoint);
    }

    #[test]
    fn noise_is_no_endpoint() {
        assert!(matches!(
            Endpoint::decode(&[0; 24]),
            Err(Error::BadEndpoint)
        ));
        assert!(matches!(
            Endpoint::decode(&[0xff; 24]),
            Err(Error::BadEndpoint)
        ));
    }
}
