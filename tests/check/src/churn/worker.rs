// SPDX-License-Identifier: MIT OR Apache-2.0

//! One of the two processes.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Result};
use weft_core::uapi::{
    self, MrReg, Pod, SendWr, Sge, VqpCreate, OP_READ, OP_WRITE, RINGS_NONE, SEND_SIGNALED,
};

use super::{own, shared};
use crate::raw::{request, Memory, Session};
use crate::rng::Rng;
use crate::world::gid;

pub(super) const THREADS: usize = 64;
/// Requests of a thread that are under way at a time, at most.
pub(super) const DEPTH: usize = 16;
/// What takes longer is lost.
pub(super) const PATIENCE_NS: u64 = 50_000_000_000;
/// Bytes of a WRITE: its number, and a checksum over that and what is between.
const BLOCK: usize = 64;
/// How often the process says how far it is.
const EVERY: Duration = Duration::from_millis(200);

/// What it is told.
#[derive(clap::Args)]
pub struct WorkerArgs {
    /// `own` or `shared`.
    #[arg(long)]
    rings: String,
    #[arg(long)]
    seed: u64,
}

/// What the threads have in common: a session on node 0, and memory here and on node 1.
pub(super) struct Ground {
    pub(super) session: Session,
    _far: Session,
    near: (Memory, MrReg),
    there: (Memory, MrReg),
    /// Requests that have ended as they should.
    pub(super) done: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// Is it: ends with an error, or is killed.
pub fn work(args: &WorkerArgs) -> Result<()> {
    let (session, far) = (Session::open(0)?, Session::open(1)?);
    let region = |session: &Session, slots: usize| -> Result<_> {
        let memory = Memory::map(slots * DEPTH * BLOCK)?;
        let len = (slots * DEPTH * BLOCK) as u64;
        let region = session.register(&memory, 0, len, uapi::ACCESS_ALL)?;
        Ok((memory, region))
    };
    let ground = Ground {
        // Twice: for what is written, and for what is read.
        near: region(&session, 2 * THREADS)?,
        there: region(&far, THREADS)?,
        session,
        _far: far,
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        scope.spawn(|| tell(&ground));
        let outcome = match args.rings.as_str() {
            "own" => own::run(&ground, args.seed),
            "shared" => shared::run(&ground, args.seed),
            other => bail!("no such rings: {other}"),
        };
        ground.stop.store(true, Ordering::Relaxed);
        outcome.and(Err(anyhow!("the threads have ended")))
    })
}

fn tell(ground: &Ground) {
    while !ground.stop.load(Ordering::Relaxed) {
        thread::sleep(EVERY);
        let done = ground.done.swap(0, Ordering::Relaxed);
        if done > 0 {
            println!("done {done}");
            let _ = std::io::stdout().flush();
        }
    }
}

impl Ground {
    /// A connected VQP whose completions go there.
    pub(super) fn vqp(&self, cq: u32) -> Result<u32> {
        Ok(self.session.make_vqp(VqpCreate {
            cq,
            rq: RINGS_NONE,
            max_send_wr: DEPTH as u32,
            gid: gid(1),
            ..Pod::zeroed()
        })?)
    }
}

/// One thread's blocks, and what should be in them.
pub(super) struct Lane<'a> {
    ground: &'a Ground,
    thread: usize,
    vqp: u32,
    rng: Rng,
    /// The number of the next request.
    next: u64,
    /// What was written to each block last.
    model: [u64; DEPTH],
}

impl<'a> Lane<'a> {
    pub(super) fn new(ground: &'a Ground, thread: usize, vqp: u32, seed: u64) -> Self {
        Self {
            ground,
            thread,
            vqp,
            rng: Rng::new(seed ^ ((thread as u64) << 32)),
            next: 0,
            model: [0; DEPTH],
        }
    }

    /// A batch: WRITEs to some blocks, and a READ of one of them behind those. Answers the
    /// requests, and which block is read.
    pub(super) fn batch(&mut self) -> (Vec<SendWr>, usize) {
        let count = 1 + self.rng.below(DEPTH - 1);
        let mut wrs = Vec::with_capacity(count + 1);
        let mut block = 0;
        for from in 0..count {
            block = self.rng.below(DEPTH);
            self.fill(from);
            self.model[block] = self.next;
            wrs.push(self.request(OP_WRITE, self.near_at(from), block));
        }
        wrs.push(self.request(OP_READ, self.landing_at(), block));
        (wrs, block)
    }

    /// The numbers of the next requests' completions begin here.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn request(&mut self, opcode: u8, near: u64, block: usize) -> SendWr {
        let (_, here) = &self.ground.near;
        let (_, there) = &self.ground.there;
        let local = Sge {
            addr: here.addr + near,
            len: BLOCK as u32,
            lkey: here.lkey,
        };
        let at = ((self.thread * DEPTH + block) * BLOCK) as u64;
        let wr_id = self.next;
        self.next += 1;
        SendWr {
            wr_id,
            vqp: self.vqp,
            flags: SEND_SIGNALED,
            ..request(opcode, local, there.addr + at, there.rkey)
        }
    }

    fn near_at(&self, block: usize) -> u64 {
        ((self.thread * DEPTH + block) * BLOCK) as u64
    }

    fn landing_at(&self) -> u64 {
        ((THREADS + self.thread) * DEPTH * BLOCK) as u64
    }

    /// Puts the next request's number and its checksum into a block.
    fn fill(&mut self, block: usize) {
        let at = self.near_at(block) as usize;
        let (memory, _) = &self.ground.near;
        let mut sum = self.next;
        memory.word(at).store(self.next, Ordering::Relaxed);
        for word in 1..BLOCK / 8 - 1 {
            let value = self.rng.next();
            sum = sum.rotate_left(7) ^ value;
            memory.word(at + 8 * word).store(value, Ordering::Relaxed);
        }
        memory.word(at + BLOCK - 8).store(sum, Ordering::Relaxed);
    }

    /// What was read is whole, and what was written last.
    pub(super) fn look(&self, block: usize) -> Result<()> {
        let at = self.landing_at() as usize;
        let (memory, _) = &self.ground.near;
        let word = |word: usize| memory.word(at + 8 * word).load(Ordering::Relaxed);
        let number = word(0);
        let sum = (1..BLOCK / 8 - 1).fold(number, |sum, at| sum.rotate_left(7) ^ word(at));
        ensure!(
            sum == word(BLOCK / 8 - 1),
            "the bytes of request {number} are not whole"
        );
        ensure!(
            number == self.model[block],
            "request {number} was read, not {}",
            self.model[block]
        );
        Ok(())
    }
}
