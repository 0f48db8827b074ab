// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions that a synchronous call came across and that are not its own.
//!
//! They are kept, in order, for the next poll. The module's part is a closure
//! that submits, fills completions in and answers with both counts.

use crate::error::Error;
use crate::vqp::Progress;
use crate::wc::Wc;
use std::collections::VecDeque;
use weft_core::uapi::MAX_SEND_WR;

/// Completions of earlier requests that a VQP keeps for the next poll. With as
/// many, synchronous calls answer [`Error::QueueFull`].
pub const MAX_HELD_COMPLETIONS: usize = MAX_SEND_WR as usize;

/// Completions that a synchronous call reaps at once.
const SYNC_WCS: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Held {
    wcs: VecDeque<Wc>,
}

impl Held {
    /// How many are held.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.wcs.len()
    }

    /// Takes what fits, oldest first; answers with how many.
    #[inline]
    pub(crate) fn take(&mut self, wcs: &mut [Wc]) -> usize {
        let count = self.wcs.len().min(wcs.len());
        for (place, wc) in wcs.iter_mut().zip(self.wcs.drain(..count)) {
            *place = wc;
        }
        count
    }

    /// Repeats `call` until the request `wr_id` was submitted and completed, and
    /// answers with its bytes. `call` is told whether it is still to submit it.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        wr_id: u64,
        mut call: impl FnMut(bool, &mut [Wc]) -> Result<Progress, Error>,
    ) -> Result<u32, Error> {
        if self.wcs.len() >= MAX_HELD_COMPLETIONS {
            return Err(Error::QueueFull);
        }
        let mut wcs = [Wc::default(); SYNC_WCS];
        let mut pending = true;
        // Every request ends within a bounded time, a dead peer's by error.
        loop {
            let progress = match call(pending, &mut wcs) {
                Err(Error::Interrupted) => continue,
                progress => progress?,
            };
            pending &= progress.submitted == 0;
            let mut own = None;
            for wc in wcs.iter().take(progress.completed) {
                if wc.is_private() && wc.wr_id() == wr_id {
                    own = Some(wc.result());
                } else {
                    self.wcs.push_back(*wc);
                }
            }
            if let Some(result) = own {
                return Ok(result?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CompletionError;
    use weft_core::uapi::{self, Pod, WcStatus};

    /// A completion; the one of number 100 or 7 is the synchronous call's own.
    fn wc(wr_id: u64, status: WcStatus) -> Wc {
        Wc::from_raw(uapi::Wc {
            wr_id,
            status: status as u16,
            flags: match wr_id {
                7 | 100 => uapi::WC_PRIVATE,
                _ => 0,
            },
            ..Pod::zeroed()
        })
    }

    fn put(wcs: &mut [Wc], wr_ids: &[u64], submitted: usize) -> Result<Progress, Error> {
        for (place, wr_id) in wcs.iter_mut().zip(wr_ids) {
            *place = wc(*wr_id, WcStatus::Success);
        }
        Ok(Progress {
            submitted,
            completed: wr_ids.len(),
        })
    }

    fn taken(held: &mut Held, room: usize) -> Vec<u64> {
        let mut wcs = vec![Wc::default(); room];
        let count = held.take(&mut wcs);
        wcs[..count].iter().map(Wc::wr_id).collect()
    }

    #[test]
    fn a_synchronous_call_keeps_the_completions_of_others_in_order() {
        let mut held = Held::default();
        // Given a call that is interrupted, then finds the queue full, then gets
        // the completions of others, and at last its own.
        let mut round = 0;
        let mut pendings = Vec::new();
        let bytes = held.complete(100, |pending, wcs| {
            round += 1;
            pendings.push(pending);
            match round {
                1 => Err(Error::Interrupted),
                2 => put(wcs, &[1], 0),
                3 => put(wcs, &[2, 3], 1),
                _ => put(wcs, &[4, 100, 5], 0),
            }
        });
        assert_eq!(bytes, Ok(0));
        assert_eq!(pendings, [true, true, true, false]);

        // Then polls get them.
        assert_eq!(held.len(), 5);
        assert_eq!(taken(&mut held, 3), [1, 2, 3]);
        assert_eq!(taken(&mut held, 3), [4, 5]);
    }

    #[test]
    fn a_request_that_failed_is_an_error_of_the_call() {
        let status = Some(WcStatus::RetryExcErr);
        let failed = Held::default().complete(7, |_, wcs| {
            wcs[0] = wc(7, WcStatus::RetryExcErr);
            Ok(Progress {
                submitted: 1,
                completed: 1,
            })
        });
        assert_eq!(failed, Err(Error::Completion(CompletionError { status })));
    }

    #[test]
    fn a_caller_that_never_polls_is_stopped() {
        let mut held = Held::default();
        let mut calls = 0;
        while held
            .complete(100, |_, wcs| put(wcs, &[1, 2, 100], 1))
            .is_ok()
        {
            calls += 1;
        }
        assert_eq!(calls, MAX_HELD_COMPLETIONS / 2);
    }
}
