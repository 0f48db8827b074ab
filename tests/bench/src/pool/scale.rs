// SPDX-License-Identifier: MIT OR Apache-2.0

//! What connections cost, by their number and system: `connections` and `pairs`.

use std::time::Duration;

use anyhow::Result;

use super::module::Module;
use super::pairs::Pairs;
use super::result::{Measured, Scale};
use super::{PoolArgs, PoolCase, PoolSystem};
use crate::counters::counter;
use crate::memory::{Held, Kind};
use crate::nodes::Node;
use crate::report::{progress, JsonLines};

/// Measurements, unless told.
const REPEATS: u32 = 3;
/// How long WRITEs are done over connections.
const WRITING: Duration = Duration::from_secs(2);
const QUICK_WRITING: Duration = Duration::from_millis(500);

/// One experiment, and what each measurement of it found.
struct Experiment<'a> {
    case: PoolCase,
    system: PoolSystem,
    /// Connections that are wanted; of pairs there are as many as there are.
    count: u32,
    peers: &'a [Node],
    /// What the module was loaded with.
    module_args: String,
    found: Vec<Measured>,
}

/// Measures all, in turn, and writes the rows.
pub fn measure(args: &PoolArgs, peers: &[Node], json: &mut JsonLines) -> Result<Vec<Scale>> {
    let quick = args.common.quick;
    let writing = if quick { QUICK_WRITING } else { WRITING };
    let repeats = args.repeats.unwrap_or(if quick { 1 } else { REPEATS });
    let mut experiments = plan(args, peers);
    let steps = u64::from(repeats) * experiments.len() as u64;
    let bar = progress("connections".to_owned(), steps);
    let mut module = Module::here()?;
    for _ in 0..repeats {
        for experiment in &mut experiments {
            experiment.measure(&mut module, writing)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    drop(module);
    let mut rows = Vec::new();
    for one in experiments {
        let peers = u16::try_from(one.peers.len())?;
        let row = Scale::new(one.case, one.system, (one.count, peers), &one.found);
        json.name_module_args(&one.module_args);
        json.write(&row)?;
        rows.push(row);
    }
    json.name_module_args(&std::env::var("VM_MODULE_ARGS").unwrap_or_default());
    Ok(rows)
}

fn plan<'a>(args: &PoolArgs, peers: &'a [Node]) -> Vec<Experiment<'a>> {
    let connections = match (&args.connections[..], args.common.quick) {
        ([], true) => &[400][..],
        ([], false) => &[100, 1000, 2500, 5000],
        (list, _) => list,
    };
    let experiment = |case, system, count, peers| Experiment {
        case,
        system,
        count,
        peers,
        module_args: String::new(),
        found: Vec::new(),
    };
    let mut all = Vec::new();
    if args.cases.contains(&PoolCase::Connections) {
        for &count in connections {
            let each = args.systems.iter();
            all.extend(each.map(|&system| experiment(PoolCase::Connections, system, count, peers)));
        }
    }
    if args.cases.contains(&PoolCase::Pairs) {
        let peers = args.opened(peers);
        let weft = args
            .systems
            .iter()
            .filter(|system| **system != PoolSystem::Verbs);
        // Each connects to those before it, of which the clients' node is the first.
        let count = (1..).zip(peers).map(|(before, _)| before).sum();
        all.extend(weft.map(|&system| experiment(PoolCase::Pairs, system, count, peers)));
    }
    all
}

impl Experiment<'_> {
    fn measure(&mut self, module: &mut Module, writing: Duration) -> Result<()> {
        let pool = match self.system {
            PoolSystem::WeftRc => Some("rc"),
            PoolSystem::Verbs | PoolSystem::Weft => None,
        };
        self.module_args = module.reload(pool)?;
        let queues = counter("rc_queues")?;
        let found = match self.case {
            PoolCase::Pairs => Pairs::measure(self.peers)?,
            _ => self.connections(writing)?,
        };
        self.found.push(Measured {
            rc_queues: found.rc_queues.saturating_sub(queues),
            ..found
        });
        Ok(())
    }

    fn connections(&self, writing: Duration) -> Result<Measured> {
        let kind = match self.system {
            PoolSystem::Verbs => Kind::Verbs,
            PoolSystem::Weft | PoolSystem::WeftRc => Kind::Weft,
        };
        let mut held = Held::make(kind, self.peers, usize::try_from(self.count)?)?;
        // Before the WRITEs: a pool that decides by itself may make some for them.
        let rc_queues = counter("rc_queues")?;
        let writes_per_sec = held.writes_per_sec(writing)?;
        let (made, used) = (&held.made, &held.used);
        let measured = Measured {
            made: made.count,
            limit: made.limit.clone(),
            calls: made.calls.clone(),
            first_writes: made.first_writes.clone(),
            per_sec: made.count as f64 / made.time.as_secs_f64().max(1e-9),
            writes_per_sec: Some(writes_per_sec),
            module_bytes: used.module_bytes,
            process_bytes: used.process_bytes + used.peer_process_bytes,
            machine_bytes: used.machine_bytes,
            noise_bytes: used.noise_bytes,
            rc_queues,
        };
        held.end();
        Ok(measured)
    }
}
