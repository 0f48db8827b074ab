// SPDX-License-Identifier: MIT OR Apache-2.0

//! Socket addresses as the C library lays them out.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::sys;

/// A socket address in memory that C may read.
pub(crate) enum RawAddr {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for RawAddr {
    fn from(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(v4) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

impl RawAddr {
    /// For a C call that takes a `struct sockaddr *` and reads as much of it as
    /// its family says.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut sys::sockaddr {
        match self {
            Self::V4(v4) => std::ptr::from_mut(v4).cast(),
            Self::V6(v6) => std::ptr::from_mut(v6).cast(),
        }
    }
}

/// The IP address and port in a `sockaddr_storage`, if it holds them.
pub(crate) fn address_of(storage: &sys::sockaddr_storage) -> Option<SocketAddr> {
    let first = std::ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: `sockaddr_storage` is large enough and aligned for every
            // address, any bytes of it are a valid `sockaddr_in`.
            let v4 = unsafe { first.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for `sockaddr_in6`.
            let v6 = unsafe { first.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            let (flow, scope) = (v6.sin6_flowinfo, v6.sin6_scope_id);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_c_library() {
        for text in ["10.77.0.1:7471", "[fe80::1]:7471"] {
            let addr: SocketAddr = text.parse().unwrap();
            let mut raw = RawAddr::from(addr);
            let mut storage = sys::sockaddr_storage::default();
            let bytes = match raw {
                RawAddr::V4(_) => size_of::<libc::sockaddr_in>(),
                RawAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
            };
            // SAFETY: both are at least `bytes` long and do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    raw.as_mut_ptr().cast::<u8>(),
                    std::ptr::from_mut(&mut storage).cast::<u8>(),
                    bytes,
                );
            }
            assert_eq!(address_of(&storage), Some(addr));
        }
    }
}
