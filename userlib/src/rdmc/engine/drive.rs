// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine between threads. The polling thread drives it. A thread that
//! sends begins its message itself where nobody else is at the engine: that
//! saves the message the way from one thread to another, which for a short one
//! is as long as all the rest.

use super::super::memory::Buffer;
use super::glance::Glance;
use super::notice::Outbox;
use super::shared::{Command, Commands};
use super::{Engine, Node};
use crate::fabric::Meeting;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// How often a sender lets the polling thread finish its round. A round in which
/// nothing happens is over with the first.
const PATIENCE: usize = 4;

/// What all threads of a node share. The engine is locked before the commands.
pub(in crate::rdmc) struct Drive {
    commands: Commands,
    /// A sender has begun a message since the polling thread's last round.
    begun: AtomicBool,
    /// None once the polling thread has ended.
    engine: Mutex<Option<Engine>>,
}

impl Drive {
    /// An engine for a node, and who drives it.
    pub(in crate::rdmc) fn new(node: Node, meeting: Meeting) -> (Arc<Self>, Driver) {
        let drive = Arc::new(Self {
            commands: Commands::default(),
            begun: AtomicBool::new(false),
            engine: Mutex::new(Some(Engine::new(node.clone(), meeting))),
        });
        let driver = Driver {
            drive: Arc::clone(&drive),
            glance: Glance::new(node),
            outbox: Outbox::default(),
        };
        (drive, driver)
    }

    /// Leaves a command to the polling thread, which is to be rung; or gives it
    /// back if that has ended.
    pub(in crate::rdmc) fn command(&self, command: Command) -> Result<(), Command> {
        self.commands.push(command)
    }

    /// Begins a message here and now, or gives it back if the polling thread is
    /// at work, or has to do something first. No callback is called. The polling
    /// thread, which this is not, is to be rung for what the message needs then.
    pub(in crate::rdmc) fn begin(
        &self,
        group: u32,
        buffer: Buffer,
        size: usize,
    ) -> Result<(), Buffer> {
        match self.enter().as_deref_mut() {
            // Sent before by the same thread, and not begun.
            Some(_) if self.commands.any() => Err(buffer),
            Some(Some(engine)) => {
                self.begun.store(true, Ordering::Release);
                engine.begin(group, buffer, size)
            }
            _ => Err(buffer),
        }
    }

    /// The engine, unless it is in use for longer.
    fn enter(&self) -> Option<MutexGuard<'_, Option<Engine>>> {
        for _ in 0..PATIENCE {
            match self.engine.try_lock() {
                Ok(engine) => return Some(engine),
                // This thread has been woken in the midst of the other's round,
                // and perhaps in its place.
                Err(TryLockError::WouldBlock) => thread::yield_now(),
                // A callback has panicked, and the groups are about to end.
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
        None
    }
}

/// The polling thread's hold of the engine. When it is dropped, perhaps because
/// a callback has panicked, the groups end.
pub(in crate::rdmc) struct Driver {
    drive: Arc<Drive>,
    glance: Glance,
    outbox: Outbox,
}

impl Driver {
    /// Whether the node takes in others.
    #[cfg(any(test, feature = "sim"))]
    pub(in crate::rdmc) fn has_arrived(&self) -> bool {
        let engine = self.drive.engine.lock();
        let engine = engine.unwrap_or_else(PoisonError::into_inner);
        engine.as_ref().is_some_and(Engine::has_arrived)
    }

    /// Obeys commands and does a little for each group. Says whether there was
    /// anything to do.
    pub(in crate::rdmc) fn step(&mut self) -> bool {
        let Self {
            drive,
            glance,
            outbox,
        } = self;
        let is_told = drive.commands.any() || drive.begun.load(Ordering::Acquire);
        if !is_told && glance.sees_nothing_new() {
            return false;
        }
        let mut held = match drive.engine.try_lock() {
            Ok(held) => held,
            // A sender is at it, for a moment, and rings afterwards.
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
        };
        let Some(engine) = &mut *held else {
            return false;
        };
        drive.begun.store(false, Ordering::Release);
        glance.look(engine);
        let fired = engine.step(drive.commands.take(), outbox);
        glance.keep(!fired);
        drop(held);
        outbox.deliver();
        fired
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let engine = self.drive.engine.lock();
        let engine = engine.unwrap_or_else(PoisonError::into_inner).take();
        let Some(engine) = engine else {
            return;
        };
        engine.close(self.drive.commands.close(), &mut self.outbox);
        // What has panicked is not called again, and who waits learns the end.
        match thread::panicking() {
            true => self.outbox.deliver_ends(),
            false => self.outbox.deliver(),
        }
    }
}
