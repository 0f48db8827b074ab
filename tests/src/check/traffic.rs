// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random traffic that knows what it should read: WRITEs of random bytes to
//! random places, READs of what has been written, in one batch, so that a
//! change of order shows as wrong content.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Remote, SendWr, Vqp, Wc};

use crate::rng::Rng;
use crate::world::{connect, full_access};

/// Bytes of the peer's memory that one traffic uses.
pub const SLICE: usize = 32 << 10;
const WRITES: usize = 6;
const WRITE_MAX: usize = 6000;
const STAGING: usize = WRITES * WRITE_MAX;
/// A batch that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);

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
}

/// One flow of traffic.
pub struct Traffic {
    vqp: Vqp,
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
        let local = MemoryRegion::allocate(device, STAGING + SLICE, full_access())?;
        let mut vqp = connect(device, to, 64)?;
        let model = rng.bytes(SLICE);
        local.copy_in(STAGING, &model)?;
        vqp.write(local.slice(STAGING..STAGING + SLICE)?, remote)?;
        Ok(Self {
            vqp,
            local,
            remote,
            model,
            rng,
        })
    }

    /// One batch.
    pub fn round(&mut self) -> Result<()> {
        let mut wrs = Vec::new();
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
            let progress = self.vqp.enter(&wrs[taken..], &mut wcs, 1, PATIENCE)?;
            ensure!(progress.submitted + progress.completed > 0, "no progress");
            taken += progress.submitted;
            completed += progress.completed;
        }
        ensure!(
            completed == 1,
            "{completed} completions of one signalled request: {:?}",
            wcs.iter()
                .take(completed)
                .map(Wc::status)
                .collect::<Vec<_>>()
        );
        let moved = wcs[0].result().context("a request failed")?;
        ensure!(
            moved as usize == end - start,
            "{moved} bytes of {}",
            end - start
        );
        self.compare(start, end)
    }

    fn compare(&self, start: usize, end: usize) -> Result<()> {
        let mut read = vec![0; end - start];
        self.local.copy_out(STAGING + start, &mut read)?;
        let wrong = read
            .iter()
            .zip(&self.model[start..end])
            .position(|(a, b)| a != b);
        ensure!(
            wrong.is_none(),
            "byte {:?} of {start}..{end} is wrong",
            wrong.map(|at| at + start)
        );
        Ok(())
    }

    /// What the peer's memory should be.
    pub fn model(&self) -> &[u8] {
        &self.model
    }
}

/// Is a worker. Says a line when it is about to begin.
pub fn work(args: &WorkerArgs) -> Result<()> {
    let device = Device::open_on(args.node)?;
    println!("ready");
    std::io::stdout().flush()?;
    let remote = Remote {
        addr: args.addr,
        rkey: args.rkey,
    };
    let mut traffic = Traffic::new(&device, args.to, remote, args.seed)?;
    let mut round = 0;
    while args.rounds == 0 || round < args.rounds {
        traffic.round().with_context(|| format!("round {round}"))?;
        round += 1;
    }
    Ok(())
}
