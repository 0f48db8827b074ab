// SPDX-License-Identifier: GPL-2.0

//! What users hold of a node's tables, so that none of them can fill one alone. A
//! session has limits of its own; these are for all sessions of a user together.
//!
//! Lock order: `shares` is innermost.

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{MAX_MRS_PER_USER, MAX_VQPS_PER_USER};

use crate::sync::{new_lock, BhLock};

/// Users who hold something of a node at a time.
const USERS: usize = 4096;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Virtual queue pairs.
    Vqps,
    /// Memory regions.
    Regions,
}

const KINDS: usize = 2;
const LIMITS: [u32; KINDS] = [MAX_VQPS_PER_USER, MAX_MRS_PER_USER];

/// One user's part. Users who hold nothing have none.
struct Share {
    user: u32,
    held: [u32; KINDS],
}

/// The shares of a node's users.
#[pin_data]
pub(crate) struct Quota {
    #[pin]
    shares: BhLock<KVVec<Share>>,
}

/// One thing that a user holds, until it is dropped.
pub(crate) struct Held {
    quota: Arc<Quota>,
    user: u32,
    kind: Kind,
}

impl Quota {
    /// Nobody holds anything.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // Room for all, so that counting never allocates.
        let shares = KVVec::with_capacity(USERS, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self { shares <- new_lock!(shares, "weft_quota") }),
            GFP_KERNEL,
        )
    }

    /// Counts one more thing of a user.
    ///
    /// # Errors
    ///
    /// `EMFILE`: it is one too many.
    pub(crate) fn take(self: &Arc<Self>, user: u32, kind: Kind) -> Result<Held> {
        let mut shares = self.shares.lock();
        let at = match shares.iter().position(|share| share.user == user) {
            Some(at) => at,
            None => {
                let share = Share {
                    user,
                    held: [0; KINDS],
                };
                shares.push_within_capacity(share).map_err(|_| EMFILE)?;
                shares.len() - 1
            }
        };
        let held = shares
            .get_mut(at)
            .and_then(|share| share.held.get_mut(kind as usize))
            .ok_or(EMFILE)?;
        if LIMITS
            .get(kind as usize)
            .is_none_or(|limit| *held >= *limit)
        {
            return Err(EMFILE);
        }
        *held += 1;
        Ok(Held {
            quota: self.clone(),
            user,
            kind,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut shares = self.quota.shares.lock();
        let Some(at) = shares.iter().position(|share| share.user == self.user) else {
            return;
        };
        let Some(share) = shares.get_mut(at) else {
            return;
        };
        if let Some(held) = share.held.get_mut(self.kind as usize) {
            *held = held.saturating_sub(1);
        }
        if share.held == [0; KINDS] {
            let _ = shares.remove(at);
        }
    }
}
