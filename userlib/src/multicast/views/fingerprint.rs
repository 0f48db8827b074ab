// SPDX-License-Identifier: MIT OR Apache-2.0

//! A number for what decides what a member does next, besides what is in its region: for
//! models, which go on from each state once.

use super::state::Transfer;
use super::Views;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

impl Views {
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.view, self.phase, self.opened).hash(&mut hasher);
        (self.accused, self.suspects, self.ready).hash(&mut hasher);
        (self.candidates, &self.incarnations, self.lacking).hash(&mut hasher);
        self.status.suspected().hash(&mut hasher);
        let fetched = |transfer: &Option<Transfer>| transfer.as_ref().map(Transfer::fetched);
        fetched(&self.transfer).hash(&mut hasher);
        for part in &self.parts {
            fetched(&part.transfer).hash(&mut hasher);
            let place = part.resumption;
            (part.before, part.lacking, &part.ring).hash(&mut hasher);
            (part.sequence, place.start, place.slot).hash(&mut hasher);
            part.member.fingerprint(&mut hasher);
        }
        hasher.finish()
    }
}
