// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions that a synchronous call came across and that are not its own.
//!
//! They are kept, in order, for the next poll. The module's part is a closure
//! that submits, fills completions in and answers with both counts.

use crate::error::Error;
use crate::vqp::Progress;
use crate::wr::Wc;
use std::collections::VecDeque;
use weft_core::uapi::MAX_SEND_WR;

/// Completions of earlier requests that a VQP keeps for the next poll. With as
/// many, synchronous calls answer [`Error::QueueFull`].
pub const MAX_HELD_COMPLETIONS: usize = MAX_SEND_WR as usize;

/// Completions that a synchronous call reaps at once.
const SYNC_WCS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Held {
    wcs: VecDeque<Wc>,
}

impl Held {
    /// Fills `wcs` with what is held, then with what `call` reaps, which is told
    /// how many it is to wait for. After an error everything is still held.
    pub(crate) fn reap(
        &mut self,
        wcs: &mut [Wc],
        min: usize,
        call: impl FnOnce(&mut [Wc], usize) -> Result<Progress, Error>,
    ) -> Result<Progress, Error> {
        let held = self.wcs.len().min(wcs.len());
        let (first, rest) = wcs.split_at_mut(held);
        let Progress {
            submitted,
            completed,
        } = call(rest, min.saturating_sub(held))?;
        for (place, wc) in first.iter_mut().zip(self.wcs.drain(..held)) {
            *place = wc;
        }
        Ok(Progress {
            submitted,
            completed: held + completed,
        })
    }

    /// Repeats `call` until the request `wr_id` was submitted and completed, and
    /// answers with its bytes. `call` is told whether it is still to submit it.
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
                if wc.wr_id() == wr_id {
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
    use weft_core::uapi::WcStatus;

    fn put(wcs: &mut [Wc], wr_ids: &[u64], submitted: usize) -> Result<Progress, Error> {
        for (place, wr_id) in wcs.iter_mut().zip(wr_ids) {
            Wc::as_raw_mut(std::slice::from_mut(place))[0].wr_id = *wr_id;
        }
        Ok(Progress {
            submitted,
            completed: wr_ids.len(),
        })
    }

    fn wr_ids(wcs: &[Wc]) -> Vec<u64> {
        wcs.iter().map(Wc::wr_id).collect()
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

        // Then a poll gets them, before what the module has.
        let mut wcs = [Wc::default(); 3];
        let progress = held.reap(&mut wcs, 1, |rest, min| {
            assert_eq!((rest.len(), min), (0, 0));
            put(rest, &[], 0)
        });
        assert_eq!(
            progress,
            Ok(Progress {
                submitted: 0,
                completed: 3
            })
        );
        assert_eq!(wr_ids(&wcs), [1, 2, 3]);
        let progress = held.reap(&mut wcs, 3, |rest, min| {
            assert_eq!((rest.len(), min), (1, 1));
            put(rest, &[6], 1)
        });
        assert_eq!(
            progress,
            Ok(Progress {
                submitted: 1,
                completed: 3
            })
        );
        assert_eq!(wr_ids(&wcs), [4, 5, 6]);
    }

    #[test]
    fn an_error_loses_no_completion() {
        let mut held = Held::default();
        held.complete(100, |_, wcs| put(wcs, &[1, 100], 1)).unwrap();
        let mut wcs = [Wc::default(); 2];
        let failed = held.reap(&mut wcs, 0, |_, _| Err(Error::NotConnected));
        assert_eq!(failed, Err(Error::NotConnected));
        let progress = held.reap(&mut wcs, 0, |rest, _| put(rest, &[], 0)).unwrap();
        assert_eq!(wr_ids(&wcs[..progress.completed]), [1]);
    }

    #[test]
    fn a_request_that_failed_is_an_error_of_the_call() {
        let status = Some(WcStatus::RetryExcErr);
        let failed = Held::default().complete(7, |_, wcs| {
            Wc::as_raw_mut(wcs)[0].status = WcStatus::RetryExcErr as u32;
            put(wcs, &[7], 1)
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
