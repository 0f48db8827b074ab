// SPDX-License-Identifier: GPL-2.0

//! `/dev/weft`: open, ioctl, poll, mmap, release.
//!
//! `kernel::miscdevice` leaves `file_operations.owner` empty, so that the module
//! could be unloaded under an open descriptor. Hence our own table, with the
//! owner set: `rmmod` then says that the module is in use.

use core::cell::UnsafeCell;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::bindings as c;
use kernel::error::{from_result, to_result};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;
use weft_core::uapi::{self, Pod, WcStatus};

use crate::array_vec::room;
use crate::node::Node;
use crate::quota::current_user;
use crate::session::{Session, EPOLLERR};
use crate::sync::Once;
use crate::user::Arg;
use crate::{bindings, errno, meta, node};

const MISC_DYNAMIC_MINOR: i32 = 255;
/// Anybody may open it: sessions protect themselves from one another.
const MODE: u16 = 0o666;

/// One open file.
struct File {
    session: Once<Arc<Session>>,
}

#[allow(
    improper_ctypes,
    reason = "the kernel's own; only its address is taken"
)]
extern "C" {
    /// C's `THIS_MODULE`. The kernel crate's name for it is not the same in
    /// all kernels.
    static __this_module: Opaque<c::module>;
}

/// A table that C reads and nobody writes.
struct Fops(c::file_operations);

// SAFETY: never written.
unsafe impl Sync for Fops {}

static FOPS: Fops = {
    // SAFETY: all its fields may be NULL or zero.
    let zero: c::file_operations = unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
    Fops(c::file_operations {
        // SAFETY: the kernel makes it before it loads us; only its address is taken.
        owner: unsafe { __this_module.get() },
        open: Some(open),
        release: Some(release),
        unlocked_ioctl: Some(ioctl),
        poll: Some(poll),
        mmap: Some(mmap),
        ..zero
    })
};

/// The device's record, which the misc core links into its list.
struct Misc(UnsafeCell<c::miscdevice>);

// SAFETY: written by `Chardev::register` before the misc core knows of it, and by
// the misc core, under its lock, afterwards.
unsafe impl Sync for Misc {}

static MISC: Misc = {
    // SAFETY: all its fields may be NULL or zero.
    Misc(UnsafeCell::new(unsafe {
        core::mem::MaybeUninit::zeroed().assume_init()
    }))
};

/// The registered device.
pub(crate) struct Chardev(());

impl Chardev {
    /// Makes `/dev/weft` appear. Only the module's initialisation does it, once.
    pub(crate) fn register() -> Result<Self> {
        let misc = MISC.0.get();
        // SAFETY: the misc core does not know of it yet, and nobody else writes it.
        unsafe {
            (*misc).minor = MISC_DYNAMIC_MINOR;
            (*misc).name = c"weft".as_char_ptr();
            (*misc).fops = &raw const FOPS.0;
            (*misc).mode = MODE;
        }
        // SAFETY: statics live as long as the module, and `drop` comes before the
        // module goes.
        to_result(unsafe { c::misc_register(misc) })?;
        Ok(Self(()))
    }
}

impl Drop for Chardev {
    fn drop(&mut self) {
        // SAFETY: registered by `register`. No file is open: they hold the module.
        unsafe { c::misc_deregister(MISC.0.get()) };
    }
}

/// # Safety
///
/// Called by C, for a file that is being opened.
unsafe extern "C" fn open(_inode: *mut c::inode, file: *mut c::file) -> i32 {
    from_result(|| {
        let ours = KBox::new(
            File {
                session: Once::new(),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: C gives us a valid file that nobody else has yet.
        unsafe { (*file).private_data = KBox::into_raw(ours).cast() };
        Ok(0)
    })
}

/// # Safety
///
/// Called by C, for a file that [`open`] has opened.
unsafe extern "C" fn release(_inode: *mut c::inode, file: *mut c::file) -> i32 {
    // SAFETY: `open` put it there, and C calls this once, when the last user of
    // the file is gone.
    drop(unsafe { KBox::<File>::from_raw((*file).private_data.cast()) });
    0
}

/// # Safety
///
/// Called by C, for a file that [`open`] has opened.
unsafe extern "C" fn ioctl(file: *mut c::file, request: u32, arg: usize) -> isize {
    if request == uapi::IOC_NOP {
        return 0;
    }
    // SAFETY: `open` put it there, and C holds the file during the call.
    let file = unsafe { &*(*file).private_data.cast::<File>() };
    let mut words = room();
    match dispatch(file, request, &Arg::of(request, arg as u64, &mut words)) {
        Ok(answer) => answer as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// Whether there are completions to take.
///
/// # Safety
///
/// Called by C, for a file that [`open`] has opened.
unsafe extern "C" fn poll(file: *mut c::file, table: *mut c::poll_table_struct) -> u32 {
    // SAFETY: `open` put it there, and C holds the file during the call.
    let ours = unsafe { &*(*file).private_data.cast::<File>() };
    match ours.session.get() {
        // SAFETY: C called us with both, and the file holds the session.
        Some(session) => unsafe { session.poll(file, table) },
        // Nothing can come before HELLO.
        None => EPOLLERR,
    }
}

/// Maps rings.
///
/// # Safety
///
/// Called by C, for a file that [`open`] has opened and a new mapping of it.
unsafe extern "C" fn mmap(file: *mut c::file, vma: *mut c::vm_area_struct) -> i32 {
    // SAFETY: `open` put it there, and C holds the file during the call.
    let file = unsafe { &*(*file).private_data.cast::<File>() };
    from_result(|| {
        let session = file.session.get().ok_or_else(errno::proto)?;
        // SAFETY: C's mapping is valid during the call.
        let page = unsafe { (*vma).vm_pgoff };
        let offset = page.checked_mul(kernel::page::PAGE_SIZE).ok_or(EINVAL)?;
        let queues = session.queues_at(offset as u64)?;
        // SAFETY: C called us with it.
        unsafe { queues.rings().map(vma) }.map(|()| 0)
    })
}

/// The system call's return value: a number for [`uapi::IOC_ENTER`] and [`uapi::IOC_RUN`],
/// else 0.
///
/// The functions that it calls are not inlined: together they would take kilobytes of stack, which
/// `qconnect` would have to step over to pages that nobody else touches.
fn dispatch(file: &File, request: u32, arg: &Arg<'_>) -> Result<u32> {
    // Before the rest: what the fast paths cost is what counts here.
    let Some(session) = file.session.get() else {
        return first(file, request, arg).map(|()| 0);
    };
    match request {
        uapi::IOC_QCONNECT => session.connect(arg.get()?).map(|()| 0),
        uapi::IOC_RUN => run(session, arg).map(|status| status as u32),
        uapi::IOC_ENTER => enter(session, arg),
        _ => manage(session, request, arg).map(|()| 0),
    }
}

/// Requests for what a session owns.
#[inline(never)]
fn manage(session: &Session, request: u32, arg: &Arg<'_>) -> Result {
    match request {
        uapi::IOC_HELLO => Err(errno::already()),
        uapi::IOC_VQP_CREATE => {
            let mut request: uapi::VqpCreate = *arg.get()?;
            session.create_vqp(&mut request)?;
            arg.answer(&request)
                .or_else(|error| session.destroy_vqp(request.vqp).and(Err(error)))
        }
        uapi::IOC_RINGS_CREATE => {
            let mut request: uapi::RingsCreate = *arg.get()?;
            session.create_rings(&mut request)?;
            arg.answer(&request)
                .or_else(|error| session.uncreate_rings(&request).and(Err(error)))
        }
        uapi::IOC_RINGS_DESTROY => {
            let request: &uapi::RingsHandle = arg.get()?;
            zeroes(request.reserved == 0)?;
            session.destroy_rings(request.rings)
        }
        uapi::IOC_CQ_NOTIFY => session.notify(arg.get()?),
        uapi::IOC_PEER_OPEN => {
            let mut request: uapi::PeerOpen = *arg.get()?;
            session.open(&mut request)?;
            arg.answer(&request)
                .or_else(|error| session.close(request.peer).and(Err(error)))
        }
        uapi::IOC_PEER_CLOSE => {
            let request: &uapi::PeerHandle = arg.get()?;
            zeroes(request.reserved == 0)?;
            session.close(request.peer)
        }
        uapi::IOC_QBIND => session.bind(arg.get()?),
        uapi::IOC_ACCEPT => {
            let mut request: uapi::Accept = *arg.get()?;
            session.accept(&mut request)?;
            arg.answer(&request)
                .or_else(|error| session.destroy_vqp(request.vqp.vqp).and(Err(error)))
        }
        uapi::IOC_VQP_DESTROY => {
            let request: &uapi::VqpHandle = arg.get()?;
            zeroes(request.reserved == 0)?;
            session.destroy_vqp(request.vqp)
        }
        uapi::IOC_MR_REG => {
            let mut request: uapi::MrReg = *arg.get()?;
            request.lkey = session.register(&request)?;
            request.rkey = request.lkey;
            arg.answer(&request)
                .or_else(|error| session.deregister(request.lkey).and(Err(error)))
        }
        uapi::IOC_MW_BIND => {
            let mut request: uapi::MwBind = *arg.get()?;
            request.rkey = session.bind_window(&request)?;
            arg.answer(&request)
                .or_else(|error| session.deregister(request.rkey).and(Err(error)))
        }
        uapi::IOC_MR_DEREG => {
            let request: &uapi::MrDereg = arg.get()?;
            zeroes(request.reserved == 0)?;
            session.deregister(request.lkey)
        }
        _ => administer(session, request, arg),
    }
}

/// Requests off the paths that count.
#[inline(never)]
fn administer(session: &Session, request: u32, arg: &Arg<'_>) -> Result {
    match request {
        uapi::IOC_NODE => {
            let index = arg.get::<uapi::NodeInfo>()?.index;
            arg.answer(&visible_node(index)?.info(index))
        }
        uapi::IOC_META => {
            let index = arg.get::<uapi::MetaInfo>()?.index;
            arg.answer(&session.node().meta_info(index)?)
        }
        uapi::IOC_LOOKUP => {
            let mut request: uapi::Lookup = *arg.get()?;
            zeroes(request.reserved == [0; 4])?;
            session.node().look_up(&mut request)?;
            arg.answer(&request)
        }
        uapi::IOC_META_ADD => {
            let server = *arg.get()?;
            privileged().and_then(|()| meta::add(server))
        }
        uapi::IOC_META_REMOVE => {
            let server: &uapi::MetaServer = arg.get()?;
            zeroes(server.reserved == [0; 3])?;
            privileged().and_then(|()| meta::remove(*server))
        }
        uapi::IOC_POOL_PIN => {
            let request: &uapi::PoolPin = arg.get()?;
            zeroes(request.reserved == 0)?;
            privileged().and_then(|()| session.node().pool().pin(&request.gid))
        }
        uapi::IOC_POOL_UNPIN => {
            let request: &uapi::PoolPin = arg.get()?;
            zeroes(request.reserved == 0)?;
            privileged().and_then(|()| session.node().pool().unpin(&request.gid))
        }
        uapi::IOC_POOL_USE => {
            let request: &uapi::PoolUse = arg.get()?;
            zeroes(request.reserved == 0)?;
            privileged().and_then(|()| session.node().pool().prefer(request))
        }
        uapi::IOC_POOL_PEER => {
            // It tells of all users' traffic.
            privileged()?;
            let index = arg.get::<uapi::PoolPeer>()?.index;
            arg.answer(&session.node().pool().info(index)?)
        }
        uapi::IOC_DCCACHE_FLUSH => privileged().map(|()| session.node().dccache().flush()),
        _ => Err(ENOTTY),
    }
}

/// A request before the session has begun.
#[inline(never)]
fn first(file: &File, request: u32, arg: &Arg<'_>) -> Result {
    match request {
        uapi::IOC_HELLO => hello(file, arg),
        // Of another version it may be longer or shorter.
        other if is_hello(other) => Err(errno::proto_no_support()),
        known if is_known(known) => Err(errno::proto()),
        _ => Err(ENOTTY),
    }
}

/// Whether it is [`uapi::IOC_HELLO`], but for its length.
fn is_hello(request: u32) -> bool {
    const LENGTH: u32 = 0x3fff << 16;
    request & !LENGTH == uapi::IOC_HELLO & !LENGTH
}

/// Whether it is a request that needs a session.
fn is_known(request: u32) -> bool {
    matches!(
        request,
        uapi::IOC_QCONNECT
            | uapi::IOC_ENTER
            | uapi::IOC_VQP_CREATE
            | uapi::IOC_VQP_DESTROY
            | uapi::IOC_MR_REG
            | uapi::IOC_MR_DEREG
            | uapi::IOC_MW_BIND
            | uapi::IOC_NODE
            | uapi::IOC_META
            | uapi::IOC_LOOKUP
            | uapi::IOC_META_ADD
            | uapi::IOC_META_REMOVE
            | uapi::IOC_DCCACHE_FLUSH
            | uapi::IOC_QBIND
            | uapi::IOC_ACCEPT
            | uapi::IOC_POOL_PIN
            | uapi::IOC_POOL_UNPIN
            | uapi::IOC_POOL_USE
            | uapi::IOC_POOL_PEER
            | uapi::IOC_RUN
            | uapi::IOC_RINGS_CREATE
            | uapi::IOC_RINGS_DESTROY
            | uapi::IOC_PEER_OPEN
            | uapi::IOC_PEER_CLOSE
            | uapi::IOC_CQ_NOTIFY
    )
}

/// Fields that must be zero are not: a later version may mean something by them.
fn zeroes(all: bool) -> Result {
    if all {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// Whether the caller may know of a node and use it: otherwise a container could use
/// the host's network.
fn is_visible(node: &Node) -> bool {
    node.is_in_callers_netns() || privileged().is_ok()
}

/// The node with this index, if the caller may know of it.
fn visible_node(index: u32) -> Result<Arc<Node>> {
    let node = node::get(index)?;
    if is_visible(&node) {
        Ok(node)
    } else {
        Err(ENODEV)
    }
}

/// How many nodes the caller may know of. It is asked for its right once, not for each
/// node.
fn count_visible() -> usize {
    let (near, all) = (
        node::count(Node::is_in_callers_netns),
        node::count(|_| true),
    );
    if near < all && privileged().is_ok() {
        all
    } else {
        near
    }
}

fn privileged() -> Result {
    // SAFETY: called from a system call, so that there is a current task.
    if unsafe { bindings::weft_net_admin() } {
        Ok(())
    } else {
        Err(EPERM)
    }
}

#[inline(never)]
fn hello(file: &File, arg: &Arg<'_>) -> Result {
    let mut request: uapi::Hello = *arg.get()?;
    if request.abi_version != uapi::ABI_VERSION {
        return Err(errno::proto_no_support());
    }
    if request.reserved != 0 {
        return Err(EINVAL);
    }
    let (index, node) = match request.node {
        uapi::NODE_ANY => node::of_caller()?,
        index => (index, visible_node(index)?),
    };
    // Before the rest, which it goes on beside.
    node.look_up_ahead(&request.peer);
    request.node = index;
    request.node_count = count_visible() as u32;
    let session = Session::new(node, current_user())?;
    if request.rings != Pod::zeroed() {
        session.create_rings(&mut request.rings)?;
    }
    // Written first: a session that the caller does not hear of must not be.
    arg.answer(&request)?;
    if file.session.set(session) {
        Ok(())
    } else {
        Err(errno::already())
    }
}

#[inline(never)]
fn enter(session: &Session, arg: &Arg<'_>) -> Result<u32> {
    let request: &uapi::Enter = arg.get()?;
    zeroes(request.reserved == 0)?;
    session.enter(request)
}

fn run(session: &Session, arg: &Arg<'_>) -> Result<WcStatus> {
    let request: &uapi::Run = arg.get()?;
    if request.reserved != 0 {
        return Err(EINVAL);
    }
    session.vqp(request.vqp)?.run(request)
}
