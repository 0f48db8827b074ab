// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which loads belong to which experiment, and what carries them.

use super::args::RdmcArgs;
use super::load::{Experiment, Load, Variant, Wait, Way};
use super::member::Session;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const BLOCK: usize = MIB;
const PIPELINE_BLOCKS: [usize; 4] = [64 * KIB, 256 * KIB, MIB, 4 * MIB];
/// Bytes that are sent in a round of samples, more or less.
const ROUND_BYTES: usize = 256 * MIB;
/// Samples of a round, at most: so many that a scheduler has placed the threads
/// before most of them.
const MOST_SAMPLES: usize = 500;

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
    for experiment in experiments {
        for load in loads(args, experiment) {
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

fn members(args: &RdmcArgs) -> Vec<usize> {
    match (&args.members[..], args.common.quick) {
        ([], true) => vec![4, 8],
        ([], false) => vec![2, 4, 8, 16],
        (some, _) => some.iter().map(|&members| usize::from(members)).collect(),
    }
}

fn loads(args: &RdmcArgs, experiment: Experiment) -> Vec<Load> {
    let quick = args.common.quick;
    let some = |quick_ones: &[usize], all: &[usize]| match (quick, args.sizes.is_empty()) {
        (_, false) => args.sizes.iter().map(|&bytes| bytes as usize).collect(),
        (true, _) => quick_ones.to_vec(),
        (false, _) => all.to_vec(),
    };
    let sizes = match experiment {
        Experiment::Single => {
            let all: Vec<usize> = (7..15).map(|fours| 1 << (2 * fours)).collect();
            some(&[16 * KIB, MIB, 64 * MIB], &all)
        }
        Experiment::Rate => vec![1],
        Experiment::Overlap => some(&[MIB], &[10 * KIB, MIB, 16 * MIB]),
        Experiment::Wait => some(&[MIB], &[10 * KIB, MIB, 64 * MIB]),
    };
    let mut loads = Vec::new();
    for members in members(args) {
        // A quick run has what stands beside the main experiment once.
        if quick && experiment != Experiment::Single && members != 4 {
            continue;
        }
        for &bytes in &sizes {
            for senders in senders(experiment, members, quick) {
                loads.push(load(args, experiment, members, bytes, senders));
            }
        }
    }
    loads
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
    experiment: Experiment,
    members: usize,
    bytes: usize,
    senders: usize,
) -> Load {
    let messages = match experiment {
        Experiment::Rate => 200,
        Experiment::Wait => (16 * MIB / bytes).clamp(2, 100),
        Experiment::Single | Experiment::Overlap => 1,
    };
    let sent = bytes * messages * senders;
    let samples = (ROUND_BYTES / sent).clamp(2, if messages > 1 { 10 } else { MOST_SAMPLES });
    Load {
        experiment,
        members,
        bytes,
        senders,
        messages,
        warm_up: if sent < ROUND_BYTES / 8 { 20 } else { 1 },
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
