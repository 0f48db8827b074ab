// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which cases belong to which experiment. Quick runs have fewer of them, and
//! fabrics over emulated devices fewer still.

use weft::Options;
use weft_testkit::place::Kind;

use super::args::MulticastArgs;
use super::case::{Case, Delay, Experiment, Senders};

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

/// The cases that were asked for, experiment by experiment.
pub fn plan(args: &MulticastArgs) -> Vec<Case> {
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
        let is_raw = case.experiment == Experiment::Raw;
        (args.members.is_empty() || is_raw || members.into_iter().any(|some| some == case.members))
            && (args.sizes.is_empty() || args.sizes.contains(&case.bytes))
            && (args.opts.is_empty() || is_raw || args.opts.contains(&case.opts))
    };
    cases.retain(|case| wanted(case) && (!args.common.quick || is_quick(case)));
    cases
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
        Experiment::Raw => raw(&usual(2), extent),
        Experiment::Single => single(usual, extent),
        Experiment::Ladder => ladder(usual, extent),
        Experiment::Window => window(usual, extent),
        Experiment::Subgroups => subgroups(usual, extent),
        Experiment::Delayed => delayed(usual, extent),
        Experiment::Memcpy => memcpy(usual, extent),
        Experiment::Lone => extent
            .of(&[2, 8], &[2], &[2])
            .into_iter()
            .map(|members| Case {
                senders: Senders::One,
                bytes: 8,
                ..usual(members)
            })
            .collect(),
        Experiment::Idle => vec![Case {
            bytes: 8,
            ..usual(3)
        }],
    }
}

fn raw(usual: &Case, extent: Extent) -> Vec<Case> {
    let case = |bytes| Case {
        senders: Senders::One,
        bytes,
        ..usual.clone()
    };
    let sizes = extent.of(&SIZES, &SIZES, &[1, 10_240]);
    sizes.into_iter().map(case).collect()
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
            }
        }
    }
    cases
}

fn ladder(usual: impl Fn(usize) -> Case, extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in extent.of(&SIZES, &SIZES, &[10_240]) {
        for members in extent.of(&[2, 4, 8], &[2], &[2]) {
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
        assert_eq!(single.len(), 4 * (2 + 3 * 3));
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
