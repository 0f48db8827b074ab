// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connected clients, which the threads of one measurement after another
//! borrow, so that connecting is done once.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

use crate::pace::Step;
use crate::round_robin::{Case, Sample, Taken};

/// Clients that nobody uses at the moment.
pub struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    /// Makes `count` clients, each from its index.
    pub fn fill(count: u16, make: impl FnMut(u16) -> Result<T>) -> Result<Self> {
        let clients = (0..count).map(make).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(clients)))
    }

    /// Borrows one.
    pub fn take(&self) -> Result<Lent<'_, T>> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let client = idle.pop().context("more threads than clients")?;
        Ok(Lent {
            pool: self,
            client: Some(client),
        })
    }
}

/// A borrowed client, which returns when dropped.
///
/// # Invariants
///
/// `client` is there until `drop`.
pub struct Lent<'a, T> {
    pool: &'a Pool<T>,
    client: Option<T>,
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.client.as_ref().expect("there until drop")
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.client.as_mut().expect("there until drop")
    }
}

impl<T: Case> Case for Lent<'_, T> {
    fn sample(&mut self) -> Result<Sample> {
        (**self).sample()
    }

    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        (**self).samples(count, taken)
    }
}

impl<T: Step> Step for Lent<'_, T> {
    fn step(&mut self) -> Result<()> {
        (**self).step()
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let mut idle = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.extend(self.client.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_lent_to_one_and_comes_back() {
        let pool = Pool::fill(1, |index| Ok(index + 7)).unwrap();
        let lent = pool.take().unwrap();
        assert_eq!(*lent, 7);
        assert!(pool.take().is_err());
        drop(lent);
        assert!(pool.take().is_ok());
    }
}
