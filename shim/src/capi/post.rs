// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft_post_send`, `weft_post_list`: chains of requests on their way to the module.
//!
//! Chains are converted into a CQ's submission ring one behind the other, as much of them
//! as fits at a time, one system call each. The last one may also wait for completions, and
//! one before it naps if it finds no room. A chain that cannot go on does not hold the others
//! up for longer than the call waits.

use super::completion::Reap;
use super::cq::Cq;
use super::device::Session;
use super::peer::Peer;
use super::queues::{lock, Queues};
use super::send::convert;
use super::verbs::SendWr;
use super::vqp::Vqp;
use super::{deref, status};
use crate::patience::{ns, Patience};
use crate::ring::SendRing;
use nix::errno::Errno;
use std::ffi::c_int;
use std::ptr::{self, addr_of, addr_of_mut};
use std::sync::Arc;
use std::time::Duration;
use weft_core::uapi;

/// `struct weft_post`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "weft.h explains the fields")]
pub struct Post {
    pub vqp: *mut Vqp,
    pub peer: *mut Peer,
    pub wr: *mut SendWr,
    pub bad_wr: *mut SendWr,
    pub error: c_int,
    pub reserved: u32,
}

/// Requests of one VQP, to one peer.
#[derive(Debug)]
pub(super) struct Chain {
    vqp: u32,
    /// Zero: the VQP's only one.
    peer: u32,
    signal_all: bool,
    /// The first request that was not taken; null if all were.
    pub(super) left: *mut SendWr,
    /// Why it was not.
    pub(super) error: Option<Why>,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// There is no room in a queue: completions make some.
    Full,
    /// No completion would change it.
    Errno(Errno),
}

impl Why {
    /// The answer that C gets.
    pub(super) const fn errno(self) -> Errno {
        match self {
            Self::Full => Errno::ENOMEM,
            Self::Errno(errno) => errno,
        }
    }
}

/// Why a batch ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// So do the chains.
    End,
    /// The ring has no more room.
    Full,
    /// The next request is none that can be posted.
    Bad(Errno),
}

pub(super) const NO_WAIT: Reap = Reap {
    room: 0,
    min: 0,
    timeout_ns: 0,
};

/// See `weft.h`.
///
/// # Safety
///
/// `vqp` is null or a VQP, `wr` null or a chain, `bad_wr` null or room for a
/// pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_post_send(
    vqp: *const Vqp,
    wr: *mut SendWr,
    bad_wr: *mut *mut SendWr,
) -> c_int {
    // SAFETY: the caller promises it.
    status(|| unsafe { post(vqp, ptr::null(), wr, bad_wr) })
}

/// See `weft.h`.
///
/// # Safety
///
/// As [`weft_post_send`]; `peer` is null or a peer.
#[no_mangle]
pub unsafe extern "C" fn weft_post_send_to(
    vqp: *const Vqp,
    peer: *const Peer,
    wr: *mut SendWr,
    bad_wr: *mut *mut SendWr,
) -> c_int {
    status(|| {
        if peer.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises it.
        unsafe { post(vqp, peer, wr, bad_wr) }
    })
}

/// # Safety
///
/// As [`weft_post_send_to`].
unsafe fn post(
    vqp: *const Vqp,
    peer: *const Peer,
    wr: *mut SendWr,
    bad_wr: *mut *mut SendWr,
) -> Result<(), Errno> {
    // SAFETY: the caller promises it.
    let vqp = unsafe { deref(vqp) }?;
    if wr.is_null() || bad_wr.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises it.
    let mut chain = unsafe { Chain::new(vqp, peer, wr) };
    // SAFETY: the caller promises a chain.
    let _ = unsafe { post_all(&vqp.cq.queues, std::slice::from_mut(&mut chain), &NO_WAIT) };
    let Some(why) = chain.error else {
        return Ok(());
    };
    // SAFETY: not null, so the caller promises room.
    unsafe { bad_wr.write(chain.left) };
    Err(why.errno())
}

/// See `weft.h`.
///
/// # Safety
///
/// `cq` is null or a CQ, `posts` null or an array of `num_posts`, of which each `vqp` is
/// null or a VQP, `peer` null or a peer, `wr` null or a chain.
#[no_mangle]
pub unsafe extern "C" fn weft_post_list(
    cq: *const Cq,
    posts: *mut Post,
    num_posts: c_int,
) -> c_int {
    status(|| {
        // SAFETY: the caller promises it.
        let queues = &unsafe { deref(cq) }?.queues;
        // SAFETY: as above.
        let mut list = unsafe { List::new(posts, num_posts, queues.session()) }?;
        // SAFETY: as above.
        let _ = unsafe { post_all(queues, &mut list.chains, &NO_WAIT) };
        // SAFETY: as above.
        unsafe { list.answer() };
        list.first_error().map_or(Ok(()), Err)
    })
}

/// The chains of an array of `struct weft_post`.
pub(super) struct List {
    posts: *mut Post,
    pub(super) chains: Vec<Chain>,
}

impl List {
    /// # Safety
    ///
    /// Those of [`weft_post_list`].
    pub(super) unsafe fn new(
        posts: *mut Post,
        num_posts: c_int,
        session: &Arc<Session>,
    ) -> Result<Self, Errno> {
        let count = usize::try_from(num_posts).map_err(|_| Errno::EINVAL)?;
        if posts.is_null() && count > 0 {
            return Err(Errno::EINVAL);
        }
        let chain = |at| {
            // SAFETY: within the array, all of whose inputs are set. The outputs may be
            // uninitialised, and are not looked at.
            let post = unsafe { posts.add(at) };
            // SAFETY: as above.
            let wr = unsafe { addr_of!((*post).wr).read() };
            // SAFETY: as above; the caller promises the VQP.
            let vqp = unsafe { deref(addr_of!((*post).vqp).read()) };
            // SAFETY: as above.
            let peer = unsafe { addr_of!((*post).peer).read() };
            // SAFETY: as above.
            let reserved = unsafe { addr_of!((*post).reserved).read() };
            match vqp {
                Ok(vqp) if Arc::ptr_eq(vqp.session(), session) && reserved == 0 => {
                    // SAFETY: the caller promises the peer.
                    unsafe { Chain::new(vqp, peer, wr) }
                }
                _ => Chain::refused(wr, Errno::EINVAL),
            }
        };
        Ok(Self {
            posts,
            chains: (0..count).map(chain).collect(),
        })
    }

    /// Tells the program what became of each.
    ///
    /// # Safety
    ///
    /// The array is there still.
    pub(super) unsafe fn answer(&self) {
        for (at, chain) in self.chains.iter().enumerate() {
            // SAFETY: within the array.
            let post = unsafe { self.posts.add(at) };
            // SAFETY: as above, and the caller lets it be written.
            unsafe { addr_of_mut!((*post).bad_wr).write(chain.left) };
            let error = chain.error.map_or(0, |why| why.errno() as c_int);
            // SAFETY: as above.
            unsafe { addr_of_mut!((*post).error).write(error) };
        }
    }

    pub(super) fn first_error(&self) -> Option<Errno> {
        let why = self.chains.iter().find_map(|chain| chain.error);
        why.map(Why::errno)
    }

    /// Whether waiting for completions makes sense.
    pub(super) fn may_wait(&self) -> bool {
        may_wait(&self.chains)
    }
}

impl Chain {
    /// A chain on a VQP. If that has no way to the peer, it is refused.
    ///
    /// # Safety
    ///
    /// `peer` is null or a peer.
    pub(super) unsafe fn new(vqp: &Vqp, peer: *const Peer, left: *mut SendWr) -> Self {
        // SAFETY: the caller promises it.
        let peer = match (unsafe { peer.as_ref() }, vqp.is_unconnected) {
            (None, false) => Ok(0),
            (None, true) => Err(Errno::ENOTCONN),
            (Some(peer), true) => peer.number_in(vqp.session()),
            (Some(_), false) => Err(Errno::EINVAL),
        };
        match peer {
            Ok(peer) => Self {
                vqp: vqp.number,
                peer,
                signal_all: vqp.signal_all,
                left,
                error: None,
            },
            Err(errno) => Self::refused(left, errno),
        }
    }

    const fn refused(left: *mut SendWr, errno: Errno) -> Self {
        Self {
            vqp: 0,
            peer: 0,
            signal_all: false,
            left,
            error: Some(Why::Errno(errno)),
        }
    }

    /// Whether there is nothing more to post of it.
    fn is_over(&self) -> bool {
        self.left.is_null() || self.error.is_some()
    }
}

/// Whether waiting for completions makes sense: so far all were posted, or wait for room.
fn may_wait(chains: &[Chain]) -> bool {
    let is_fine = |chain: &Chain| matches!(chain.error, None | Some(Why::Full));
    chains.iter().all(is_fine)
}

/// Submits chains and waits in the last system call, unless one has failed before it; an
/// earlier call naps if it finds no room. Answers whether the wait is over. Each chain says what
/// became of it.
///
/// # Errors
///
/// `EINTR`: a signal ended the wait. Chains that are not over say so too.
///
/// # Safety
///
/// The chains are chains.
pub(super) unsafe fn post_all(
    queues: &Queues,
    chains: &mut [Chain],
    reap: &Reap,
) -> Result<bool, Errno> {
    let enter = |count, min, timeout_ns| queues.enter(count, min, timeout_ns);
    // SAFETY: the caller promises it.
    unsafe { submit(&mut lock(&queues.send), chains, reap, enter) }
}

/// [`post_all`], by `enter`: it is told how many requests are in the ring, how many
/// completions to wait for and how long, and answers how many requests were taken.
///
/// # Safety
///
/// The chains are chains.
unsafe fn submit(
    ring: &mut SendRing,
    chains: &mut [Chain],
    reap: &Reap,
    mut enter: impl FnMut(u32, u32, u64) -> Result<u32, Errno>,
) -> Result<bool, Errno> {
    let mut patience = Patience::new(Duration::from_nanos(reap.timeout_ns));
    if chains.len() > 1 && reap.min > 0 {
        patience.begin();
    }
    let (mut has_waited, mut needs_room) = (false, false);
    loop {
        let may_wait = reap.min > 0 && !has_waited && may_wait(chains);
        let Some(mut turn) = Turn::next(chains) else {
            return Ok(has_waited);
        };
        // SAFETY: the caller promises chains.
        let (count, stop) = unsafe { fill(ring, turn.chains) };
        if count == 0 {
            turn.refused(match stop {
                Stop::Bad(errno) => Why::Errno(errno),
                // A ring without entries.
                Stop::End | Stop::Full => Why::Errno(Errno::EINVAL),
            });
            continue;
        }
        let is_last = may_wait && stop == Stop::End;
        let naps = may_wait && needs_room && !is_last;
        let answer = if is_last {
            enter(count, reap.min, ns(patience.left()))
        } else if naps {
            patience.nap(|nap| enter(count, reap.min, ns(nap)))
        } else {
            enter(count, 0, 0)
        };
        match answer {
            Err(Errno::ENOSPC) | Ok(0) => {
                needs_room = may_wait && !is_last && !patience.is_over();
                if !needs_room {
                    turn.refused(Why::Full);
                    has_waited |= may_wait;
                }
            }
            Ok(taken) => {
                ring.took(taken);
                needs_room &= taken < count && !patience.is_over();
                // SAFETY: the chains have the requests that are in the ring.
                has_waited |= unsafe { turn.took(taken, count, is_last) };
            }
            // Nothing was waited for: the signal's handler has run, go on.
            Err(Errno::EINTR) if !is_last && !naps => {}
            Err(Errno::EINTR) => {
                turn.interrupted();
                return Err(Errno::EINTR);
            }
            Err(errno) => turn.refused(Why::Errno(errno)),
        }
    }
}

/// Chains that one system call submits.
struct Turn<'a> {
    /// From the first one on that is not over; there is one.
    chains: &'a mut [Chain],
}

impl<'a> Turn<'a> {
    /// The next one; `None` if all chains are over.
    fn next(chains: &'a mut [Chain]) -> Option<Self> {
        let first = chains.iter().position(|chain| !chain.is_over())?;
        Some(Self {
            chains: &mut chains[first..],
        })
    }

    /// The first request was not taken.
    fn refused(&mut self, why: Why) {
        self.chains[0].error = Some(why);
    }

    /// A signal has ended the wait: nothing more is taken.
    fn interrupted(&mut self) {
        let open = self.chains.iter_mut().filter(|chain| !chain.is_over());
        open.for_each(|chain| chain.error = Some(Why::Errno(Errno::EINTR)));
    }

    /// So many of `count` requests were taken, in order, by a call that was to wait or was not,
    /// as `waits` says. Answers whether it has waited: that is all, or all that there was room
    /// for. If some are left, the next call says what is wrong, or takes them: a signal ends a
    /// post early, too.
    ///
    /// # Safety
    ///
    /// The chains have `count` requests at least.
    unsafe fn took(&mut self, taken: u32, count: u32, waits: bool) -> bool {
        // SAFETY: no more were taken than there were.
        let begun = unsafe { advance(self.chains, taken) };
        if !waits || taken == count {
            return waits;
        }
        // The VQP of a chain that was begun takes requests: it has no room for more.
        match begun {
            Some(chain) => {
                chain.error = Some(Why::Full);
                true
            }
            None => false,
        }
    }
}

/// Converts requests of chains into the ring, in order; answers with how many.
///
/// # Safety
///
/// The chains are chains.
unsafe fn fill(ring: &mut SendRing, chains: &[Chain]) -> (u32, Stop) {
    let mut count = 0;
    for chain in chains.iter().filter(|chain| !chain.is_over()) {
        let mut wr = chain.left;
        while !wr.is_null() {
            if count as usize == ring.room() {
                return (count, Stop::Full);
            }
            // SAFETY: not null, so it is a request of the chain.
            match unsafe { convert(wr, chain.signal_all) } {
                Ok(raw) => ring.put(
                    count,
                    &uapi::SendWr {
                        vqp: chain.vqp,
                        peer: chain.peer,
                        ..raw
                    },
                ),
                Err(errno) => return (count, Stop::Bad(errno)),
            }
            count += 1;
            // SAFETY: as above.
            wr = unsafe { addr_of!((*wr).next).read() };
        }
    }
    (count, Stop::End)
}

/// The module has taken so many requests of the chains, in order. Answers with the chain
/// of the last of them, if there is more of it.
///
/// # Safety
///
/// The chains that are not over have `count` requests at least.
unsafe fn advance(chains: &mut [Chain], mut count: u32) -> Option<&mut Chain> {
    for chain in chains.iter_mut().filter(|chain| !chain.is_over()) {
        while count > 0 && !chain.left.is_null() {
            // SAFETY: not null, so it is a request of the chain.
            chain.left = unsafe { addr_of!((*chain.left).next).read() };
            count -= 1;
        }
        if count == 0 {
            return Some(chain).filter(|chain| !chain.left.is_null());
        }
    }
    None
}

#[cfg(test)]
mod tests;
