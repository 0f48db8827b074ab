// SPDX-License-Identifier: MIT OR Apache-2.0

//! A place where threads and tasks of this process wait for a condition that another thread
//! makes true.

use crate::futex::{wait, wake, Scope};
use std::future::poll_fn;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Opening it costs a fence and a load if nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opened: AtomicU32,
    /// Threads and tasks that wait.
    waiting: AtomicU32,
    /// Threads among them.
    threads: AtomicU32,
    tasks: Mutex<Tasks>,
}

/// Tasks that wait, each under a number of its own.
#[derive(Debug, Default)]
struct Tasks {
    wakers: Vec<(u64, Waker)>,
    next: u64,
}

impl Gate {
    /// Wakes whoever waits to look again. Called after the condition changed.
    pub(crate) fn open(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        self.opened.fetch_add(1, Ordering::Release);
        if self.threads.load(Ordering::Relaxed) != 0 {
            wake(&self.opened, i32::MAX, Scope::Process);
        }
        let woken = {
            let mut tasks = self.tasks();
            let woken = std::mem::take(&mut tasks.wakers);
            for _ in &woken {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            woken
        };
        // Without the lock: what a waker does is the executor's matter.
        for (_, waker) in woken {
            waker.wake();
        }
    }

    /// Waits until `done`, or the end; answers with the last that it said.
    pub(crate) fn wait_until(&self, end: Option<Instant>, mut done: impl FnMut() -> bool) -> bool {
        self.threads.fetch_add(1, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let reached = loop {
            let opened = self.opened.load(Ordering::Acquire);
            fence(Ordering::SeqCst);
            if done() {
                break true;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break false;
            }
            wait(&self.opened, opened, left, Scope::Process);
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.threads.fetch_sub(1, Ordering::SeqCst);
        reached
    }

    /// Waits until `done`, as a task.
    pub(crate) async fn wait(&self, mut done: impl FnMut() -> bool) {
        let mut place = TaskPlace {
            gate: self,
            number: None,
        };
        poll_fn(|context| place.look(context, &mut done)).await;
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // Each change is one call: a panic leaves nothing half-done.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's place among those that wait, given back when it is dropped.
struct TaskPlace<'a> {
    gate: &'a Gate,
    number: Option<u64>,
}

impl TaskPlace<'_> {
    fn look(&mut self, context: &Context<'_>, done: &mut impl FnMut() -> bool) -> Poll<()> {
        // First: a thread that makes the condition true after this sees the task.
        self.take(context.waker());
        fence(Ordering::SeqCst);
        match done() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn take(&mut self, waker: &Waker) {
        let mut tasks = self.gate.tasks();
        let known = self.number.and_then(|number| tasks.find(number));
        if let Some(at) = known {
            tasks.wakers[at].1.clone_from(waker);
            return;
        }
        let number = tasks.next;
        tasks.next += 1;
        tasks.wakers.push((number, waker.clone()));
        self.number = Some(number);
        self.gate.waiting.fetch_add(1, Ordering::SeqCst);
    }
}

impl Tasks {
    fn find(&self, number: u64) -> Option<usize> {
        self.wakers.iter().position(|(other, _)| *other == number)
    }
}

impl Drop for TaskPlace<'_> {
    fn drop(&mut self) {
        let mut tasks = self.gate.tasks();
        let known = self.number.and_then(|number| tasks.find(number));
        if let Some(at) = known {
            tasks.wakers.swap_remove(at);
            self.gate.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::AtomicU64;
    use std::sync::Arc;
    use std::task::Wake;
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<R>(future: impl Future<Output = R>) -> R {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Two take turns: each waits for the other one's number. If a wake were lost they would
    /// wait for ever.
    #[test]
    fn no_task_and_no_thread_sleeps_through_what_it_waits_for() {
        const TURNS: u64 = 20_000;
        let (gate, number) = (Gate::default(), AtomicU64::new(0));
        let go_on = || {
            number.fetch_add(1, Ordering::SeqCst);
            gate.open();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in (0..TURNS).step_by(2) {
                    block_on(gate.wait(|| number.load(Ordering::SeqCst) == turn));
                    go_on();
                }
            });
            for turn in (1..TURNS).step_by(2) {
                gate.wait_until(None, || number.load(Ordering::SeqCst) == turn);
                go_on();
            }
        });
        assert_eq!(number.load(Ordering::SeqCst), TURNS);
        assert_eq!(gate.waiting.load(Ordering::SeqCst), 0);
        assert!(gate.tasks().wakers.is_empty());
    }

    #[test]
    fn a_task_that_gives_up_leaves_nothing_behind() {
        let gate = Gate::default();
        {
            let mut waits = pin!(gate.wait(|| false));
            for _ in 0..2 {
                let waker = Waker::noop();
                let mut context = Context::from_waker(waker);
                assert!(waits.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(gate.waiting.load(Ordering::SeqCst), 1);
        }
        assert_eq!(gate.waiting.load(Ordering::SeqCst), 0);
        assert!(gate.tasks().wakers.is_empty());
    }
}
