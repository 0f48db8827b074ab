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

use crate::child::Helper;
use crate::cli::{MeshArgs, MeshProcesses, System};
use crate::nodes::Node;
use crate::report::{progress, JsonLines};
use crate::wait::Wait;
use board::Board;
use result::{Results, Rounds, Row};
use worker::Span;
pub use worker::{work, MeshWorkerArgs};

/// A kind of mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mesh {
    system: System,
    case: Case,
    /// How workers wait for their WRITEs.
    wait: Wait,
    /// Whether workers meet when they have connected, before they WRITE.
    meets: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Warm,
    Cached,
}

/// All kinds. Processes name a kind by its place here, and it has memory of its own on the
/// board.
const MESHES: [Mesh; 8] = [
    Mesh::new(System::Verbs, Case::Warm, Wait::Poll, true),
    Mesh::new(System::Verbs, Case::Cached, Wait::Poll, false),
    Mesh::new(System::Verbs, Case::Warm, Wait::Event, true),
    Mesh::new(System::Verbs, Case::Cached, Wait::Event, false),
    Mesh::new(System::Weft, Case::Warm, Wait::Call, false),
    Mesh::new(System::Weft, Case::Cached, Wait::Call, false),
    Mesh::new(System::Weft, Case::Warm, Wait::Call, true),
    Mesh::new(System::Weft, Case::Cached, Wait::Call, true),
];

impl Mesh {
    const fn new(system: System, case: Case, wait: Wait, meets: bool) -> Self {
        Self {
            system,
            case,
            wait,
            meets,
        }
    }
}

impl Case {
    /// Its name in results.
    fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cached => "cached",
        }
    }
}

/// The kinds of these systems, by their places.
fn kinds(systems: &[System]) -> Vec<usize> {
    let of = |system| (0..MESHES.len()).filter(move |&kind| MESHES[kind].system == system);
    systems.iter().copied().flat_map(of).collect()
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
    fn start(args: &MeshArgs, workers: u16, processes: u16, kinds: &[usize]) -> Result<Self> {
        let board = Board::create(usize::from(workers))?;
        let places: Vec<_> = kinds.iter().map(usize::to_string).collect();
        let words = |index: u16| {
            let words = [
                ("--board", board.path().display().to_string()),
                ("--workers", workers.to_string()),
                ("--nodes", args.nodes.to_string()),
                ("--processes", processes.to_string()),
                ("--index", index.to_string()),
                ("--kinds", places.join(",")),
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
    fn round(&mut self, kind: usize) -> Result<Vec<Span>> {
        for helper in &mut self.helpers {
            helper.tell(&kind)?;
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
    let kinds = kinds(&args.systems);
    let mut crew = Crew::start(args, workers, processes, &kinds)?;
    let mut all: Vec<_> = kinds.iter().map(|_| Rounds::none()).collect();
    let what = match processes {
        1 => format!("mesh of {workers} threads"),
        _ => format!("mesh of {workers} processes"),
    };
    let bar = progress(what, u64::from(rounds) * kinds.len() as u64);
    // The first makes what `cached` finds, and does not count.
    for round in 0..=rounds {
        for (&kind, rounds) in kinds.iter().zip(&mut all) {
            let spans = crew.round(kind)?;
            if round > 0 {
                rounds.add(&spans);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let row = |(&kind, rounds): (&usize, &Rounds)| {
        let mesh = MESHES[kind];
        Row::new(mesh, (workers, processes), args.nodes, rounds)
    };
    Ok(kinds.iter().zip(&all).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_a_system_is_made_once() {
        assert_eq!(
            kinds(&[System::Weft, System::Verbs]),
            [4, 5, 6, 7, 0, 1, 2, 3]
        );
        for (at, mesh) in MESHES.iter().enumerate() {
            assert!(!MESHES[..at].contains(mesh), "{mesh:?}");
        }
    }
}
