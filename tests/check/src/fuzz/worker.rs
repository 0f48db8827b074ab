// SPDX-License-Identifier: MIT OR Apache-2.0

//! A fuzzing process: nobody's, with two threads that issue operations, and one
//! that rewrites their arguments.

mod data;
mod requests;
mod shared;
mod two_sided;

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{setrlimit, Resource};

use crate::isolation::users::NOBODY;
use crate::raw::{Queue as Rings, Session};
use crate::rng::Rng;

use super::arena::Arena;
use super::live::Live;
use super::mutate::rewrite;
use super::stats::{Shared, Stats};

const LOCKED: u64 = 64 << 20;
const THREADS: u64 = 2;
/// Sessions on node 1 that a process has before it is nobody.
const FOREIGN: usize = 60;
/// One in so many of them goes for good when it is let go; the others come again.
const GONE: usize = 64;
/// Sessions that a thread holds at most.
const SESSIONS: usize = 4;
/// No call waits longer: so often a signal comes.
const TICK: Duration = Duration::from_millis(10);
const EVERY: u64 = 500;

/// What a process is told.
#[derive(clap::Args)]
pub struct WorkerArgs {
    #[arg(long)]
    ops: u64,
    #[arg(long)]
    seed: u64,
}

/// A region that should be there.
#[derive(Clone, Copy)]
struct Region {
    key: u32,
    addr: u64,
    len: u64,
    access: u32,
}

/// A VQP that should be there.
#[derive(Clone)]
struct Queue {
    handle: u32,
    rings: Arc<Rings>,
    /// The node that it is connected to.
    to: Option<u8>,
    /// It sends messages, too.
    has_port: bool,
    is_bound: bool,
    /// Each of its requests names its peer; `to` is then any node.
    is_unconnected: bool,
    /// Who has sent it something.
    sender: Option<u32>,
    failed: bool,
}

/// A peer that should be open.
#[derive(Clone, Copy)]
struct Peer {
    handle: u32,
    /// Its node.
    to: u8,
}

/// A session and what a thread knows of it.
#[derive(Clone)]
struct Known {
    session: Arc<Session>,
    node: u8,
    queues: Vec<Queue>,
    regions: Vec<Region>,
    peers: Vec<Peer>,
}

impl Known {
    fn new(session: Session, node: u8) -> Self {
        Self {
            session: Arc::new(session),
            node,
            queues: Vec::new(),
            regions: Vec::new(),
            peers: Vec::new(),
        }
    }
}

/// Where threads leave sessions for each other.
type Pool = Mutex<Vec<Known>>;

/// One thread.
struct Fuzzer<'a> {
    rng: Rng,
    arena: Arena,
    known: Vec<Known>,
    pool: &'a Pool,
    /// Sessions on node 1, which nobody may open.
    foreign: &'a Mutex<Vec<Known>>,
    live: &'a Live,
    /// Handles of what is gone.
    gone: Vec<u32>,
    /// It has its parent's sessions, but not the rings.
    is_child: bool,
    stats: Stats,
}

/// Is the process.
pub fn work(args: &WorkerArgs) -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, LOCKED, LOCKED)?;
    let foreign = (0..FOREIGN).map(|_| Ok(Known::new(Session::open(1)?, 1)));
    let foreign = Mutex::new(foreign.collect::<Result<Vec<_>>>()?);
    // SAFETY: no memory is involved.
    Errno::result(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) })?;
    let arenas = (0..THREADS).map(Arena::map).collect::<Result<Vec<_>>>()?;
    let (stop, pool, total) = (AtomicBool::new(false), Pool::default(), Shared::default());
    let live = Live::default();
    let ids = [const { AtomicI32::new(0) }; THREADS as usize];
    listen();
    thread::scope(|scope| {
        scope.spawn(|| tick(&ids, &stop));
        scope.spawn(|| rewrite(args.seed ^ 99, &arenas, &live, &stop));
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let fuzzer = Fuzzer {
                    rng: Rng::new(args.seed + n),
                    arena: arenas[n as usize],
                    known: Vec::new(),
                    pool: &pool,
                    foreign: &foreign,
                    live: &live,
                    gone: Vec::new(),
                    is_child: false,
                    stats: Stats::default(),
                };
                let (id, total) = (&ids[n as usize], &total);
                scope.spawn(move || fuzzer.run(args.ops.div_ceil(THREADS), id, total))
            })
            .collect();
        let panicked = threads.into_iter().any(|thread| thread.join().is_err());
        stop.store(true, Ordering::Relaxed);
        if panicked {
            return Err(anyhow!("a fuzzing thread panicked"));
        }
        Ok(())
    })?;
    let total = total
        .into_inner()
        .map_err(|_| anyhow!("a lock is poisoned"))?;
    for line in total.lines() {
        println!("{line}");
    }
    Ok(())
}

/// Does nothing: that it came ends a wait.
extern "C" fn woken(_signal: libc::c_int) {}

/// Lets a signal end a call and do nothing else.
fn listen() {
    // SAFETY: all fields of the struct may be zero.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = woken;
    action.sa_sigaction = handler as *const () as usize;
    // SAFETY: the handler touches nothing.
    unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
}

/// Sends these threads a signal again and again.
fn tick(threads: &[AtomicI32], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        for thread in threads {
            let id = thread.load(Ordering::Relaxed);
            if id != 0 {
                // SAFETY: no memory is involved.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGALRM) };
            }
        }
    }
}

impl Fuzzer<'_> {
    fn run(mut self, ops: u64, id: &AtomicI32, total: &Shared) {
        // SAFETY: no memory is involved.
        id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        for n in 1..=ops {
            self.operation();
            self.stats.add("operations", 1);
            if n % EVERY == 0 || n == ops {
                println!("progress {}", (n - 1) % EVERY + 1);
                let _ = std::io::stdout().flush();
            }
        }
        if let Ok(mut total) = total.lock() {
            total.merge(&self.stats);
        }
    }

    fn operation(&mut self) {
        match self.rng.below(3000) {
            0..=1 => self.fork(),
            2..=60 => self.exchange(),
            61..=120 => {
                let (page, pages) = (self.rng.next(), self.rng.next() % 8 + 1);
                let how = self.rng.next();
                self.arena.disturb(page, pages, how);
                self.stats.outcome(Ok(()));
            }
            121..=180 => {
                if self.known.len() > 1 {
                    let gone = self.rng.below(self.known.len());
                    let gone = self.known.swap_remove(gone);
                    self.let_go(gone);
                }
                self.stats.outcome(Ok(()));
            }
            _ => {
                let outcome = self.request();
                self.stats.outcome(outcome);
            }
        }
    }

    /// Leaves a session, under a descriptor of its own or the same, and takes
    /// one that the other thread has left.
    fn exchange(&mut self) {
        self.stats.outcome(Ok(()));
        let Ok(mut pool) = self.pool.try_lock() else {
            return;
        };
        if let Some(known) = self.known.first() {
            pool.push(known.clone());
        }
        let taken = self.rng.below(pool.len().max(1));
        if taken < pool.len() && self.known.len() < SESSIONS {
            self.known.push(pool.swap_remove(taken));
        }
        let gone = (pool.len() > SESSIONS).then(|| pool.remove(0));
        drop(pool);
        gone.into_iter().for_each(|gone| self.let_go(gone));
    }

    /// Closes a session, unless it is one of the few on node 1: most of those are
    /// kept, with what they have, for whoever wants a session there again.
    fn let_go(&mut self, gone: Known) {
        let is_last = Arc::strong_count(&gone.session) == 1;
        if self.is_child || gone.node != 1 || !is_last || self.rng.below(GONE) == 0 {
            return;
        }
        if let Ok(mut foreign) = self.foreign.lock() {
            foreign.push(gone);
        }
    }

    /// A child that goes on with the sessions of its parent, and ends or is
    /// killed; a descriptor that is duplicated and closed beneath it.
    fn fork(&mut self) {
        if let Some(known) = self.known.first() {
            // SAFETY: no memory is involved; the descriptor is a new one of ours.
            let copy = unsafe { libc::dup(known.session.as_fd().as_raw_fd()) };
            // SAFETY: it is nobody else's.
            unsafe { libc::close(copy) };
        }
        let die_us = self.rng.below(6000) as u32;
        // SAFETY: the child takes no lock that another thread may hold but the
        // allocator's, which the C library hands on in order.
        match unsafe { libc::fork() } {
            0 => {
                self.is_child = true;
                for _ in 0..20 {
                    let _ = self.request();
                }
                // SAFETY: ends the child without what the parent would do.
                unsafe { libc::_exit(0) };
            }
            child if child > 0 => {
                // SAFETY: no memory is involved.
                unsafe { libc::usleep(die_us) };
                // SAFETY: our child, which nobody has waited for.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: the status is not wanted.
                while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
                    && Errno::last() == Errno::EINTR
                {}
                self.stats.add("children", 1);
                self.stats.outcome(Ok(()));
            }
            _ => self.stats.outcome(Err(Errno::last())),
        }
    }
}
