// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processes that the workers of a mesh are in, with one worker or with several
//! as threads. Their parent says which mesh to make next.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::{anyhow, Context as _, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::board::Board;
use super::verbs_mesh::VerbsWorker;
use super::weft_mesh::WeftWorker;
use super::{places, Case, MESHES};
use crate::child::{next_word, say_ready};
use crate::cli::System;
use crate::newcomer::now_ns;

/// What a process of workers is told.
#[derive(Args)]
pub struct MeshWorkerArgs {
    #[arg(long)]
    board: PathBuf,
    #[arg(long)]
    workers: u16,
    #[arg(long)]
    nodes: u16,
    /// How many processes there are, and which one this is.
    #[arg(long)]
    processes: u16,
    #[arg(long)]
    index: u16,
    /// Meshes that may be wanted, by their places among all.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<usize>,
}

/// When a worker began, when it was connected to all others, and when each of these
/// connections had carried a WRITE.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Span {
    pub start_ns: u64,
    pub connected_ns: u64,
    pub written_ns: u64,
}

/// One worker, with all that it has before it connects.
pub trait Worker: Send {
    /// What must be done before the clock starts.
    fn prepare(&mut self) -> Result<()>;
    /// Whether it waits for the others before it connects, and before it WRITEs.
    fn meets(&self) -> bool;
    /// What it does before it needs to hear from them.
    fn offer(&mut self) -> Result<()>;
    /// Connects to all others.
    fn connect(&mut self) -> Result<()>;
    /// Does a WRITE over each connection, and waits until they are done.
    fn write(&mut self) -> Result<()>;
    /// Lets connections go that are not to be kept.
    fn disconnect(&mut self);
}

type Workers = Vec<Box<dyn Worker>>;

/// Is a process of workers.
pub fn work(args: &MeshWorkerArgs) -> Result<()> {
    let workers = usize::from(args.workers);
    let places = places(args.workers, args.nodes);
    // Which of the workers are here.
    let here = (usize::from(args.index)..workers).step_by(usize::from(args.processes));
    if args.processes == args.workers {
        places[usize::from(args.index)].enter()?;
    }
    let board = Arc::new(Board::open(&args.board, workers)?);
    let make = |kind: usize, index| -> Result<Box<dyn Worker>> {
        let mesh = MESHES.get(kind).context("no such mesh")?;
        let is_cached = mesh.case == Case::Cached;
        Ok(match mesh.system {
            System::Verbs => {
                let all = (index, workers);
                let worker = VerbsWorker::new(all, places[index], &board, kind, mesh.wait)?;
                Box::new(worker.that_keeps(is_cached))
            }
            System::Weft => {
                let worker = WeftWorker::new(index, &places, &board, kind, !is_cached)?;
                Box::new(worker.that_meets(mesh.meets))
            }
        })
    };
    let of_kind = |&kind| {
        let workers = here.clone().map(|index| make(kind, index));
        Ok((kind, workers.collect::<Result<Workers>>()?))
    };
    let meshes = args.kinds.iter().map(of_kind);
    let mut meshes = meshes.collect::<Result<Vec<_>>>()?;
    say_ready(&())?;
    while let Some(wanted) = next_word::<usize>()? {
        let mut known = meshes.iter_mut();
        let (_, workers) = known
            .find(|(kind, _)| *kind == wanted)
            .context("a mesh that was not asked for")?;
        say_ready(&round(workers, &board)?)?;
    }
    Ok(())
}

/// Makes one mesh, together with the other processes.
fn round(workers: &mut Workers, board: &Board) -> Result<Vec<Span>> {
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(|| {
                    let span = span(worker.as_mut(), board);
                    // Nobody lets a connection go that another still WRITEs over.
                    let met = board.meet();
                    worker.disconnect();
                    met.and(span)
                })
            })
            .collect();
        let spans = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a worker panicked"))?);
        spans.collect()
    })
}

/// One worker's part of a mesh. All meet where they have to, also those that failed, so
/// that none waits in vain.
fn span(worker: &mut dyn Worker, board: &Board) -> Result<Span> {
    let prepared = worker.prepare();
    let meets = worker.meets();
    let meet = || if meets { board.meet() } else { Ok(()) };
    board.meet()?;
    let start_ns = now_ns()?;
    let offered = prepared.and_then(|()| worker.offer());
    meet()?;
    let connected = offered.and_then(|()| worker.connect());
    let connected_ns = now_ns()?;
    meet()?;
    connected?;
    worker.write()?;
    Ok(Span {
        start_ns,
        connected_ns,
        written_ns: now_ns()?,
    })
}
