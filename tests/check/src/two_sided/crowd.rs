// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many senders to one port, and a reply to each: its own bytes, on its own VQP.

use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{bail, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, RecvWr, SendWr, Vqp};

use super::ends::{sender, Ear, PATIENCE};
use crate::rng::Rng;
use crate::world::{full_access, worker};
use weft_testkit::pace::patient;

/// VQPs of a worker.
const VQPS: usize = 16;
/// Bytes of a message, at most.
const LONGEST: usize = 6000;
/// Bytes of a VQP's memory: what it sends, and what comes back.
const PLACE: usize = 2 * LONGEST;

/// What a worker is told.
#[derive(clap::Args)]
pub struct CallerArgs {
    #[arg(long)]
    port: u32,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    rounds: usize,
}

/// A VQP that calls, and what it has said.
struct Caller {
    vqp: Vqp,
    said: Vec<u8>,
    at: usize,
}

impl Caller {
    /// Says something, and has a buffer ready for the answer.
    fn say(&mut self, memory: &MemoryRegion, rng: &mut Rng, imm: u32) -> Result<()> {
        let most = LONGEST >> rng.below(4);
        let len = 1 + rng.below(most);
        self.said = rng.bytes(len);
        memory.copy_in(self.at, &self.said)?;
        let back = self.at + LONGEST;
        let buffer = RecvWr::new(memory.slice(back..back + LONGEST)?).wr_id(u64::from(imm));
        ensure!(self.vqp.post_recv(&[buffer]) == 1, "no room for a buffer");
        let wr = SendWr::send_with_imm(memory.slice(self.at..self.at + len)?, imm);
        ensure!(self.vqp.post_send(&[wr])? == 1, "no room for a message");
        Ok(())
    }

    /// Hears the same.
    fn hear(&mut self, memory: &MemoryRegion, imm: u32) -> Result<()> {
        let mut wcs = [weft_shim::Wc::default()];
        let done = self
            .vqp
            .enter(&[], &mut wcs, 1, patient(PATIENCE))?
            .completed;
        ensure!(done == 1, "no reply");
        let wc = wcs[0];
        let len = wc.result().with_context(|| format!("{wc:?}"))?;
        ensure!(
            wc.is_recv() && wc.wr_id() == u64::from(imm) && wc.imm() == Some(imm),
            "it is {wc:?}, not the reply to {imm}"
        );
        let mut heard = vec![0; len as usize];
        memory.copy_out(self.at + LONGEST, &mut heard)?;
        ensure!(heard == self.said, "the reply to {imm} is another's");
        Ok(())
    }
}

/// Is a worker: 16 VQPs that call at the same time.
pub fn call(args: &CallerArgs) -> Result<()> {
    let device = Device::open_on(0)?;
    let memory = MemoryRegion::allocate(&device, VQPS * PLACE, full_access())?;
    let mut rng = Rng::new(args.seed);
    let mut callers = Vec::new();
    for n in 0..VQPS {
        callers.push(Caller {
            vqp: sender(&device, args.port, 4, 4)?,
            said: Vec::new(),
            at: n * PLACE,
        });
    }
    for round in 0..args.rounds {
        for (n, caller) in callers.iter_mut().enumerate() {
            caller.say(&memory, &mut rng, (round * VQPS + n) as u32)?;
        }
        for (n, caller) in callers.iter_mut().enumerate() {
            caller
                .hear(&memory, (round * VQPS + n) as u32)
                .with_context(|| format!("round {round}, VQP {n}"))?;
        }
    }
    Ok(())
}

/// Sends each message back to who it came from.
fn echo(ear: &mut Ear, total: usize, children: &mut [Child]) -> Result<()> {
    let start = Instant::now();
    for n in 0..total {
        let message = ear
            .next()
            .with_context(|| format!("message {n} of {total}"))?;
        let len = message.result()? as usize;
        let at = message.wr_id() as usize * LONGEST;
        let from = message.sender().context("a message without sender")?;
        let imm = message.imm().context("a message without immediate")?;
        let wr = SendWr::send_with_imm(ear.memory.slice(at..at + len)?, imm);
        ear.listener
            .vqp(from)?
            .run(wr)
            .with_context(|| format!("reply {n}"))?;
        let again = RecvWr::new(ear.memory.slice(at..at + LONGEST)?).wr_id(message.wr_id());
        ensure!(ear.listener.post_recv(&[again]) == 1, "no room");
        if start.elapsed() > patient(PATIENCE) {
            let ended: Vec<_> = children.iter_mut().map(Child::try_wait).collect();
            bail!("{n} of {total} were echoed; the callers: {ended:?}");
        }
    }
    ear.is_quiet()
}

/// 64 VQPs of four processes, one port with fewer buffers than callers.
pub fn echoes(seed: u64, rounds: usize) -> Result<()> {
    const PROCESSES: usize = 4;
    const BUFFERS: usize = 48;
    let mut ear = Ear::new(BUFFERS * LONGEST, BUFFERS as u32)?;
    ear.post(BUFFERS, LONGEST)?;
    let mut children = Vec::new();
    for n in 0..PROCESSES {
        let child = worker(&["caller"])?
            .args(["--port", &ear.port.to_string()])
            .args(["--seed", &(seed + n as u64).to_string()])
            .args(["--rounds", &rounds.to_string()])
            .stdout(Stdio::null())
            .spawn()?;
        children.push(child);
    }
    let echoed = echo(&mut ear, PROCESSES * VQPS * rounds, &mut children);
    if echoed.is_err() {
        for child in &mut children {
            let _ = child.kill();
        }
    }
    let statuses = children
        .iter_mut()
        .map(Child::wait)
        .collect::<Result<Vec<_>, _>>()?;
    echoed?;
    ensure!(
        statuses.iter().all(|status| status.success()),
        "{statuses:?}"
    );
    Ok(())
}
