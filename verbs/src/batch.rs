// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests that are posted together, with one call.
//!
//! The list is made once and posted as often as the program likes: what a
//! program that cares for its rate does.

use std::ptr;

use crate::error::done;
use crate::{sys, RcQp, Result, WorkRequest};

/// A list of work requests, of which only the last makes a completion. One that
/// fails makes one too, and the queue pair is then broken.
///
/// # Invariants
///
/// `requests` and `elements` have the same length and are not changed after
/// [`Batch::new`]. Each request points to the element at its index and to the
/// next request, the last to none.
pub struct Batch {
    requests: Vec<sys::ibv_send_wr>,
    #[expect(dead_code, reason = "the requests point into it")]
    elements: Vec<sys::ibv_sge>,
}

// SAFETY: its pointers lead to what it owns (invariant).
unsafe impl Send for Batch {}

impl Batch {
    /// Makes a list of these requests.
    #[must_use]
    pub fn new(requests: &[WorkRequest]) -> Self {
        let mut elements: Vec<_> = requests.iter().map(WorkRequest::element).collect();
        let first = elements.as_mut_ptr();
        let mut list: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(index, request)| request.raw(first.wrapping_add(index), false))
            .collect();
        let (first, last) = (list.as_mut_ptr(), list.len().saturating_sub(1));
        for (index, request) in list.iter_mut().enumerate() {
            if index == last {
                request.send_flags |= sys::IBV_SEND_SIGNALED;
            } else {
                request.next = first.wrapping_add(index + 1);
            }
        }
        // INVARIANT: linked above; neither moving nor dropping a `Vec`'s handle
        // moves what it holds.
        Self {
            requests: list,
            elements,
        }
    }
}

impl RcQp {
    /// Posts all requests of a list. An empty one does nothing.
    /// (`ibv_post_send`)
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the queue gets full. Some requests may be posted then.
    pub fn post_batch(&self, batch: &Batch) -> Result<()> {
        if batch.requests.is_empty() {
            return Ok(());
        }
        let first = batch.requests.as_ptr().cast_mut();
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists; the list is linked (invariant of
        // `Batch`) and lives through the call, which only reads it.
        let answer = unsafe { sys::ibv_post_send(self.raw(), first, &mut bad) };
        done("ibv_post_send", answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    #[test]
    fn a_list_is_linked_and_only_its_last_request_completes() {
        let request = |wr_id| WorkRequest {
            wr_id,
            op: Op::Write,
            local_addr: 0x1000 * wr_id,
            lkey: 1,
            len: 8,
            remote_addr: 0,
            rkey: 2,
        };
        let batch = Batch::new(&[request(1), request(2), request(3)]);
        let mut at = batch.requests.as_ptr();
        for wr_id in 1..=3 {
            // SAFETY: in the list, or the loop would have ended below.
            let raw = unsafe { &*at };
            // SAFETY: the list's element.
            let element = unsafe { &*raw.sg_list };
            assert_eq!((raw.wr_id, element.addr), (wr_id, 0x1000 * wr_id));
            assert_eq!(raw.send_flags & sys::IBV_SEND_SIGNALED != 0, wr_id == 3);
            at = raw.next;
        }
        assert!(at.is_null());
        assert!(Batch::new(&[]).requests.is_empty());
    }
}
