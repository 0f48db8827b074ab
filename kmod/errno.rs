// SPDX-License-Identifier: GPL-2.0

//! The error numbers that the kernel crate does not name, with the meaning that
//! `weft_core::uapi` documents.

use kernel::error::Error;

macro_rules! errno {
    ($($(#[$meta:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$meta])* pub(crate) fn $name() -> Error { Error::from_errno(-$number) })*
    };
}

errno! {
    /// The session has not said hello.
    proto = 71;
    /// Another ABI version.
    proto_no_support = 93;
    /// The RDMA device cannot do it.
    not_supported = 95;
    /// The port has a receiver already.
    addr_in_use = 98;
    /// The port is bound to any address already.
    addr_not_avail = 99;
    /// The VQP is connected already.
    is_conn = 106;
    /// The VQP is not connected.
    not_conn = 107;
    /// The peer has not answered.
    host_down = 112;
    /// No meta server knows the peer.
    host_unreach = 113;
    /// Said before.
    already = 114;
}
