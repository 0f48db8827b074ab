// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rings that a process has mapped, for the thread that rewrites them.

use std::sync::{Arc, Mutex, Weak};

use crate::raw::Queue;
use crate::rng::Rng;

/// All of them, of all threads.
#[derive(Default)]
pub struct Live(Mutex<Vec<Weak<Queue>>>);

impl Live {
    /// New rings.
    pub fn add(&self, queue: &Arc<Queue>) {
        if let Ok(mut live) = self.0.lock() {
            live.retain(|old| old.strong_count() > 0);
            live.push(Arc::downgrade(queue));
        }
    }

    /// Some rings, which stay mapped as long as they are held.
    pub fn any(&self, rng: &mut Rng) -> Option<Arc<Queue>> {
        let live = self.0.lock().ok()?;
        if live.is_empty() {
            return None;
        }
        live[rng.below(live.len())].upgrade()
    }
}
