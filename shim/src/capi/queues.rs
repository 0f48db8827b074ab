// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rings that CQs, SRQs and VQPs with queues of their own are made of.
//!
//! Each ring has a lock, and no thread holds two of them.

use super::device::Session;
use crate::ioctl;
use crate::ring::{CompletionRing, Mapping, RecvRing, Rings, SendRing};
use nix::errno::Errno;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_core::uapi::{self, Pod};

/// One set of rings. They are destroyed on drop, which is after their VQPs.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) send: Mutex<SendRing>,
    pub(super) done: Mutex<Completions>,
    pub(super) recv: Mutex<RecvRing>,
    handle: RingsHandle,
}

/// Completions as programs see them: without those of VQPs that were destroyed.
#[derive(Debug)]
pub(super) struct Completions {
    ring: CompletionRing,
    /// VQPs that have, or had, a receive queue to themselves, with this CQ.
    receivers: HashMap<u32, Receiver>,
}

/// A VQP that has a receive queue to itself. Each buffer that the module takes off the queue
/// comes back once, however late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// It is there, and so many buffers have come back (free-running).
    Alive { returned: u32 },
    /// It was destroyed while messages were half there. Their buffers, so many, but not none, are
    /// still to come back.
    Ghost { pending: u32 },
}

/// Rings, destroyed on drop.
#[derive(Debug)]
struct RingsHandle {
    session: Arc<Session>,
    number: u32,
}

/// How many entries rings are to have; one of none is not there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) max_send_wr: u32,
    pub(super) max_wc: u32,
    pub(super) max_recv_wr: u32,
}

/// Requests that one system call submits by way of a CQ.
const MAX_SUBMIT: u32 = 128;

impl Sizes {
    /// Those of a CQ for so many completions.
    pub(super) fn of_cq(cqe: c_int) -> Result<Self, Errno> {
        let max_wc = u32::try_from(cqe).map_err(|_| Errno::EINVAL)?;
        if max_wc == 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            max_send_wr: max_wc.min(MAX_SUBMIT),
            max_wc,
            max_recv_wr: 0,
        })
    }

    pub(super) fn to_raw(self) -> uapi::RingsCreate {
        uapi::RingsCreate {
            max_send_wr: self.max_send_wr,
            max_wc: self.max_wc,
            max_recv_wr: self.max_recv_wr,
            ..Pod::zeroed()
        }
    }
}

/// A lock whose data is whole even if a thread has panicked with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Queues {
    /// Queues on these rings, without a kernel.
    pub(super) fn of_rings(rings: Rings) -> Arc<Self> {
        let (session, number) = (Session::of_null(), 0);
        Self::new(rings, RingsHandle { session, number })
    }
}

impl Queues {
    /// Makes rings.
    pub(super) fn create(session: &Arc<Session>, sizes: Sizes) -> Result<Arc<Self>, Errno> {
        let mut arg = sizes.to_raw();
        let lot = session.lot();
        lot.with_room(|| ioctl::rings_create(session.fd(), &mut arg))?;
        // Destroyed on drop from here on.
        let handle = RingsHandle {
            session: Arc::clone(session),
            number: arg.rings,
        };
        let rings = Rings::map(session.fd(), lot, &arg)?;
        Ok(Self::new(rings, handle))
    }

    /// The first rings of a session, and the mapping that they share with memory.
    pub(super) fn with_memory(
        session: &Arc<Session>,
        said: &uapi::RingsCreate,
    ) -> Result<(Arc<Self>, Arc<Mapping>), Errno> {
        let handle = RingsHandle {
            session: Arc::clone(session),
            number: said.rings,
        };
        let mapping = Arc::new(Mapping::alone(session.fd(), said)?);
        let rings = Rings::new(&mapping, said).ok_or(Errno::EPROTO)?;
        Ok((Self::new(rings, handle), mapping))
    }

    fn new(rings: Rings, handle: RingsHandle) -> Arc<Self> {
        Arc::new(Self {
            send: Mutex::new(rings.send),
            done: Mutex::new(Completions::new(rings.done)),
            recv: Mutex::new(rings.recv),
            handle,
        })
    }

    /// The handle, for the module.
    pub(super) fn number(&self) -> u32 {
        self.handle.number
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.handle.session
    }

    /// Has an eventfd signalled for completions.
    pub(super) fn notify(&self, eventfd: u32, count: u32, period_us: u32) -> Result<(), Errno> {
        let mut arg = uapi::CqNotify {
            rings: self.number(),
            eventfd,
            count,
            period_us,
            ..Pod::zeroed()
        };
        ioctl::cq_notify(self.session().fd(), &mut arg)
    }

    /// One `IOC_ENTER`; answers with how many requests were taken.
    pub(super) fn enter(&self, count: u32, min: u32, timeout_ns: u64) -> Result<u32, Errno> {
        let both = (self.number(), self.number());
        ioctl::enter(self.session().fd(), both, count, min, timeout_ns)
    }
}

impl Completions {
    pub(super) fn new(ring: CompletionRing) -> Self {
        Self {
            ring,
            receivers: HashMap::new(),
        }
    }

    /// Places that there are.
    pub(super) fn entries(&self) -> usize {
        self.ring.entries()
    }

    /// Completions that are there, as [`CompletionRing::ready`].
    pub(super) fn ready(&mut self, wanted: usize) -> usize {
        self.ring.ready(wanted)
    }

    /// Takes at most `max` completions, oldest first; answers with how many, and whether
    /// others were thrown away.
    pub(super) fn take(
        &mut self,
        max: usize,
        mut into: impl FnMut(usize, uapi::Wc),
    ) -> (usize, bool) {
        let Self { ring, receivers } = self;
        let (mut kept, mut threw_some) = (0, false);
        loop {
            let before = kept;
            let taken = ring.take(max - kept, |_, wc| {
                if count_buffer(receivers, &wc) {
                    threw_some = true;
                } else {
                    into(kept, wc);
                    kept += 1;
                }
            });
            // Those that were thrown away leave room for others.
            if kept - before == taken {
                return (kept, threw_some);
            }
        }
    }

    /// Throws away what there is of a VQP that was destroyed. Buffers that it has from an
    /// SRQ (`is_srq`) are not its own: their completions stay.
    pub(super) fn forget(&mut self, vqp: u32, is_srq: bool) {
        let Self { ring, receivers } = self;
        ring.purge(|wc| {
            let is_its = wc.vqp == vqp && !(is_srq && is_recv(wc));
            if is_its {
                count_buffer(receivers, wc);
            }
            is_its
        });
    }

    /// A VQP was destroyed that had a receive queue to itself, and the module has taken so many
    /// buffers off it (free-running). Those that have not come back are thrown away when they do.
    pub(super) fn add_ghost(&mut self, vqp: u32, taken: u32) {
        let Some(Receiver::Alive { returned }) = self.receivers.remove(&vqp) else {
            return;
        };
        let pending = taken.wrapping_sub(returned);
        if pending != 0 {
            self.receivers.insert(vqp, Receiver::Ghost { pending });
        }
    }

    /// A VQP was made, `is_receiver` with a receive queue to itself. The module gives a number
    /// again after some thousand others: completions with it are the new one's from now on.
    pub(super) fn note_made(&mut self, vqp: u32, is_receiver: bool) {
        if is_receiver {
            self.receivers.insert(vqp, Receiver::Alive { returned: 0 });
        } else {
            self.receivers.remove(&vqp);
        }
    }
}

/// Counts a completion if it is of a VQP's own receive buffer. Answers whether that VQP was
/// destroyed.
fn count_buffer(receivers: &mut HashMap<u32, Receiver>, wc: &uapi::Wc) -> bool {
    // Most CQs have no such VQP, and nothing to look for.
    if receivers.is_empty() || !is_recv(wc) {
        return false;
    }
    match receivers.get_mut(&wc.vqp) {
        None => false,
        Some(Receiver::Alive { returned }) => {
            *returned = returned.wrapping_add(1);
            false
        }
        Some(Receiver::Ghost { pending: 1 }) => receivers.remove(&wc.vqp).is_some(),
        Some(Receiver::Ghost { pending }) => {
            *pending -= 1;
            true
        }
    }
}

/// Whether it is of a receive buffer.
pub(super) fn is_recv(wc: &uapi::Wc) -> bool {
    matches!(wc.opcode, uapi::WC_RECV | uapi::WC_RECV_RDMA_WITH_IMM)
}

impl Drop for RingsHandle {
    fn drop(&mut self) {
        let mut arg = uapi::RingsHandle {
            rings: self.number,
            ..Pod::zeroed()
        };
        // It fails only if they went before.
        let _ = ioctl::rings_destroy(self.session.fd(), &mut arg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::tests::completions_of;

    const SEND: (u32, u16) = (3, uapi::OP_SEND as u16);
    const RECV: (u32, u16) = (3, uapi::WC_RECV);
    const OTHER: (u32, u16) = (4, uapi::WC_RECV);

    fn left(completions: &mut Completions, max: usize) -> Vec<(u32, u16)> {
        let mut left = Vec::new();
        let (count, _) = completions.take(max, |at, wc| {
            assert_eq!(at, left.len());
            left.push((wc.vqp, wc.opcode));
        });
        assert_eq!(count, left.len());
        left
    }

    #[test]
    fn completions_of_a_vqp_that_was_destroyed_are_thrown_away() {
        let mut all = Completions::new(completions_of(&[SEND, OTHER, RECV, OTHER]));
        all.forget(3, false);
        assert_eq!(left(&mut all, 9), [OTHER, OTHER]);
    }

    #[test]
    fn buffers_of_a_shared_queue_are_given_back_though_their_vqp_is_gone() {
        let mut all = Completions::new(completions_of(&[SEND, OTHER, RECV]));
        all.forget(3, true);
        assert_eq!(left(&mut all, 9), [OTHER, RECV]);
    }

    /// Completions of these, of which 3 was made with a receive queue to itself.
    fn with_receiver(of: &[(u32, u16)]) -> Completions {
        let mut all = Completions::new(completions_of(of));
        all.note_made(3, true);
        all
    }

    #[test]
    fn what_completes_late_is_thrown_away_and_the_room_is_used_for_others() {
        let mut all = with_receiver(&[RECV, OTHER, RECV, OTHER, OTHER]);
        all.add_ghost(3, 2);
        assert_eq!(left(&mut all, 2), [OTHER, OTHER]);
        assert_eq!(left(&mut all, 2), [OTHER]);
        assert!(all.receivers.is_empty());
    }

    #[test]
    fn only_buffers_that_have_not_come_back_are_late() {
        let mut all = with_receiver(&[RECV, RECV, OTHER, RECV]);
        assert_eq!(left(&mut all, 1), [RECV]);
        let mut none_left = all;
        none_left.forget(3, false);
        none_left.add_ghost(3, 3);
        assert!(none_left.receivers.is_empty(), "all have come back");
        let mut late = with_receiver(&[RECV, OTHER, RECV]);
        assert_eq!(left(&mut late, 1), [RECV]);
        late.add_ghost(3, 4);
        assert_eq!(left(&mut late, 9), [OTHER]);
        assert_eq!(late.receivers[&3], Receiver::Ghost { pending: 2 });
    }

    #[test]
    fn no_ghost_is_forgotten_for_another_and_one_without_buffers_is_none() {
        let mut all = with_receiver(&[RECV, OTHER]);
        all.add_ghost(3, 1);
        for vqp in 10..10_000 {
            all.note_made(vqp, true);
            all.add_ghost(vqp, 0);
        }
        assert_eq!(all.receivers.len(), 1);
        assert_eq!(left(&mut all, 9), [OTHER]);
    }

    #[test]
    fn counts_of_buffers_run_free() {
        let mut all = with_receiver(&[RECV, OTHER]);
        let returned = u32::MAX;
        all.receivers.insert(3, Receiver::Alive { returned });
        assert_eq!(left(&mut all, 1), [RECV]);
        all.add_ghost(3, 1);
        assert_eq!(all.receivers[&3], Receiver::Ghost { pending: 1 });
    }

    #[test]
    fn a_new_vqp_with_the_number_of_one_that_was_destroyed_gets_its_completions() {
        for is_receiver in [false, true] {
            let mut all = with_receiver(&[SEND, OTHER, RECV]);
            all.add_ghost(3, 1);
            all.note_made(3, is_receiver);
            assert_eq!(left(&mut all, 9), [SEND, OTHER, RECV]);
        }
    }
}
