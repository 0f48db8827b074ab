// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which loads belong to which experiment, and what carries them.

use weft_testkit::place::Kind;

use super::args::RdmcArgs;
use super::load::{Experiment, Load, Variant, Wait, Way};
use super::member::Session;
use super::mpi::LEAST_SAMPLES;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const BLOCK: usize = MIB;
const PIPELINE_BLOCKS: [usize; 4] = [64 * KIB, 256 * KIB, MIB, 4 * MIB];
/// Bytes that are sent in a round of samples, more or less.
const ROUND_BYTES: usize = 256 * MIB;
/// Samples of a round, at most: so many that a scheduler has placed the threads
/// before most of them.
const MOST_SAMPLES: usize = 500;
/// In a quick run, in which each MPI has as many.
const QUICK_MOST_SAMPLES: usize = LEAST_SAMPLES;
/// The same on the virtual machine's devices.
const EMULATED_ROUND_BYTES: usize = 32 * MIB;
const MOST_EMULATED_SAMPLES: usize = 30;

/// All that is measured of one load, sessions in turn with MPI.
pub struct Round {
    pub load: Load,
    /// One for each way to wait.
    pub sessions: Vec<Session>,
}

/// What was asked for, experiment by experiment.
pub fn plan(args: &RdmcArgs) -> Vec<Round> {
    let experiments = match &args.experiments[..] {
        [] => Experiment::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut rounds = Vec::new();
    for (&fabric, experiment) in args.fabrics.iter().flat_map(|fabric| {
        experiments
            .iter()
            .map(move |&experiment| (fabric, experiment))
    }) {
        for load in loads(args, fabric, experiment) {
            let sessions: Vec<_> = waits(experiment)
                .iter()
                .map(|&wait| Session {
                    load: load.clone(),
                    wait,
                    variants: variants(args, &load, wait),
                })
                .filter(|session| !session.variants.is_empty())
                .collect();
            rounds.push(Round { load, sessions });
        }
    }
    rounds
}

fn waits(experiment: Experiment) -> &'static [Wait] {
    match experiment {
        Experiment::Wait => &[Wait::Hybrid, Wait::Interrupt],
        _ => &[Wait::Hybrid],
    }
}

fn members(args: &RdmcArgs, fabric: Kind) -> Vec<usize> {
    match (&args.members[..], args.common.quick, fabric == Kind::Shm) {
        ([], true, true) => vec![4, 8],
        ([], false, true) => vec![2, 4, 8, 16],
        ([], true, false) => vec![4],
        ([], false, false) => vec![2, 4],
        (some, _, _) => some.iter().map(|&members| usize::from(members)).collect(),
    }
}

fn loads(args: &RdmcArgs, fabric: Kind, experiment: Experiment) -> Vec<Load> {
    let (quick, is_shm) = (args.common.quick, fabric == Kind::Shm);
    // Whether a polling thread sleeps matters to the processors, of which the virtual
    // machine has as many as this one.
    if !is_shm && (experiment == Experiment::Wait || quick && experiment != Experiment::Single) {
        return Vec::new();
    }
    let sizes = match &args.sizes[..] {
        [] => sizes(experiment, quick, is_shm),
        some if experiment != Experiment::Rate => {
            some.iter().map(|&bytes| bytes as usize).collect()
        }
        _ => sizes(experiment, quick, is_shm),
    };
    let mut loads = Vec::new();
    for members in members(args, fabric) {
        // A quick run has what stands beside the main experiment once.
        if quick && experiment != Experiment::Single && members != 4 {
            continue;
        }
        for &bytes in &sizes {
            for senders in senders(experiment, members, quick) {
                loads.push(load(args, fabric, experiment, members, bytes, senders));
            }
        }
    }
    loads
}

/// Lengths of messages, if none are asked for.
fn sizes(experiment: Experiment, quick: bool, is_shm: bool) -> Vec<usize> {
    let (quick_ones, all, emulated): (&[usize], Vec<usize>, &[usize]) = match experiment {
        Experiment::Single => (
            &[16 * KIB, MIB, 64 * MIB],
            (7..15).map(|fours| 1 << (2 * fours)).collect(),
            &[16 * KIB, 256 * KIB, MIB, 16 * MIB],
        ),
        Experiment::Rate => (&[1], vec![1], &[1]),
        Experiment::Overlap => (&[MIB], vec![10 * KIB, MIB, 16 * MIB], &[10 * KIB, MIB]),
        Experiment::Wait => (&[MIB], vec![10 * KIB, MIB, 64 * MIB], &[]),
    };
    match (is_shm, quick) {
        (true, true) => quick_ones.to_vec(),
        (true, false) => all,
        (false, true) => vec![16 * KIB, MIB],
        (false, false) => emulated.to_vec(),
    }
}

fn senders(experiment: Experiment, members: usize, quick: bool) -> Vec<usize> {
    match experiment {
        Experiment::Overlap if quick => vec![members],
        Experiment::Overlap if members > 2 => vec![1, members / 2, members],
        Experiment::Overlap => vec![1, 2],
        _ => vec![1],
    }
}

fn load(
    args: &RdmcArgs,
    fabric: Kind,
    experiment: Experiment,
    members: usize,
    bytes: usize,
    senders: usize,
) -> Load {
    let is_shm = fabric == Kind::Shm;
    // An emulated device moves in a second what memory moves in milliseconds.
    let (round_bytes, most_samples) = match (is_shm, args.common.quick) {
        (true, false) => (ROUND_BYTES, MOST_SAMPLES),
        (true, true) => (ROUND_BYTES, QUICK_MOST_SAMPLES),
        (false, _) => (EMULATED_ROUND_BYTES, MOST_EMULATED_SAMPLES),
    };
    let messages = match experiment {
        Experiment::Rate if !is_shm => 20,
        Experiment::Rate => 200,
        Experiment::Wait => (16 * MIB / bytes).clamp(2, 100),
        Experiment::Single | Experiment::Overlap => 1,
    };
    let sent = bytes * messages * senders;
    let samples = (round_bytes / sent).clamp(2, if messages > 1 { 10 } else { most_samples });
    Load {
        fabric: fabric.to_string(),
        experiment,
        members,
        bytes,
        senders,
        messages,
        warm_up: match (is_shm, sent < round_bytes / 8) {
            (true, true) => 20,
            (false, true) => 3,
            _ => 1,
        },
        samples: args.samples.map_or(samples, |samples| samples as usize),
    }
}

fn variants(args: &RdmcArgs, load: &Load, wait: Wait) -> Vec<Variant> {
    let ways = match load.experiment {
        Experiment::Single => &Way::ALL[..],
        // The paper has these with its default.
        _ => &[Way::Auto, Way::BinomialPipeline],
    };
    let ways = ways.iter().filter(|&&way| args.wants(way));
    let of_way = |&way: &Way| {
        let blocks = match way {
            Way::Auto => vec![None],
            _ => blocks(args, load, way).into_iter().map(Some).collect(),
        };
        blocks.into_iter().map(move |block_bytes| Variant {
            way,
            block_bytes,
            wait,
        })
    };
    ways.flat_map(of_way).collect()
}

/// Blocks that are longer than the message are the same as one that holds it.
fn blocks(args: &RdmcArgs, load: &Load, way: Way) -> Vec<usize> {
    let is_pipeline = way == Way::BinomialPipeline && load.experiment == Experiment::Single;
    let mut blocks = match (&args.blocks[..], is_pipeline) {
        ([], true) if args.common.quick => vec![256 * KIB, MIB],
        ([], true) => PIPELINE_BLOCKS.to_vec(),
        ([], false) => vec![BLOCK],
        (some, _) => some.iter().map(|&bytes| bytes as usize).collect(),
    };
    for block in &mut blocks {
        *block = (*block).min(load.bytes);
    }
    blocks.dedup();
    blocks
}
