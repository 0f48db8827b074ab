// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system calls of `weft_core::uapi`, one function each, with no policy.
//!
//! A [`Call`] ties a request number to the struct that it carries; the number's
//! own size field proves at compile time that they belong together.

use nix::errno::Errno;
use std::ffi::c_ulong;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use weft_core::uapi::{self, Pod};

/// A request that carries a `T`.
///
/// # Invariants
///
/// The kernel reads and writes no more than a `T` at the argument.
pub(crate) struct Call<T> {
    number: u32,
    carries: PhantomData<fn(&mut T)>,
}

impl<T: Pod> Call<T> {
    const fn new(number: u32) -> Self {
        assert!((number >> 16) as usize & 0x3fff == size_of::<T>());
        // INVARIANT: the module copies as many bytes as the number says.
        Self {
            number,
            carries: PhantomData,
        }
    }
}

/// A struct with no address of other memory in it.
trait Plain: Pod {}

macro_rules! plain_calls {
    ($($(#[$doc:meta])* $name:ident: $number:ident($ty:ident);)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub(crate) fn $name(fd: BorrowedFd<'_>, arg: &mut uapi::$ty) -> Result<(), Errno> {
                const CALL: Call<uapi::$ty> = Call::new(uapi::$number);
                plain(fd, &CALL, arg).map(drop)
            }
        )*
    };
}

impl Plain for uapi::Hello {}
impl Plain for uapi::NodeInfo {}
impl Plain for uapi::RingsCreate {}
impl Plain for uapi::RingsHandle {}
impl Plain for uapi::CqNotify {}
impl Plain for uapi::PeerOpen {}
impl Plain for uapi::PeerHandle {}
impl Plain for uapi::VqpCreate {}
impl Plain for uapi::VqpHandle {}
impl Plain for uapi::QConnect {}
impl Plain for uapi::MwBind {}
impl Plain for uapi::MrDereg {}
impl Plain for uapi::MetaServer {}
impl Plain for uapi::MetaInfo {}
impl Plain for uapi::PoolPin {}
impl Plain for uapi::PoolUse {}
impl Plain for uapi::PoolPeer {}
impl Plain for uapi::Lookup {}
impl Plain for uapi::Enter {}
impl Plain for uapi::QBind {}
impl Plain for uapi::Accept {}

plain_calls! {
    /// Opens the session.
    hello: IOC_HELLO(Hello);
    /// Describes a node.
    node: IOC_NODE(NodeInfo);
    /// Binds a memory window.
    mw_bind: IOC_MW_BIND(MwBind);
    /// Makes rings.
    rings_create: IOC_RINGS_CREATE(RingsCreate);
    /// Destroys rings.
    rings_destroy: IOC_RINGS_DESTROY(RingsHandle);
    /// Has an eventfd signalled for completions.
    cq_notify: IOC_CQ_NOTIFY(CqNotify);
    /// Opens a peer.
    peer_open: IOC_PEER_OPEN(PeerOpen);
    /// Closes a peer.
    peer_close: IOC_PEER_CLOSE(PeerHandle);
    /// Makes a VQP.
    vqp_create: IOC_VQP_CREATE(VqpCreate);
    /// Destroys a VQP.
    vqp_destroy: IOC_VQP_DESTROY(VqpHandle);
    /// Connects a VQP.
    qconnect: IOC_QCONNECT(QConnect);
    /// Deregisters memory.
    mr_dereg: IOC_MR_DEREG(MrDereg);
    /// Adds a meta server.
    meta_add: IOC_META_ADD(MetaServer);
    /// Removes a meta server.
    meta_remove: IOC_META_REMOVE(MetaServer);
    /// Describes a meta server.
    meta: IOC_META(MetaInfo);
    /// Keeps an RC queue pair to a node.
    pool_pin: IOC_POOL_PIN(PoolPin);
    /// No longer keeps one.
    pool_unpin: IOC_POOL_UNPIN(PoolPin);
    /// Chooses what carries requests to a peer.
    pool_use: IOC_POOL_USE(PoolUse);
    /// Describes a peer of the pool.
    pool_peer: IOC_POOL_PEER(PoolPeer);
    /// Looks a node up.
    lookup: IOC_LOOKUP(Lookup);
    /// Binds a VQP to a port.
    qbind: IOC_QBIND(QBind);
    /// Makes a VQP that is connected to a sender.
    accept: IOC_ACCEPT(Accept);
}

/// Does nothing.
pub(crate) fn nop(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    bare(fd, uapi::IOC_NOP)
}

/// Empties the DCCache.
pub(crate) fn dccache_flush(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    bare(fd, uapi::IOC_DCCACHE_FLUSH)
}

/// Registers memory.
///
/// # Safety
///
/// Until it is deregistered, the caller treats the memory at `arg.addr` as
/// written by others at any time.
pub(crate) unsafe fn mr_reg(fd: BorrowedFd<'_>, arg: &mut uapi::MrReg) -> Result<(), Errno> {
    const CALL: Call<uapi::MrReg> = Call::new(uapi::IOC_MR_REG);
    // SAFETY: the only address in it is that of the memory that the caller
    // answers for.
    unsafe { with_addresses(fd, &CALL, arg) }.map(drop)
}

/// Submits the next `wr_count` requests of one set of rings and waits until there are
/// `wc_min` completions in another; answers with how many requests were taken.
#[inline]
pub(crate) fn enter(
    fd: BorrowedFd<'_>,
    (sq, cq): (u32, u32),
    wr_count: u32,
    wc_min: u32,
    timeout_ns: u64,
) -> Result<u32, Errno> {
    const CALL: Call<uapi::Enter> = Call::new(uapi::IOC_ENTER);
    let mut arg = uapi::Enter {
        sq,
        wr_count,
        cq,
        wc_min,
        timeout_ns,
        ..Pod::zeroed()
    };
    Ok(plain(fd, &CALL, &mut arg)?.min(wr_count))
}

/// Carries one request out; answers with its status.
#[inline]
pub(crate) fn run(fd: BorrowedFd<'_>, run: &mut uapi::Run) -> Result<u32, Errno> {
    const CALL: Call<uapi::Run> = Call::new(uapi::IOC_RUN);
    // SAFETY: the module moves bytes of registered memory only, and only as the caller
    // of `mr_reg` expects of memory that others may write.
    unsafe { with_addresses(fd, &CALL, run) }
}

#[inline]
fn plain<T: Plain>(fd: BorrowedFd<'_>, call: &Call<T>, arg: &mut T) -> Result<u32, Errno> {
    // SAFETY: a `Plain` struct has no address in it.
    unsafe { with_addresses(fd, call, arg) }
}

/// Answers with what the system call did, which is a count or 0.
///
/// # Safety
///
/// What the module does to the memory at addresses in `arg` is sound.
#[inline]
unsafe fn with_addresses<T: Pod>(
    fd: BorrowedFd<'_>,
    call: &Call<T>,
    arg: &mut T,
) -> Result<u32, Errno> {
    let arg: *mut T = arg;
    // SAFETY: by the invariant of `Call` the kernel stays within `arg`, any
    // bytes are a valid `T`, and the caller answers for addresses in it.
    let result = unsafe { ioctl_sys::ioctl(fd.as_raw_fd(), c_ulong::from(call.number), arg) };
    // Only -1 is less than 0.
    Errno::result(result).map(|count| count.unsigned_abs())
}

fn bare(fd: BorrowedFd<'_>, number: u32) -> Result<(), Errno> {
    // SAFETY: these requests have no argument.
    let result = unsafe { ioctl_sys::ioctl(fd.as_raw_fd(), c_ulong::from(number)) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioctl_sys::{io, iorw, iow};
    use std::os::fd::AsFd;

    #[test]
    fn the_request_numbers_are_those_of_the_kernels_macros() {
        let w = uapi::IOC_TYPE;
        let expected = [
            (uapi::IOC_NOP, io!(w, 0)),
            (uapi::IOC_HELLO, iorw!(w, 1, 112)),
            (uapi::IOC_NODE, iorw!(w, 2, 128)),
            (uapi::IOC_VQP_CREATE, iorw!(w, 3, 64)),
            (uapi::IOC_VQP_DESTROY, iow!(w, 4, 8)),
            (uapi::IOC_QCONNECT, iow!(w, 5, 32)),
            (uapi::IOC_MR_REG, iorw!(w, 6, 32)),
            (uapi::IOC_MR_DEREG, iow!(w, 7, 8)),
            (uapi::IOC_ENTER, iow!(w, 8, 32)),
            (uapi::IOC_META_ADD, iow!(w, 9, 24)),
            (uapi::IOC_META_REMOVE, iow!(w, 10, 24)),
            (uapi::IOC_META, iorw!(w, 11, 40)),
            (uapi::IOC_DCCACHE_FLUSH, io!(w, 12)),
            (uapi::IOC_LOOKUP, iorw!(w, 13, 64)),
            (uapi::IOC_QBIND, iow!(w, 14, 16)),
            (uapi::IOC_ACCEPT, iorw!(w, 15, 72)),
            (uapi::IOC_POOL_PIN, iow!(w, 16, 24)),
            (uapi::IOC_POOL_UNPIN, iow!(w, 17, 24)),
            (uapi::IOC_RUN, iow!(w, 18, 40)),
            (uapi::IOC_RINGS_CREATE, iorw!(w, 19, 80)),
            (uapi::IOC_CQ_NOTIFY, iow!(w, 23, 24)),
            (uapi::IOC_POOL_USE, iow!(w, 24, 24)),
            (uapi::IOC_POOL_PEER, iorw!(w, 25, 144)),
            (uapi::IOC_MW_BIND, iorw!(w, 26, 32)),
        ];
        for (ours, macros) in expected {
            assert_eq!(ours, macros, "{ours:#x} is {macros:#x}");
        }
    }

    #[test]
    fn a_file_that_is_not_weft_answers_with_an_error() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(nop(null.as_fd()), Err(Errno::ENOTTY));
        assert_eq!(hello(null.as_fd(), &mut Pod::zeroed()), Err(Errno::ENOTTY));
        assert_eq!(enter(null.as_fd(), (0, 0), 0, 0, 0), Err(Errno::ENOTTY));
    }
}
