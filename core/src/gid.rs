// SPDX-License-Identifier: GPL-2.0 OR MIT

//! GIDs: the addresses by which nodes know one another.
//!
//! A GID is 16 bytes, written like an IPv6 address. On RoCE v2 it is the port's
//! IP address; IPv4 ones are mapped (`::ffff:10.0.0.1`).

use core::fmt;
use core::str::FromStr;

/// The address of a node: an RDMA port's GID in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Gid(pub [u8; 16]);

/// The text is neither an IPv4 nor an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadGid;

impl fmt::Display for BadGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a GID: write it as an IPv6 or IPv4 address, such as ::ffff:10.0.0.1 or 10.0.0.1",
        )
    }
}

impl core::error::Error for BadGid {}

impl Gid {
    /// The GID of a RoCE v2 port with this IPv4 address.
    #[must_use]
    pub const fn from_ipv4(addr: [u8; 4]) -> Self {
        let [a, b, c, d] = addr;
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// The IPv4 address that this GID maps, if it maps one.
    #[must_use]
    pub fn to_ipv4(self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// Whether this is the all-zero GID, which names nobody.
    #[must_use]
    #[inline]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&core::net::Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<core::net::IpAddr> for Gid {
    /// The GID of a RoCE v2 port with this address.
    fn from(addr: core::net::IpAddr) -> Self {
        match addr {
            core::net::IpAddr::V4(v4) => Self::from_ipv4(v4.octets()),
            core::net::IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl FromStr for Gid {
    type Err = BadGid;

    fn from_str(text: &str) -> Result<Self, BadGid> {
        let addr: core::net::IpAddr = text.parse().map_err(|_| BadGid)?;
        Ok(addr.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_mapped_and_found_again() {
        let gid: Gid = "10.1.2.3".parse().unwrap();
        assert_eq!(gid.to_string(), "::ffff:10.1.2.3");
        assert_eq!(gid.to_ipv4(), Some([10, 1, 2, 3]));
        assert_eq!(gid.to_string().parse(), Ok(gid));
    }

    #[test]
    fn a_link_local_gid_maps_no_ipv4_address() {
        let gid: Gid = "fe80::1".parse().unwrap();
        assert_eq!(gid.to_ipv4(), None);
        assert!(!gid.is_zero());
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        assert_eq!("weft".parse::<Gid>(), Err(BadGid));
    }
}
