// SPDX-License-Identifier: GPL-2.0

//! The receivers of messages on a node, by port or by flow.
//!
//! Lock order: a set's lock is innermost; receivers are dropped without it.

use kernel::alloc::{KVBox, KVec};
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;

use crate::errno;
use crate::random::KeyedHash;
use crate::sync::{new_lock, BhLock};

const SETS: usize = 2048;

/// Receivers whose names share a lock. It has as many as there are: nobody finds it
/// full because of others.
type Set<R> = KVec<(Receiver, Arc<R>)>;

/// A node's receivers.
pub(crate) struct Receivers<R: Send + Sync> {
    /// Spreads the names: nobody can choose which share a set.
    hash: KeyedHash,
    sets: Pin<KVBox<[BhLock<Set<R>>; SETS]>>,
}

impl<R: Send + Sync> Receivers<R> {
    /// Nobody.
    pub(crate) fn new() -> Result<Self> {
        let sets = KVBox::pin_init(
            pin_init::pin_init_array_from_fn(|_| new_lock!(KVec::new(), "weft_receiver_set")),
            GFP_KERNEL,
        )?;
        Ok(Self {
            hash: KeyedHash::new(),
            sets,
        })
    }

    fn set(&self, name: Receiver) -> &BhLock<Set<R>> {
        let (kind, number) = match name {
            Receiver::Port(number) => (0, number),
            Receiver::Flow(number) => (1, number),
            Receiver::Node => (2, 0),
        };
        &self.sets[self.hash.place([number, kind, 0, 0], SETS)]
    }

    /// Takes a receiver in under a name.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOMEM`.
    pub(crate) fn insert(&self, name: Receiver, receiver: Arc<R>) -> Result {
        let mut set = self.set(name).lock();
        if set.iter().any(|(other, _)| *other == name) {
            return Err(errno::addr_in_use());
        }
        Ok(set.push((name, receiver), GFP_ATOMIC)?)
    }

    /// Takes out what is under a name.
    pub(crate) fn remove(&self, name: Receiver) {
        let mut set = self.set(name).lock();
        let at = set.iter().position(|(other, _)| *other == name);
        let removed = at.and_then(|at| set.remove(at).ok());
        drop(set);
        drop(removed);
    }

    /// The receiver of a name.
    pub(crate) fn find(&self, name: Receiver) -> Option<Arc<R>> {
        let set = self.set(name).lock();
        let (_, receiver) = set.iter().find(|(other, _)| *other == name)?;
        Some(receiver.clone())
    }

    /// Takes everybody out and calls `f` for them.
    pub(crate) fn drain(&self, mut f: impl FnMut(&R)) {
        for set in self.sets.iter() {
            let all = core::mem::take(&mut *set.lock());
            for (_, receiver) in all.iter() {
                f(receiver);
            }
        }
    }
}
