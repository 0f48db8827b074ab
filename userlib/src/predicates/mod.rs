// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicates and the one thread that evaluates them (spindle §II.D).
//!
//! A predicate is a function that looks whether there is something to do, does
//! it, and says whether there was. One polling thread goes round all
//! predicates of all subgroups, so that they need no locks among them. After a
//! while in which nothing happened it sleeps, until a doorbell rings
//! ([`Endpoint::ring`]). An application may do what that thread does on a thread of its
//! own ([`Poller::step`]).

mod idle;
#[cfg(test)]
mod tests;

pub use idle::{Idle, IdlePolicy};

use crate::fabric::Endpoint;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most predicates of a polling thread.
pub const MAX_PREDICATES: usize = 4096;

/// What a predicate found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do.
    Idle,
    /// It did something.
    Fired,
    /// It did the last that it had to do, and is dropped.
    Done,
}

impl From<bool> for Outcome {
    fn from(fired: bool) -> Self {
        if fired {
            Self::Fired
        } else {
            Self::Idle
        }
    }
}

type Predicate = Box<dyn FnMut() -> Outcome + Send>;

/// A set of predicates, evaluated in the order in which they were added.
#[derive(Default)]
pub struct Predicates {
    list: Vec<Predicate>,
}

impl fmt::Debug for Predicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicates")
            .field("count", &self.list.len())
            .finish()
    }
}

/// There are [`MAX_PREDICATES`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the polling thread has {MAX_PREDICATES} predicates, which is the limit")]
pub struct TooManyPredicates;

impl Predicates {
    /// Adds a predicate that stays until it is [`Outcome::Done`].
    ///
    /// # Errors
    ///
    /// [`TooManyPredicates`].
    pub fn add(
        &mut self,
        predicate: impl FnMut() -> Outcome + Send + 'static,
    ) -> Result<(), TooManyPredicates> {
        self.add_beside(0, predicate)
    }

    /// As [`Self::add`], where so many are counted elsewhere.
    fn add_beside(
        &mut self,
        others: usize,
        predicate: impl FnMut() -> Outcome + Send + 'static,
    ) -> Result<(), TooManyPredicates> {
        if self.list.len() + others >= MAX_PREDICATES {
            return Err(TooManyPredicates);
        }
        self.list.push(Box::new(predicate));
        Ok(())
    }

    /// Adds a predicate that waits for a condition, does its work once, and is
    /// gone.
    ///
    /// # Errors
    ///
    /// [`TooManyPredicates`].
    pub fn once(
        &mut self,
        mut condition: impl FnMut() -> bool + Send + 'static,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), TooManyPredicates> {
        let mut work = Some(work);
        self.add(move || {
            if !condition() {
                return Outcome::Idle;
            }
            if let Some(work) = work.take() {
                work();
            }
            Outcome::Done
        })
    }

    /// Evaluates each once, and says whether any had something to do.
    pub fn evaluate(&mut self) -> bool {
        let mut fired = false;
        self.list.retain_mut(|predicate| {
            let outcome = predicate();
            fired |= outcome != Outcome::Idle;
            outcome != Outcome::Done
        });
        fired
    }
}

/// What the polling thread shares with those who command it.
#[derive(Debug)]
struct Shared {
    endpoint: Arc<dyn Endpoint>,
    stop: AtomicBool,
    /// Whether there is something in `added`: looked at each round, while the
    /// lock is taken only then.
    has_added: AtomicBool,
    added: Mutex<Predicates>,
    /// How many predicates are evaluated: those of `added` that were taken, and not done since.
    /// It grows only under the lock of `added`.
    taken: AtomicUsize,
    sleeps: AtomicU64,
}

/// A polling thread, or what the application's threads do in its place. Stops, after a
/// last round, on drop.
#[derive(Debug)]
pub struct Poller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// What is evaluated in steps; none if there is a thread.
    stepped: Mutex<Predicates>,
}

impl Poller {
    /// Starts the thread over these predicates.
    ///
    /// # Errors
    ///
    /// If there can be no further thread.
    pub fn start(
        endpoint: Arc<dyn Endpoint>,
        mut predicates: Predicates,
        policy: IdlePolicy,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(endpoint, &predicates));
        let polled = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("weft-poll".to_owned())
            .spawn(move || polled.run(&mut predicates, policy))?;
        Ok(Self {
            shared,
            thread: Some(thread),
            stepped: Mutex::default(),
        })
    }

    /// Without a thread: the application evaluates the predicates ([`Self::step`]).
    #[must_use]
    pub fn stepped(endpoint: Arc<dyn Endpoint>, predicates: Predicates) -> Self {
        Self {
            shared: Arc::new(Shared::new(endpoint, &predicates)),
            thread: None,
            stepped: Mutex::new(predicates),
        }
    }

    /// Evaluates the predicates once, and says whether any had something to do. No answer
    /// if that is not the caller's part: there is a polling thread, or another step is on
    /// its way, on another thread or because a predicate calls this.
    pub fn step(&self) -> Option<bool> {
        let mut predicates = self.between_steps()?;
        Some(self.shared.round(&mut predicates))
    }

    /// As [`Self::step`], but sleeps until there is something to do, or the time is over.
    pub fn step_within(&self, timeout: Duration) -> Option<bool> {
        let mut predicates = self.between_steps()?;
        let mut fired = self.shared.round(&mut predicates);
        // Behind a panic there is nothing to wait for.
        if !fired && !self.stepped.is_poisoned() {
            self.shared.sleeps.fetch_add(1, Ordering::Relaxed);
            let mut ready = || {
                fired = self.shared.round(&mut predicates);
                fired
            };
            self.shared.endpoint.sleep(Some(timeout), &mut ready);
            fired = fired || self.shared.round(&mut predicates);
        }
        Some(fired)
    }

    fn between_steps(&self) -> Option<MutexGuard<'_, Predicates>> {
        if self.thread.is_some() {
            return None;
        }
        match self.stepped.try_lock() {
            Ok(predicates) => Some(predicates),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => {
                // One has panicked: all end, as they do with their thread.
                let mut predicates = poisoned.into_inner();
                predicates.list.clear();
                Some(predicates)
            }
        }
    }

    /// Hands the running thread a further predicate.
    ///
    /// # Errors
    ///
    /// [`TooManyPredicates`].
    pub fn add(
        &self,
        predicate: impl FnMut() -> Outcome + Send + 'static,
    ) -> Result<(), TooManyPredicates> {
        let added = self.shared.added.lock();
        let mut added = added.unwrap_or_else(PoisonError::into_inner);
        let taken = self.shared.taken.load(Ordering::Relaxed);
        added.add_beside(taken, predicate)?;
        drop(added);
        self.shared.has_added.store(true, Ordering::Release);
        self.shared.endpoint.ring(self.shared.endpoint.rank());
        Ok(())
    }

    /// How often the thread has gone to sleep.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.shared.sleeps.load(Ordering::Relaxed)
    }

    /// Whether the thread has ended: stopped, or a predicate panicked.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if self.thread.is_none() {
            // As the thread does: a last round.
            self.step();
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.endpoint.ring(self.shared.endpoint.rank());
        if let Some(thread) = self.thread.take() {
            if thread.thread().id() != std::thread::current().id() {
                // A panic there has been printed; there is nothing to undo.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn new(endpoint: Arc<dyn Endpoint>, predicates: &Predicates) -> Self {
        Self {
            endpoint,
            stop: AtomicBool::new(false),
            has_added: AtomicBool::new(false),
            added: Mutex::default(),
            taken: AtomicUsize::new(predicates.list.len()),
            sleeps: AtomicU64::new(0),
        }
    }

    fn run(&self, predicates: &mut Predicates, policy: IdlePolicy) {
        let mut idle = Idle::new(policy);
        loop {
            // Before the round, so that there is one after the last command.
            let stop = self.stop.load(Ordering::Acquire);
            if self.round(predicates) {
                idle.reset();
            } else if !stop && !idle.pause() {
                self.sleeps.fetch_add(1, Ordering::Relaxed);
                let mut ready = || self.round(predicates) || self.stop.load(Ordering::Acquire);
                self.endpoint.sleep(policy.longest_sleep, &mut ready);
                idle.reset();
            }
            if stop {
                return;
            }
        }
    }

    fn round(&self, predicates: &mut Predicates) -> bool {
        self.endpoint.poll();
        if self.has_added.load(Ordering::Relaxed) && self.has_added.swap(false, Ordering::Acquire) {
            let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
            predicates.list.append(&mut added.list);
            self.note_taken(predicates);
        }
        let fired = predicates.evaluate();
        self.note_taken(predicates);
        fired
    }

    fn note_taken(&self, predicates: &Predicates) {
        let taken = predicates.list.len();
        if self.taken.load(Ordering::Relaxed) != taken {
            self.taken.store(taken, Ordering::Relaxed);
        }
    }
}
