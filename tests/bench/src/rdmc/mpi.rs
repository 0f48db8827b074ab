// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPI_Bcast by Open MPI and MPICH. `tests/bench/mpi/bcast.c` is what they run.
//!
//! Each is tried with its algorithms and lengths of segments, all in one start of its
//! ranks, and goes on with those that were fastest. Ranks are bound to processors where
//! there are as many; where not, they are told to yield, as who knows both libraries
//! would tell them.

mod tried;

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use serde::{Deserialize, Serialize};

use super::load::Load;
use tried::WINDOW;

/// After so long a configuration has no further sample, if it has [`LEAST_SAMPLES`]: ranks
/// that wait for a processor may take a thousand times as long as the others.
const BUDGET: Duration = Duration::from_secs(1);
/// A round's samples of a configuration that is measured whole, however long they take, if
/// RDMC has as many.
pub const LEAST_SAMPLES: usize = 50;
/// The same while configurations are tried.
const TRIAL: Duration = Duration::from_millis(100);
const QUICK_TRIAL: Duration = Duration::from_millis(20);
/// Samples that do not count while configurations are tried.
const TRIAL_WARM_UP: usize = 2;
/// After so long it has failed.
const PATIENCE: Duration = Duration::from_secs(300);
/// From so many bytes on both libraries let the kernel copy a message once, from the
/// sender's buffer to the receiver's (CMA), in all algorithms but those of shared
/// segments.
const CMA_BYTES: usize = 64 << 10;

/// Who broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
}

/// A configuration of one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mpi {
    pub implementation: Implementation,
    /// Its name in results.
    pub settings: String,
    /// What `bcast` is told.
    config: String,
    /// What `mpirun` is told.
    launch: &'static [&'static str],
    /// Whether the kernel copies long messages.
    is_by_cma: bool,
}

/// How much of each configuration is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So much that the fast ones show.
    Trial { quick: bool },
    /// All of it.
    Whole,
}

impl Implementation {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OpenMpi, Self::Mpich];

    fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// Measures configurations of this implementation, in the order given: those that are
    /// started alike in one start.
    pub fn run(
        self,
        programs: &Path,
        load: &Load,
        configurations: &[&Mpi],
        extent: Extent,
    ) -> Result<Vec<Samples>> {
        let alike = configurations.chunk_by(|a, b| a.launch == b.launch);
        let all = alike.map(|some| self.start(programs, load, some, extent));
        Ok(all.collect::<Result<Vec<_>>>()?.concat())
    }

    fn start(
        self,
        programs: &Path,
        load: &Load,
        configurations: &[&Mpi],
        extent: Extent,
    ) -> Result<Vec<Samples>> {
        let name = self.name();
        let (budget, warm_up, least) = match extent {
            Extent::Trial { quick: true } => (QUICK_TRIAL, TRIAL_WARM_UP, 1),
            Extent::Trial { quick: false } => (TRIAL, TRIAL_WARM_UP, 1),
            Extent::Whole => (BUDGET, load.warm_up, load.samples.min(LEAST_SAMPLES)),
        };
        let numbers = [
            load.bytes,
            load.messages,
            load.senders,
            warm_up,
            load.samples,
            least,
        ];
        let output = self
            .launcher(load)
            .args(configurations.iter().take(1).flat_map(|mpi| mpi.launch))
            .args(["-n", &load.members.to_string()])
            .arg(programs.join(format!("bcast.{name}")))
            .args(numbers.map(|number| number.to_string()))
            .arg(budget.as_millis().to_string())
            .args(configurations.iter().map(|mpi| &mpi.config))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("mpirun.{name} cannot be started"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        ensure!(status.success(), "{name} failed ({status}): {errors}");
        let lines = output.stdout.split(|&byte| byte == b'\n');
        let lines = lines.filter(|line| line.starts_with(b"{"));
        let all = lines.map(serde_json::from_slice);
        let all: Vec<Samples> = all.collect::<Result<_, _>>().context("no result")?;
        ensure!(
            all.len() == configurations.len(),
            "{name} printed too little: {errors}"
        );
        for (mpi, samples) in configurations.iter().zip(&all) {
            ensure!(
                samples.config == mpi.config,
                "{name} printed another's result"
            );
            ensure!(
                !mpi.is_by_cma || load.bytes < CMA_BYTES || samples.cma_bytes > 0,
                "{}: messages are copied twice, through shared memory, which is no fair \
                 baseline: process_vm_readv does not work here",
                mpi.name()
            );
        }
        Ok(all)
    }

    fn launcher(self, load: &Load) -> Command {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let is_crowded = load.members > processors;
        let mut command = Command::new(format!("mpirun.{}", self.name()));
        let seconds = PATIENCE.as_secs().to_string();
        match self {
            Self::OpenMpi => {
                command.args(["--allow-run-as-root", "--timeout", &seconds]);
                match is_crowded {
                    true => command.args(["--oversubscribe", "--bind-to", "none"]),
                    false => command.args(["--bind-to", "core"]),
                };
                // Shared memory, with single copies by the kernel (CMA), and no device.
                command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,sm"]);
                command.args(["--mca", "smsc", "cma"]);
                command.args(["--mca", "coll_tuned_use_dynamic_rules", "1"]);
                let yields = if is_crowded { "1" } else { "0" };
                command.args(["--mca", "mpi_yield_when_idle", yields]);
            }
            Self::Mpich => {
                command.env("MPIEXEC_TIMEOUT", seconds);
                command.args(["-bind-to", if is_crowded { "none" } else { "core" }]);
                if is_crowded {
                    // Without, ranks keep the processor until it is taken from them:
                    // with eight of them on two, a broadcast takes thirty times as long.
                    command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
                    command.env("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1");
                }
            }
        }
        command
    }
}

impl Mpi {
    /// Its name for people.
    pub fn name(&self) -> String {
        format!("{} {}", self.implementation.name(), self.settings)
    }

    /// Whether it is no broadcast, but copies from a shared window.
    pub fn is_window(&self) -> bool {
        self.config == WINDOW
    }
}

/// What a program prints of a configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct Samples {
    config: String,
    pub nanoseconds: Vec<u64>,
    /// Processor time of all ranks together.
    pub cpu_us: u64,
    /// Bytes that the kernel has copied from one rank to another.
    pub cma_bytes: u64,
    /// What the library says of itself.
    pub version: String,
}
