// SPDX-License-Identifier: GPL-2.0

//! Who receives messages on a node: by port, or by flow.
//!
//! Lock order: a set's lock is innermost; receivers are dropped without it.

use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;

use crate::bindings;
use crate::errno;
use crate::random::random_u64;
use crate::sync::{new_lock, BhLock};

const SETS: usize = 2048;
/// Receivers whose numbers fall into one set: several times as many as there are on
/// average when two users have all that they may have, so that no set is ever full.
const WAYS: usize = 16;

type Set<R> = [Option<(Receiver, Arc<R>)>; WAYS];

/// A node's receivers.
pub(crate) struct Receivers<R: Send + Sync> {
    /// Which numbers share a set nobody can choose, or be unlucky with: numbers
    /// follow each other, and a product with a secret maps those to few sets for one
    /// secret in fifty.
    secret: bindings::hsiphash_key_t,
    sets: Pin<KVBox<[BhLock<Set<R>>; SETS]>>,
}

impl<R: Send + Sync> Receivers<R> {
    /// Nobody.
    pub(crate) fn new() -> Result<Self> {
        let sets = KVBox::pin_init(
            pin_init::pin_init_array_from_fn(|_| {
                new_lock!([const { None }; WAYS], "weft_receiver_set")
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            secret: bindings::hsiphash_key_t {
                key: [random_u64() as usize, random_u64() as usize],
            },
            sets,
        })
    }

    fn set(&self, name: Receiver) -> &BhLock<Set<R>> {
        let (kind, number) = match name {
            Receiver::Port(number) => (0, number),
            Receiver::Flow(number) => (1, number),
            Receiver::Node => (2, 0),
        };
        // SAFETY: the key is valid for reads.
        let hash = unsafe { bindings::hsiphash_2u32(number, kind, &self.secret) };
        &self.sets[hash as usize % SETS]
    }

    /// Takes a receiver in under a name.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOSPC`.
    pub(crate) fn insert(&self, name: Receiver, receiver: Arc<R>) -> Result {
        let mut set = self.set(name).lock();
        if set.iter().flatten().any(|(other, _)| *other == name) {
            return Err(errno::addr_in_use());
        }
        let way = set.iter_mut().find(|way| way.is_none()).ok_or(ENOSPC)?;
        *way = Some((name, receiver));
        Ok(())
    }

    /// Takes out what is under a name.
    pub(crate) fn remove(&self, name: Receiver) {
        let mut set = self.set(name).lock();
        let is_it = |way: &&mut Option<(Receiver, Arc<R>)>| {
            way.as_ref().is_some_and(|(other, _)| *other == name)
        };
        let removed = set.iter_mut().find(is_it).and_then(Option::take);
        drop(set);
        drop(removed);
    }

    /// Who receives under a name.
    pub(crate) fn find(&self, name: Receiver) -> Option<Arc<R>> {
        let set = self.set(name).lock();
        let (_, receiver) = set.iter().flatten().find(|(other, _)| *other == name)?;
        Some(receiver.clone())
    }

    /// Takes everybody out and calls `f` for them.
    pub(crate) fn drain(&self, mut f: impl FnMut(&R)) {
        for set in self.sets.iter() {
            let ways = core::mem::replace(&mut *set.lock(), [const { None }; WAYS]);
            for (_, receiver) in ways.iter().flatten() {
                f(receiver);
            }
        }
    }
}
