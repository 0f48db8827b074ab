// SPDX-License-Identifier: GPL-2.0

//! A shared value that changes now and then. Who has seen it reads one word to know
//! whether it has changed since: no lock, unless it has.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::Arc;

use crate::sync::{new_lock, BhLock};

/// No value's [`Versioned::version`].
pub(crate) const NO_VERSION: u32 = 0;

/// A value, or none. Any context but hard interrupts.
#[pin_data]
pub(crate) struct Versioned<T> {
    version: AtomicU32,
    #[pin]
    value: BhLock<Option<Arc<T>>>,
}

impl<T> Versioned<T> {
    /// With this value.
    pub(crate) fn new(value: Option<Arc<T>>) -> impl PinInit<Self> {
        pin_init!(Self {
            version: AtomicU32::new(NO_VERSION + 1),
            value <- new_lock!(value, "weft_versioned"),
        })
    }

    /// A number that changes with the value; to be read before [`Versioned::get`].
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// The value.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.value.lock().clone()
    }

    /// Changes the value. What it was is dropped here, if nobody else has it.
    pub(crate) fn set(&self, value: Option<&Arc<T>>) {
        let before = {
            let mut current = self.value.lock();
            if is_same(current.as_ref(), value) {
                return;
            }
            let next = self.version.load(Ordering::Relaxed).wrapping_add(1);
            self.version
                .store(next.max(NO_VERSION + 1), Ordering::Release);
            core::mem::replace(&mut *current, value.cloned())
        };
        drop(before);
    }
}

/// Whether both are the same object, or none.
pub(crate) fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}
