// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which cases belong to which experiment. Quick runs have fewer of them, and
//! fabrics over emulated devices fewer still. Each stream has a case beside it that
//! moves the same bytes without multicast.

use weft::Options;
use weft_testkit::place::Kind;

use super::args::MulticastArgs;
use super::case::{Case, Delay, Experiment, Senders, Touch};

const SIZES: [usize; 4] = [1, 128, 1024, 10_240];

/// How much of an experiment is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Quick,
    /// On the virtual machine's devices.
    Emulated,
}

impl Extent {
    /// One of three lists.
    fn of<T: Copy>(self, whole: &[T], quick: &[T], emulated: &[T]) -> Vec<T> {
        match self {
            Self::Whole => whole,
            Self::Quick => quick,
            Self::Emulated => emulated,
        }
        .to_vec()
    }
}

/// The cases that were asked for, experiment by experiment, for a machine with so
/// many processors.
pub fn plan(args: &MulticastArgs, processors: usize) -> Vec<Case> {
    let experiments = match &args.experiments[..] {
        [] => Experiment::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut cases = Vec::new();
    for &fabric in &args.fabrics {
        let extent = match (fabric, args.common.quick) {
            (Kind::Shm, false) => Extent::Whole,
            (Kind::Shm, true) => Extent::Quick,
            _ => Extent::Emulated,
        };
        for &experiment in &experiments {
            cases.extend(cases_of(experiment, &fabric.to_string(), extent));
        }
    }
    let wanted = |case: &Case| {
        let members = args.members.iter().map(|&members| usize::from(members));
        (args.members.is_empty() || members.into_iter().any(|some| some == case.members))
            && (args.sizes.is_empty() || args.sizes.contains(&case.bytes))
            && (args.opts.is_empty() || args.opts.contains(&case.opts))
    };
    cases.retain(|case| wanted(case) && (!args.common.quick || is_quick(case)));
    for case in &mut cases {
        case.bound = case.members <= processors;
    }
    if experiments.contains(&Experiment::Raw) {
        add_raw(&mut cases);
    }
    cases
}

/// Puts a raw case in front for each stream that has another one's bytes, senders or
/// members. What is not read is not compared with what is.
fn add_raw(cases: &mut Vec<Case>) {
    let streams = |case: &&Case| {
        case.is_stream() && case.experiment != Experiment::Raw && case.touch == Touch::Full
    };
    let mut all: Vec<Case> = Vec::new();
    for raw in cases.iter().filter(streams).map(Case::raw) {
        if !all.contains(&raw) {
            all.push(raw);
        }
    }
    cases.retain(|case| case.experiment != Experiment::Raw || all.is_empty());
    all.append(cases);
    *cases = all;
}

/// Over emulated devices a case takes seconds, most of them to start: a quick run
/// has the ends of the ladder, plain writes and a lone message.
fn is_quick(case: &Case) -> bool {
    let ends = ["baseline", "full"].contains(&case.opts.as_str());
    case.fabric == Kind::Shm.to_string()
        || match case.experiment {
            Experiment::Raw | Experiment::Ladder => case.bytes == 10_240 && ends,
            Experiment::Lone => true,
            _ => false,
        }
}

fn cases_of(experiment: Experiment, fabric: &str, extent: Extent) -> Vec<Case> {
    let usual = |members| Case::usual(experiment, fabric, members);
    match experiment {
        // By itself: beside other experiments, `add_raw` knows better.
        Experiment::Raw => single(usual, extent).iter().map(Case::raw).collect(),
        Experiment::Single => single(usual, extent),
        Experiment::Ladder => ladder(usual, extent),
        Experiment::Window => window(usual, extent),
        Experiment::Subgroups => subgroups(usual, extent),
        Experiment::Delayed => delayed(usual, extent),
        Experiment::Memcpy => memcpy(usual, extent),
        Experiment::Touch => touch(usual, extent),
        Experiment::Views => views(usual, extent),
        Experiment::Lone => extent
            .of(&[2, 8], &[2], &[2])
            .into_iter()
            .flat_map(|members| {
                let case = Case {
                    senders: Senders::One,
                    bytes: 8,
                    ..usual(members)
                };
                fixed_and_with_views(case)
            })
            .collect(),
        Experiment::Idle => vec![Case {
            bytes: 8,
            ..usual(3)
        }],
    }
}

fn single(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in extent.of(&SIZES, &SIZES, &[1, 10_240]) {
        for members in extent.of(&[2, 4, 8, 16], &[2, 8], &[2, 3]) {
            for senders in Senders::ALL {
                // Half of two, or of three, is one.
                if senders == Senders::Half && senders.of(members) == 1 {
                    continue;
                }
                cases.push(Case {
                    senders,
                    bytes,
                    ..usual(members)
                });
                // How much of it is that senders read what they have written, and that
                // two threads take turns.
                if members == 2 && bytes == 10_240 {
                    let variants = [(true, true), (false, false), (false, true)];
                    cases.extend(variants.map(|(own_read, stepped)| Case {
                        senders,
                        bytes,
                        own_read,
                        stepped,
                        ..usual(members)
                    }));
                }
            }
        }
    }
    cases
}

fn ladder(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in extent.of(&SIZES, &SIZES, &[10_240]) {
        for members in extent.of(&[2, 4, 8], &[2], &[2, 4]) {
            for (name, _) in Options::LADDER {
                cases.push(Case {
                    bytes,
                    opts: name.to_owned(),
                    ..usual(members)
                });
            }
        }
    }
    cases
}

fn window(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for members in extent.of(&[2, 8], &[2], &[2]) {
        for window in extent.of(&[5, 10, 50, 100, 500, 1000], &[5, 50, 100, 500], &[5, 100]) {
            cases.push(Case {
                window,
                ..usual(members)
            });
        }
    }
    cases
}

fn subgroups(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for opts in ["baseline", "full"] {
        for subgroups in extent.of(&[1, 2, 10, 50], &[1, 10, 50], &[]) {
            cases.push(Case {
                subgroups,
                opts: opts.to_owned(),
                ..usual(4)
            });
        }
    }
    cases
}

fn delayed(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = vec![None];
    for senders in [Senders::One, Senders::Half] {
        for us in extent.of(
            &[Some(1), Some(100), None],
            &[Some(100), None],
            &[Some(1000)],
        ) {
            cases.push(Some(Delay { us, senders }));
        }
    }
    let case = |delay| Case { delay, ..usual(4) };
    match extent {
        Extent::Emulated => Vec::new(),
        _ => cases.into_iter().map(case).collect(),
    }
}

fn memcpy(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in extent.of(&[1, 10_240], &[10_240], &[]) {
        for members in extent.of(&[2, 8], &[2], &[]) {
            for memcpy in [false, true] {
                cases.push(Case {
                    bytes,
                    memcpy,
                    ..usual(members)
                });
            }
        }
    }
    cases
}

fn touch(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in extent.of(&SIZES, &[10_240], &[]) {
        for members in extent.of(&[2, 8], &[2], &[]) {
            for senders in [Senders::All, Senders::One] {
                for touch in [Touch::Full, Touch::None] {
                    cases.push(Case {
                        bytes,
                        senders,
                        touch,
                        ..usual(members)
                    });
                }
            }
        }
    }
    cases
}

fn views(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in extent.of(&[128, 10_240], &[10_240], &[128]) {
        for members in extent.of(&[2, 4, 8], &[2], &[2, 4]) {
            cases.extend(fixed_and_with_views(Case {
                bytes,
                ..usual(members)
            }));
        }
    }
    cases
}

fn fixed_and_with_views(case: Case) -> [Case; 2] {
    [false, true].map(|views| Case {
        views,
        ..case.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_of_the_paper_has_cases() {
        for experiment in Experiment::ALL {
            for extent in [Extent::Whole, Extent::Quick] {
                assert!(!cases_of(experiment, "shm", extent).is_empty());
            }
        }
        let single = cases_of(Experiment::Single, "shm", Extent::Whole);
        assert_eq!(single.len(), 4 * (2 + 3 * 3) + 2 * 3);
    }

    #[test]
    fn each_stream_that_is_read_has_one_raw_case_beside_it() {
        let mut cases = cases_of(Experiment::Single, "shm", Extent::Quick);
        cases.extend(cases_of(Experiment::Touch, "shm", Extent::Quick));
        cases.extend(cases_of(Experiment::Lone, "shm", Extent::Quick));
        add_raw(&mut cases);
        let count = |raw: &Case| cases.iter().filter(|case| *case == raw).count();
        let is_raw = |case: &&Case| case.experiment == Experiment::Raw;
        assert!(cases
            .iter()
            .filter(is_raw)
            .all(|raw| raw.touch == Touch::Full));
        for case in cases
            .iter()
            .filter(|case| case.experiment == Experiment::Single)
        {
            assert_eq!(count(&case.raw()), 1);
        }
    }

    #[test]
    fn what_is_compared_is_of_one_kind() {
        let ladder = cases_of(Experiment::Ladder, "shm", Extent::Quick);
        for rungs in ladder.chunks(Options::LADDER.len()) {
            let opts = rungs.iter().map(|case| case.opts.as_str());
            assert!(opts.eq(Options::LADDER.map(|(name, _)| name)));
            assert!(rungs.iter().all(|case| case.bytes == rungs[0].bytes));
        }
    }
}
