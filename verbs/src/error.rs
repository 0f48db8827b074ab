// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong, and what to do about it.
//!
//! libibverbs answers in three ways (a null pointer, an errno value, -1 with
//! `errno` set); they become one type here.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use weft_core::gid::Gid;

/// Why a call of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of libibverbs or librdmacm failed.
    #[error("{call}: {reason}{}", hint(call, reason))]
    Call {
        /// The call, as in its manual page.
        call: &'static str,
        /// Why.
        reason: io::Error,
    },
    /// The host has no RDMA device, or this process may not see it.
    #[error(
        "no RDMA device is visible here. See what there is with `rdma link`; load the NIC's \
         driver, or make a soft-RoCE device with `rdma link add rxe0 type rxe netdev IFACE`"
    )]
    NoDevice,
    /// The host has no RDMA device of this name.
    #[error("no RDMA device is called {0}: `rdma link` lists those that there are")]
    NoSuchDevice(String),
    /// The device's ports do not have this GID.
    #[error("the RDMA device {1} has no GID {0}: is the address on its interface (`ip address`)?")]
    NoSuchGid(Gid, String),
    /// No RDMA device of the host has this GID.
    #[error(
        "no RDMA device here has the GID {0}: is that an address of this host (`ip address`), on \
         an interface with an RDMA device (`rdma link`)?"
    )]
    NoDeviceHasGid(Gid),
    /// A port says nothing sensible about its MTU.
    #[error("port {1} of the RDMA device {0} has no MTU: is its interface there (`rdma link`)?")]
    NoMtu(String, u8),
    /// A message from a peer was not an [`Endpoint`](crate::Endpoint).
    #[error("the peer sent something other than its queue pair's address")]
    BadEndpoint,
    /// More pages than an address space holds.
    #[error("{0} bytes are too many to allocate")]
    TooLarge(usize),
}

impl Error {
    /// The errno value, if a system call set one.
    #[must_use]
    pub fn errno(&self) -> Option<c_int> {
        match self {
            Self::Call { reason, .. } => reason.raw_os_error(),
            _ => None,
        }
    }

    /// What `errno` says about `call`, which has just failed.
    pub(crate) fn last(call: &'static str) -> Self {
        let reason = io::Error::last_os_error();
        Self::Call { call, reason }
    }
}

fn hint(call: &str, reason: &io::Error) -> &'static str {
    match (call, reason.raw_os_error()) {
        ("rdma_create_event_channel", Some(libc::ENOENT | libc::ENODEV | libc::ENXIO)) => {
            " (is there a /dev/infiniband/rdma_cm? `modprobe rdma_ucm` makes it)"
        }
        // The kernel says the same of a port that is taken on all addresses.
        ("rdma_bind_addr", Some(libc::EADDRNOTAVAIL)) => {
            " (no interface here has this address, or another program listens on this port: \
             stop it or choose another)"
        }
        ("rdma_bind_addr", Some(libc::ENODEV)) => {
            " (the address is not that of an RDMA device: see `rdma link` and `ip address`)"
        }
        ("rdma_bind_addr" | "rdma_listen", Some(libc::EADDRINUSE)) => {
            " (another program listens there: stop it or choose another port)"
        }
        ("ibv_reg_mr", Some(libc::ENOMEM)) => " (is RLIMIT_MEMLOCK, `ulimit -l`, large enough?)",
        (_, Some(libc::EACCES | libc::EPERM)) => " (the permissions of /dev/infiniband forbid it)",
        _ => "",
    }
}

/// The object that `call` made, or why it made none.
pub(crate) fn made<T>(call: &'static str, raw: *mut T) -> crate::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(|| Error::last(call))
}

/// Whether `call`, which answers 0, an errno value or -1, did its work.
pub(crate) fn done(call: &'static str, answer: c_int) -> crate::Result<()> {
    match answer {
        0 => Ok(()),
        errno if errno > 0 => Err(Error::Call {
            call,
            reason: io::Error::from_raw_os_error(errno),
        }),
        _ => Err(Error::last(call)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_that_is_returned_and_one_that_is_set_read_alike() {
        let returned = done("ibv_reg_mr", libc::ENOMEM).unwrap_err();
        assert_eq!(returned.errno(), Some(libc::ENOMEM));
        assert!(returned.to_string().contains("RLIMIT_MEMLOCK"));
        assert!(done("ibv_reg_mr", 0).is_ok());
    }

    #[test]
    fn a_busy_address_says_what_to_do() {
        let busy = done("rdma_bind_addr", libc::EADDRINUSE).unwrap_err();
        assert!(busy.to_string().contains("choose another port"));
    }
}
