// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench mesh` (krcore §5.1, figure 8b): workers that connect to one
//! another, the time until all are connected, and until each connection has carried
//! an 8-byte WRITE.
//!
//! Workers are threads of one process, or a process each in its node's network
//! namespace; they are spread over the nodes in turn. Each has a connection of its own
//! to every other. What a worker has before it connects is ready before the clock
//! starts: the device or session, registered memory whose address and key all know,
//! and a completion queue or, with Weft, queues. A worker posts all its WRITEs before it
//! waits for any; with Weft that is one system call. Verbs' workers then poll, or sleep until
//! some are done: where they outnumber the processors those that poll keep others from them.
//!
//! - `warm`: verbs makes queue pairs, hands their addresses over in memory that all
//!   share, which costs less than any network would, and connects. A queue pair may
//!   only be written to once its other end is connected, so that workers meet before
//!   they WRITE. Weft's DCCaches are empty.
//!   Weft's workers need not meet: those that get a processor first WRITE while others
//!   have yet to connect. So there are two kinds of Weft's meshes: in one they meet as
//!   verbs' do (`meets`), which shows how long connecting takes, in the other they do not,
//!   which is how long a program would wait until all links are written to.
//! - `cached`: verbs has the whole mesh from before, and only WRITEs. Weft makes and
//!   connects new queue pairs; its nodes know one another.

mod board;
mod result;
mod verbs_mesh;
mod weft_mesh;
mod worker;

use anyhow::{ensure, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::child::Helper;
use crate::cli::{MeshArgs, MeshProcesses, System};
use crate::nodes::Node;
use crate::report::{progress, JsonLines};
use crate::wait::Wait;
use board::Board;
use result::{Results, Rounds, Row};
use worker::Span;
pub use worker::{work, MeshWorkerArgs};

/// Meshes that can be made; each has memory of its own on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Mesh {
    VerbsWarm,
    VerbsCached,
    VerbsWarmAsleep,
    VerbsCachedAsleep,
    WeftWarm,
    WeftCached,
    WeftWarmMet,
    WeftCachedMet,
}

impl Mesh {
    /// Those of a system.
    fn of(system: System) -> &'static [Self] {
        match system {
            System::Verbs => &[
                Self::VerbsWarm,
                Self::VerbsCached,
                Self::VerbsWarmAsleep,
                Self::VerbsCachedAsleep,
            ],
            System::Weft => &[
                Self::WeftWarm,
                Self::WeftCached,
                Self::WeftWarmMet,
                Self::WeftCachedMet,
            ],
        }
    }

    fn system(self) -> System {
        match self {
            Self::VerbsWarm
            | Self::VerbsCached
            | Self::VerbsWarmAsleep
            | Self::VerbsCachedAsleep => System::Verbs,
            Self::WeftWarm | Self::WeftCached | Self::WeftWarmMet | Self::WeftCachedMet => {
                System::Weft
            }
        }
    }

    fn case(self) -> &'static str {
        match self {
            Self::VerbsWarm | Self::VerbsWarmAsleep | Self::WeftWarm | Self::WeftWarmMet => "warm",
            Self::VerbsCached
            | Self::VerbsCachedAsleep
            | Self::WeftCached
            | Self::WeftCachedMet => "cached",
        }
    }

    /// How workers wait for their WRITEs.
    fn wait(self) -> Wait {
        match self {
            Self::VerbsWarm | Self::VerbsCached => Wait::Poll,
            Self::VerbsWarmAsleep | Self::VerbsCachedAsleep => Wait::Event,
            Self::WeftWarm | Self::WeftCached | Self::WeftWarmMet | Self::WeftCachedMet => {
                Wait::Call
            }
        }
    }

    /// Whether workers meet when they have connected, before they WRITE.
    fn meets(self) -> bool {
        matches!(
            self,
            Self::VerbsWarm | Self::VerbsWarmAsleep | Self::WeftWarmMet | Self::WeftCachedMet
        )
    }
}

/// Which node each worker is on.
fn places(workers: u16, nodes: u16) -> Vec<Node> {
    (0..workers).map(|worker| Node(worker % nodes)).collect()
}

/// Runs the benchmark.
pub fn run(args: &MeshArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let quick = args.common.quick;
    let sizes = match (&args.workers[..], quick) {
        ([], true) => &[2, 8, 32][..],
        ([], false) => &[2, 4, 8, 16, 32, 64],
        (list, _) => list,
    };
    let rounds = args.rounds.unwrap_or(if quick { 3 } else { 11 });
    let mut json = JsonLines::create(&args.common)?;
    let mut results = Results::default();
    for &workers in sizes {
        for &processes in &args.run_as {
            let processes = match processes {
                MeshProcesses::Threads => 1,
                MeshProcesses::Processes => workers,
            };
            for row in measure(args, workers, processes, rounds)? {
                json.write(&row)?;
                results.add(row);
            }
        }
    }
    results.print();
    Ok(())
}

/// The processes of one mesh's workers.
struct Crew {
    helpers: Vec<Helper>,
    _board: Board,
}

impl Crew {
    fn start(args: &MeshArgs, workers: u16, processes: u16, meshes: &[Mesh]) -> Result<Self> {
        let board = Board::create(usize::from(workers))?;
        let names = meshes.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        let words = |index: u16| {
            let words = [
                ("--board", board.path().display().to_string()),
                ("--workers", workers.to_string()),
                ("--nodes", args.nodes.to_string()),
                ("--processes", processes.to_string()),
                ("--index", index.to_string()),
                ("--meshes", names.join(",")),
            ];
            let words = words.into_iter().flat_map(|(k, v)| [k.to_owned(), v]);
            std::iter::once("mesh-worker".to_owned())
                .chain(words)
                .collect::<Vec<_>>()
        };
        // All begin before any is waited for.
        let helpers = (0..processes).map(|index| Helper::spawn(&words(index)));
        let mut helpers = helpers.collect::<Result<Vec<_>>>()?;
        helpers.iter_mut().try_for_each(Helper::hear::<()>)?;
        Ok(Self {
            helpers,
            _board: board,
        })
    }

    /// Makes one mesh.
    fn round(&mut self, mesh: Mesh) -> Result<Vec<Span>> {
        for helper in &mut self.helpers {
            helper.tell(&mesh)?;
        }
        let mut spans = Vec::new();
        for helper in &mut self.helpers {
            spans.extend(helper.hear::<Vec<Span>>()?);
        }
        Ok(spans)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // All at once: each has connections to the others that end with it.
        self.helpers.iter_mut().for_each(Helper::let_go);
    }
}

/// Makes a mesh of each kind in turn, `rounds` times.
fn measure(args: &MeshArgs, workers: u16, processes: u16, rounds: u32) -> Result<Vec<Row>> {
    let systems = args.systems.iter();
    let meshes: Vec<_> = systems
        .flat_map(|&system| Mesh::of(system))
        .copied()
        .collect();
    let mut crew = Crew::start(args, workers, processes, &meshes)?;
    let mut all: Vec<_> = meshes.iter().map(|_| Rounds::none()).collect();
    let what = match processes {
        1 => format!("mesh of {workers} threads"),
        _ => format!("mesh of {workers} processes"),
    };
    let bar = progress(what, u64::from(rounds) * meshes.len() as u64);
    // The first makes what `cached` finds, and does not count.
    for round in 0..=rounds {
        for (&mesh, rounds) in meshes.iter().zip(&mut all) {
            let spans = crew.round(mesh)?;
            if round > 0 {
                rounds.add(&spans);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let both = meshes.iter().zip(&all);
    Ok(both
        .map(|(mesh, rounds)| {
            Row::new(
                (mesh.system(), mesh.case(), mesh.meets(), mesh.wait()),
                (workers, processes),
                args.nodes,
                rounds,
            )
        })
        .collect())
}
