// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random traffic that knows what it should read: WRITEs of random bytes to
//! random places, READs of what has been written, in one batch, so that a
//! change of order shows as wrong content.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Remote, SendWr, Vqp, Wc};

use weft_testkit::pace::{is_slow, patient};

use crate::isolation::users::{become_user, ROOT};
use crate::rng::Rng;
use crate::world::{connect, counter, full_access, keep_counters, wait_for, worker};

/// Bytes of the peer's memory that one traffic uses.
pub const SLICE: usize = 32 << 10;
const WRITES: usize = 6;
const WRITE_MAX: usize = 6000;
const STAGING: usize = WRITES * WRITE_MAX;
/// A batch that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// The line of a process after a batch.
const BATCH: &str = "batch";
/// The loss of a queue pair is counted that soon after the first request has ended by it.
const COUNTED: Duration = Duration::from_secs(2);

/// What a worker is told.
#[derive(clap::Args)]
pub struct WorkerArgs {
    /// The node that it is on.
    #[arg(long, default_value_t = 0)]
    node: u32,
    /// The node that it talks to.
    #[arg(long, default_value_t = 1)]
    to: u8,
    /// Where in the peer's memory.
    #[arg(long)]
    addr: u64,
    #[arg(long)]
    rkey: u32,
    #[arg(long)]
    seed: u64,
    /// 0: for ever.
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// The user that it is.
    #[arg(long, default_value_t = ROOT)]
    uid: u32,
}

/// One flow of traffic.
pub struct Traffic {
    device: Device,
    to: u8,
    vqp: Vqp,
    /// Queue pairs that had been lost when it last worked, if that is to be known.
    lost: i64,
    local: MemoryRegion,
    remote: Remote,
    /// What the peer's memory should be.
    model: Vec<u8>,
    rng: Rng,
}

impl Traffic {
    /// On `SLICE` bytes of `remote`.
    pub fn new(device: &Device, to: u8, remote: Remote, seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let mut this = Self {
            vqp: connect(device, to, 64)?,
            lost: counter("rc_lost").unwrap_or(i64::MAX),
            local: MemoryRegion::allocate(device, STAGING + SLICE, full_access())?,
            model: rng.bytes(SLICE),
            device: device.clone(),
            to,
            remote,
            rng,
        };
        this.write_all()?;
        Ok(this)
    }

    /// Makes the peer's memory what it should be.
    fn write_all(&mut self) -> Result<()> {
        self.local.copy_in(STAGING, &self.model)?;
        let all = self.local.slice(STAGING..STAGING + SLICE)?;
        self.vqp.write(all, self.remote)?;
        Ok(())
    }

    /// As [`Self::round`]. But on a slow kernel, where the time limits of RC pass now and
    /// then, the loss of a queue pair is no failure: the traffic goes on with another VQP.
    pub fn patient_round(&mut self) -> Result<()> {
        if !is_slow() {
            return self.round();
        }
        let before = counter("rc_lost")?;
        if let Err(error) = self.round() {
            // It may have been lost between two rounds.
            let known = self.lost;
            wait_for("a queue pair is lost", COUNTED, || {
                Ok(counter("rc_lost")? > known)
            })
            .context(error)?;
            println!("# a queue pair was lost");
            self.vqp = connect(&self.device, self.to, 64)?;
            self.write_all()?;
        }
        self.lost = before;
        Ok(())
    }

    /// One batch.
    pub fn round(&mut self) -> Result<()> {
        let mut wrs = Vec::new();
        let before = self.model.clone();
        for place in 0..=self.rng.below(WRITES) {
            let len = self.rng.below(WRITE_MAX.min(SLICE));
            let (from, to) = (
                place.min(WRITES - 1) * WRITE_MAX,
                self.rng.below(SLICE - len),
            );
            let bytes = self.rng.bytes(len);
            self.local.copy_in(from, &bytes)?;
            self.model[to..to + len].copy_from_slice(&bytes);
            let remote = self.remote.offset(to as u64);
            wrs.push(SendWr::write(self.local.slice(from..from + len)?, remote));
        }
        let start = self.rng.below(SLICE);
        let end = start + self.rng.below(SLICE - start) + 1;
        let into = self.local.slice(STAGING + start..STAGING + end)?;
        wrs.push(
            SendWr::read(into, self.remote.offset(start as u64))
                .signaled()
                .wr_id(7),
        );

        let mut wcs = [Wc::default(); 8];
        let mut taken = 0;
        let mut completed = 0;
        while taken < wrs.len() || completed == 0 {
            let progress = self
                .vqp
                .enter(&wrs[taken..], &mut wcs, 1, patient(PATIENCE))?;
            ensure!(progress.submitted + progress.completed > 0, "no progress");
            taken += progress.submitted;
            completed += progress.completed;
        }
        // A batch that fails has a completion for each of its requests, signalled or not.
        let moved = wcs[0].result().context("a request failed")?;
        ensure!(
            completed == 1,
            "{completed} completions of one signalled request: {:?}",
            wcs.iter()
                .take(completed)
                .map(Wc::status)
                .collect::<Vec<_>>()
        );
        ensure!(
            moved as usize == end - start,
            "{moved} bytes of {}",
            end - start
        );
        self.compare(start..end, &before)
    }

    /// Compares what was read with what it should be; `before` is what that was before the
    /// batch. An error says what else can be known of the cause.
    fn compare(&mut self, range: Range<usize>, before: &[u8]) -> Result<()> {
        let mut read = vec![0; range.len()];
        self.local.copy_out(STAGING + range.start, &mut read)?;
        if read == self.model[range.clone()] {
            return Ok(());
        }
        let differs = |at: &usize| read[at - range.start] != self.model[*at];
        let wrong: Vec<_> = range.clone().filter(differs).collect();
        let old = wrong
            .iter()
            .filter(|at| read[**at - range.start] == before[**at]);
        let old = old.count();
        let again = self.read_again(range.clone());
        bail!(
            "{} bytes of {range:?} are wrong, from {:?} to {:?}; {old} are as before the batch; \
             read again: {again:?} are wrong",
            wrong.len(),
            wrong.first(),
            wrong.last(),
        )
    }

    /// Reads anew; answers how many bytes are not what they should be.
    fn read_again(&mut self, range: Range<usize>) -> Result<usize> {
        let into = self
            .local
            .slice(STAGING + range.start..STAGING + range.end)?;
        self.vqp
            .read(into, self.remote.offset(range.start as u64))?;
        let mut read = vec![0; range.len()];
        self.local.copy_out(STAGING + range.start, &mut read)?;
        let pairs = read.iter().zip(&self.model[range]);
        Ok(pairs.filter(|(is, should)| is != should).count())
    }

    /// Runs batches until it is told to stop. It fails if it ran none: then it shows
    /// nothing about who disturbs it.
    pub fn until(&mut self, stop: &AtomicBool, pause: Duration) -> Result<()> {
        let mut rounds = 0;
        while !stop.load(Ordering::Relaxed) {
            self.round().with_context(|| format!("round {rounds}"))?;
            rounds += 1;
            thread::sleep(pause);
        }
        ensure!(rounds > 0, "the bystander did nothing");
        Ok(())
    }

    /// What the peer's memory should be.
    pub fn model(&self) -> &[u8] {
        &self.model
    }
}

/// A process with traffic on `SLICE` bytes of `remote`.
pub fn process(remote: Remote, seed: u64) -> Result<Command> {
    let mut command = worker(&["traffic"])?;
    command
        .args(["--addr", &remote.addr.to_string()])
        .args(["--rkey", &remote.rkey.to_string()])
        .args(["--seed", &seed.to_string()]);
    Ok(command)
}

/// Such a process, which tells of each batch.
pub struct Neighbour {
    child: Child,
    /// Batches that have ended well.
    batches: Arc<AtomicUsize>,
}

impl Neighbour {
    /// Starts one that is a user's, and waits until it is at work.
    pub fn start(remote: Remote, seed: u64, uid: u32) -> Result<Self> {
        let mut child = process(remote, seed)?
            .args(["--uid", &uid.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take();
        let mut this = Self {
            child,
            batches: Arc::default(),
        };
        let lines = BufReader::new(stdout.context("no output")?).lines();
        let batches = this.batches.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                batches.fetch_add(usize::from(line == BATCH), Ordering::Relaxed);
            }
        });
        this.wait_for_batches(1)?;
        Ok(this)
    }

    /// Waits for a batch that begins from now on.
    pub fn works(&mut self) -> Result<()> {
        // One may be under way.
        self.wait_for_batches(self.batches.load(Ordering::Relaxed) + 2)
    }

    /// Waits until so many have ended.
    fn wait_for_batches(&mut self, count: usize) -> Result<()> {
        wait_for("the neighbour's batch ends", PATIENCE, || {
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "it ended: {ended:?}");
            Ok(self.batches.load(Ordering::Relaxed) >= count)
        })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is such a process. Says a line when it is about to begin, and one after each batch.
pub fn work(args: &WorkerArgs) -> Result<()> {
    keep_counters()?;
    become_user(args.uid)?;
    let device = Device::open_on(args.node)?;
    say("ready")?;
    let remote = Remote {
        addr: args.addr,
        rkey: args.rkey,
    };
    let mut traffic = Traffic::new(&device, args.to, remote, args.seed)?;
    let mut round = 0;
    while args.rounds == 0 || round < args.rounds {
        traffic
            .patient_round()
            .with_context(|| format!("round {round}"))?;
        say(BATCH)?;
        round += 1;
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}
