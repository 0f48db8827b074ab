// SPDX-License-Identifier: MIT OR Apache-2.0

//! One of the four: has memory for the others, writes to theirs and reads it
//! back, and says what it sees.

use std::io::{stdin, BufRead as _, Write as _};
use std::sync::mpsc::{channel, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Remote, SendWr, Vqp, Wc, WcStatus};

use crate::rng::Rng;
use crate::world::{connect, full_access};
use weft_testkit::pace::patient;

use super::PEERS;

/// Bytes that one life of a peer has in another's memory.
const SLICE: usize = 16 << 10;
/// A slice is used again after so many lives: by then nothing is on its way.
const LIVES: usize = 4;
const WRITES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);
/// Batches after which it says that it is at work.
const EVERY: usize = 20;

/// What it is told.
#[derive(clap::Args)]
pub struct PeerArgs {
    #[arg(long)]
    index: usize,
    #[arg(long)]
    life: usize,
}

/// What goes to one other.
struct Flow {
    to: usize,
    life: usize,
    vqp: Vqp,
    remote: Remote,
    local: MemoryRegion,
}

/// Is it.
pub fn work(args: &PeerArgs) -> Result<()> {
    let device = Device::open_on((args.index % 2) as u32)?;
    let memory = MemoryRegion::allocate(&device, PEERS * LIVES * SLICE, full_access())?;
    say(&format!(
        "place {} {}",
        memory.remote().addr,
        memory.remote().rkey
    ))?;
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut rng = Rng::new((args.index * 1000 + args.life) as u64);
    let mut flows: Vec<Flow> = Vec::new();
    let mut rounds = 0;
    loop {
        match lines.try_recv() {
            Ok(line) => {
                let flow = Flow::new(&device, args, &line)?;
                flows.retain(|other| other.to != flow.to);
                flows.push(flow);
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        let mut at = 0;
        while at < flows.len() {
            let flow = &mut flows[at];
            match flow
                .round(&mut rng)
                .with_context(|| format!("to {}", flow.to))?
            {
                None => {
                    at += 1;
                    rounds += 1;
                }
                Some(status) => {
                    say(&format!("error {} {} {status:?}", flow.to, flow.life))?;
                    flows.swap_remove(at);
                }
            }
            if rounds == EVERY {
                say(&format!("rounds {rounds}"))?;
                rounds = 0;
            }
        }
        thread::sleep(Duration::from_micros(500));
    }
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

impl Flow {
    /// To whom the line names.
    fn new(device: &Device, args: &PeerArgs, line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let mut word = || words.next().context("a short line");
        let (to, life): (usize, usize) = (word()?.parse()?, word()?.parse()?);
        let (addr, rkey) = (word()?.parse()?, word()?.parse()?);
        let slice = args.index * LIVES + args.life % LIVES;
        Ok(Self {
            to,
            life,
            vqp: connect(device, (to % 2) as u8, 16)?,
            remote: Remote { addr, rkey }.offset((slice * SLICE) as u64),
            local: MemoryRegion::allocate(device, 2 * SLICE, full_access())?,
        })
    }

    /// One batch of WRITEs and a READ of it all; answers with the first failure.
    fn round(&mut self, rng: &mut Rng) -> Result<Option<WcStatus>> {
        let bytes = rng.bytes(SLICE);
        self.local.copy_in(0, &bytes)?;
        let mut wrs = Vec::new();
        for i in 0..WRITES {
            let (from, to) = (i * SLICE / WRITES, (i + 1) * SLICE / WRITES);
            let part = self.local.slice(from..to)?;
            wrs.push(SendWr::write(part, self.remote.offset(from as u64)));
        }
        wrs.push(SendWr::read(
            self.local.slice(SLICE..2 * SLICE)?,
            self.remote,
        ));
        let wrs: Vec<_> = (0..)
            .zip(wrs)
            .map(|(id, wr)| wr.signaled().wr_id(id))
            .collect();
        let mut wcs = [Wc::default(); WRITES + 1];
        let progress = self
            .vqp
            .enter(&wrs, &mut wcs, wrs.len(), patient(PATIENCE))?;
        ensure!(
            progress.completed == wrs.len(),
            "{} completions of {}",
            progress.completed,
            wrs.len()
        );
        let in_order = wcs.iter().map(|wc| wc.wr_id()).eq(0..wrs.len() as u64);
        ensure!(in_order, "completions came out of order");
        let statuses: Vec<_> = wcs.iter().map(|wc| wc.status()).collect();
        let good = |status: &Option<WcStatus>| *status == Some(WcStatus::Success);
        let Some(first) = statuses.iter().position(|status| !good(status)) else {
            let mut read = vec![0; SLICE];
            self.local.copy_out(SLICE, &mut read)?;
            ensure!(read == bytes, "other bytes were read than written");
            return Ok(None);
        };
        let flushed = |status: &Option<WcStatus>| *status == Some(WcStatus::WrFlushErr);
        ensure!(
            statuses[first + 1..].iter().all(flushed),
            "statuses are {statuses:?}"
        );
        Ok(Some(statuses[first].context("an unknown status")?))
    }
}
