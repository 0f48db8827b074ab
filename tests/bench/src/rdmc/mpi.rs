// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPI_Bcast by Open MPI and MPICH, each told what suits a machine with fewer
//! processors than ranks. `tests/bench/mpi/bcast.c` is what they run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use serde::{Deserialize, Serialize};

use super::load::Load;

/// After so long a case has no further sample: ranks that wait for a processor
/// may take a thousand times as long as the others.
const BUDGET: Duration = Duration::from_secs(2);
/// After so long it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mpi {
    pub implementation: Implementation,
    /// Which of Open MPI's collections of algorithms; MPICH has one.
    pub settings: &'static str,
}

impl Mpi {
    /// All that are measured; the best one counts.
    pub const ALL: [Self; 3] = [
        Self {
            implementation: Implementation::OpenMpi,
            settings: "han",
        },
        Self {
            implementation: Implementation::OpenMpi,
            settings: "tuned",
        },
        Self {
            implementation: Implementation::Mpich,
            settings: "",
        },
    ];

    /// Its name for people.
    pub fn name(self) -> String {
        match self.implementation {
            Implementation::OpenMpi => format!("openmpi {}", self.settings),
            Implementation::Mpich => "mpich".to_owned(),
        }
    }

    /// Measures a load.
    pub fn run(self, programs: &Path, load: &Load) -> Result<Samples> {
        let mut command = match self.implementation {
            Implementation::OpenMpi => open_mpi(self.settings, load),
            Implementation::Mpich => mpich(load),
        };
        let program = match self.implementation {
            Implementation::OpenMpi => "bcast.openmpi",
            Implementation::Mpich => "bcast.mpich",
        };
        let numbers = [load.bytes, load.messages, load.senders, load.warm_up];
        command
            .args(["-n", &load.members.to_string()])
            .arg(programs.join(program))
            .args(numbers.map(|number| number.to_string()))
            .arg(load.samples.to_string())
            .arg(BUDGET.as_millis().to_string());
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{} cannot be started", self.name()))?;
        ensure!(
            output.status.success(),
            "{} failed ({}): {}",
            self.name(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} printed no result", self.name()))
    }
}

/// What a program prints.
#[derive(Debug, Deserialize)]
pub struct Samples {
    pub nanoseconds: Vec<u64>,
    /// Processor time of all ranks together.
    pub cpu_us: u64,
}

/// Whether ranks have to share processors.
fn is_crowded(load: &Load) -> bool {
    thread::available_parallelism().is_ok_and(|processors| load.members > processors.get())
}

fn open_mpi(settings: &str, load: &Load) -> Command {
    let mut command = Command::new("mpirun.openmpi");
    let seconds = PATIENCE.as_secs().to_string();
    command.args([
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
    ]);
    command.args(["--timeout", &seconds]);
    // Shared memory, with single copies by the kernel (CMA), and no device.
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,sm"]);
    let yields = if is_crowded(load) { "1" } else { "0" };
    command.args(["--mca", "mpi_yield_when_idle", yields]);
    if settings == "tuned" {
        command.args(["--mca", "coll", "^han"]);
    }
    command
}

fn mpich(load: &Load) -> Command {
    let mut command = Command::new("mpirun.mpich");
    command.args(["-bind-to", "none"]);
    command.env("MPIEXEC_TIMEOUT", PATIENCE.as_secs().to_string());
    if is_crowded(load) {
        // Without, ranks keep the processor until it is taken from them: with
        // eight of them on two, a broadcast takes thirty times as long.
        command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
        command.env("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1");
    }
    command
}
