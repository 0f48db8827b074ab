// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_strerror`: what an errno means when it comes from Weft.

use nix::errno::Errno;
use std::ffi::{c_char, c_int, CStr};

/// See `weft.h`.
#[no_mangle]
pub extern "C" fn weft_strerror(error: c_int) -> *const c_char {
    meaning(error).as_ptr()
}

/// Verbs answer with errno, some calls with its negative; both are explained.
fn meaning(error: c_int) -> &'static CStr {
    match Errno::from_raw(error.wrapping_abs()) {
        _ if error == 0 => c"no error",
        Errno::ENOENT => c"/dev/weft does not exist: load weft.ko; or the sender of a message is not known any more",
        Errno::ENXIO => c"/dev/weft does not exist: load weft.ko",
        Errno::EACCES => c"/dev/weft may not be opened by this user",
        Errno::EPROTONOSUPPORT | Errno::ENOTTY => c"library and module are of different releases",
        Errno::ENODEV => c"no such node in this network namespace, or the node went away",
        Errno::EINVAL => c"an argument is out of its range, a null pointer or of another device, a struct's size is not set, or the VQP is not of the right kind",
        Errno::EOPNOTSUPP => c"this opcode is not supported; or, of a connection, the RDMA device cannot do RC (the module was loaded with pool=rc)",
        Errno::EMFILE => c"the session or its user has as many objects of this kind, or as many DC streams, as it may have",
        Errno::EFAULT => c"not all of the memory is mapped, or it is read-only",
        Errno::E2BIG => c"a struct has a field that this library does not know: it is of an older release than the program",
        Errno::EBUSY => c"VQPs use it still, a region has memory windows, or a receive queue is in use otherwise",
        Errno::ENOMEM => c"a queue is full, memory is short, or RLIMIT_MEMLOCK is reached",
        Errno::EADDRINUSE => c"another VQP of the node is bound to the port",
        Errno::EBADF => c"the VQP, or the peer, does not exist any more",
        Errno::EISCONN => c"the VQP is connected already",
        Errno::ENOTCONN => c"the VQP is not connected, or is an unconnected one and no peer was named",
        Errno::EHOSTUNREACH => c"no meta server knows this GID",
        Errno::EAGAIN => c"no meta server is connected, and the peer is not cached",
        Errno::ETIMEDOUT => c"the meta server did not answer",
        Errno::EHOSTDOWN => c"the peer did not answer (the module was loaded with pool=rc)",
        Errno::EINTR => c"a signal came before anything was done",
        _ => c"not an error of Weft's own: see errno(3)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_signs_of_an_errno_mean_the_same() {
        assert_eq!(meaning(0), c"no error");
        let errno = Errno::EHOSTUNREACH as c_int;
        assert_eq!(meaning(errno), c"no meta server knows this GID");
        assert_eq!(meaning(-errno), meaning(errno));
        assert_eq!(meaning(c_int::MIN), meaning(9999));
    }
}
