// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A virtual queue pair's bookkeeping: which requests it takes, and which
//! completions it owes (krcore §4.4, alg. 2).
//!
//! A request takes a place in the send queue until the user has reaped its
//! completion, or, if it is unsignalled and succeeds, until it is done. So the
//! completion queue, which has as many places, cannot overflow.

use crate::uapi::{
    SendWr, WcStatus, MAX_MSG_BYTES, OP_CAS, OP_FAA, OP_READ, OP_WRITE, SEND_SIGNALED,
};

/// Bytes that an atomic operation changes.
pub const ATOMIC_BYTES: u32 = 8;

/// Looks at a request's form. What its keys allow is for the memory table.
///
/// # Errors
///
/// The status that the request completes with.
pub fn check(wr: &SendWr) -> Result<(), WcStatus> {
    let is_atomic = matches!(wr.opcode, OP_CAS | OP_FAA);
    let known_op = is_atomic || matches!(wr.opcode, OP_READ | OP_WRITE);
    let operands = (wr.compare_add != 0 && !is_atomic) || (wr.swap != 0 && wr.opcode != OP_CAS);
    let malformed = wr.flags & !SEND_SIGNALED != 0 || wr.num_sge != 1 || wr.reserved != 0;
    if !known_op || operands || malformed {
        return Err(WcStatus::LocQpOpErr);
    }
    if is_atomic && wr.len != ATOMIC_BYTES {
        return Err(WcStatus::LocLenErr);
    }
    if is_atomic && wr.remote_addr % u64::from(ATOMIC_BYTES) != 0 {
        return Err(WcStatus::RemInvReqErr);
    }
    let len = u64::from(wr.len);
    if wr.len > MAX_MSG_BYTES {
        return Err(WcStatus::LocLenErr);
    }
    if wr.local_addr.checked_add(len).is_none() {
        return Err(WcStatus::LocProtErr);
    }
    if wr.remote_addr.checked_add(len).is_none() {
        return Err(WcStatus::RemAccessErr);
    }
    Ok(())
}

/// The places of a send queue.
///
/// # Invariants
///
/// `in_flight + unreaped <= capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQueue {
    capacity: u32,
    in_flight: u32,
    unreaped: u32,
}

impl SendQueue {
    /// A queue of `capacity` places.
    #[must_use]
    pub const fn new(capacity: u32) -> Self {
        Self {
            capacity,
            in_flight: 0,
            unreaped: 0,
        }
    }

    /// Takes up to `wanted` places; answers how many it got.
    pub fn admit(&mut self, wanted: u32) -> u32 {
        let taken = wanted.min(self.capacity - self.in_flight - self.unreaped);
        // INVARIANT: no more than were free.
        self.in_flight += taken;
        taken
    }

    /// Gives places back whose requests were not posted after all.
    pub fn withdraw(&mut self, places: u32) {
        self.in_flight = self.in_flight.saturating_sub(places);
    }

    /// A request has ended. Answers whether it makes a completion: if it was
    /// signalled, or failed.
    #[must_use]
    pub fn complete(&mut self, signaled: bool, status: WcStatus) -> bool {
        let shows = signaled || status != WcStatus::Success;
        if self.in_flight > 0 {
            // INVARIANT: the place moves, or becomes free.
            self.in_flight -= 1;
            self.unreaped += u32::from(shows);
        }
        shows
    }

    /// The user has taken `completions`.
    pub fn reap(&mut self, completions: u32) {
        self.unreaped = self.unreaped.saturating_sub(completions);
    }

    /// Requests that have not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Completions that have not been taken.
    #[must_use]
    pub const fn unreaped(&self) -> u32 {
        self.unreaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::Pod;
    use proptest::prelude::*;

    fn write() -> SendWr {
        SendWr {
            opcode: OP_WRITE,
            num_sge: 1,
            len: 8,
            ..SendWr::zeroed()
        }
    }

    #[test]
    fn a_well_formed_request_passes() {
        assert_eq!(check(&write()), Ok(()));
        assert_eq!(
            check(&SendWr {
                flags: SEND_SIGNALED,
                opcode: OP_READ,
                ..write()
            }),
            Ok(())
        );
    }

    #[test]
    fn malformed_requests_name_what_is_wrong() {
        let bad = |wr: SendWr| check(&wr).unwrap_err();
        assert_eq!(
            bad(SendWr {
                opcode: 77,
                ..write()
            }),
            WcStatus::LocQpOpErr
        );
        assert_eq!(
            bad(SendWr {
                flags: 0x80,
                ..write()
            }),
            WcStatus::LocQpOpErr
        );
        assert_eq!(
            bad(SendWr {
                num_sge: 2,
                ..write()
            }),
            WcStatus::LocQpOpErr
        );
        assert_eq!(
            bad(SendWr {
                reserved: 1,
                ..write()
            }),
            WcStatus::LocQpOpErr
        );
        assert_eq!(
            bad(SendWr {
                len: u32::MAX,
                ..write()
            }),
            WcStatus::LocLenErr
        );
        assert_eq!(
            bad(SendWr {
                local_addr: u64::MAX,
                ..write()
            }),
            WcStatus::LocProtErr
        );
        assert_eq!(
            bad(SendWr {
                remote_addr: u64::MAX - 3,
                ..write()
            }),
            WcStatus::RemAccessErr
        );
    }

    proptest! {
        /// Against a model that keeps the requests themselves.
        #[test]
        fn places_are_never_lost_or_doubled(
            capacity in 1u32..40,
            steps in prop::collection::vec((0u8..4, 0u32..50, any::<bool>(), any::<bool>()), 0..200),
        ) {
            let mut queue = SendQueue::new(capacity);
            let (mut in_flight, mut unreaped) = (0u32, 0u32);
            for (step, n, signaled, fails) in steps {
                match step {
                    0 => {
                        let taken = queue.admit(n);
                        prop_assert_eq!(taken, n.min(capacity - in_flight - unreaped));
                        in_flight += taken;
                    }
                    1 if in_flight > 0 => {
                        let status = if fails { WcStatus::RemAccessErr } else { WcStatus::Success };
                        let shows = queue.complete(signaled, status);
                        prop_assert_eq!(shows, signaled || fails);
                        in_flight -= 1;
                        unreaped += u32::from(shows);
                    }
                    2 => {
                        queue.reap(n.min(unreaped));
                        unreaped -= n.min(unreaped);
                    }
                    3 => {
                        queue.withdraw(n.min(in_flight));
                        in_flight -= n.min(in_flight);
                    }
                    _ => {}
                }
                prop_assert_eq!((queue.in_flight(), queue.unreaped()), (in_flight, unreaped));
                prop_assert!(in_flight + unreaped <= capacity);
            }
        }

        #[test]
        fn any_bytes_are_judged(bytes in prop::array::uniform32(any::<u8>()), rest in prop::array::uniform32(any::<u8>())) {
            let mut wr = SendWr::zeroed();
            wr.as_bytes_mut()[..32].copy_from_slice(&bytes);
            wr.as_bytes_mut()[32..].copy_from_slice(&rest);
            let _ = check(&wr);
        }
    }
}
