// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which configurations of each MPI are tried: what it does by itself, each of its
//! algorithms, with segments of several lengths where an algorithm has any, copies by
//! way of shared segments, and with several senders broadcasts that do not block.

use super::super::load::Load;
use super::{Implementation, Mpi};

const KIB: usize = 1 << 10;
/// Segments that are tried where an algorithm has any.
const SEGMENTS: [usize; 3] = [32 * KIB, 128 * KIB, 1024 * KIB];
const QUICK_SEGMENTS: [usize; 1] = [128 * KIB];

/// Algorithms of Open MPI's `tuned`, and whether they are segmented.
const OPEN_MPI: [(&str, bool); 9] = [
    ("basic_linear", false),
    ("chain", true),
    ("pipeline", true),
    ("split_binary_tree", true),
    ("binary_tree", true),
    ("binomial", true),
    ("knomial", true),
    ("scatter_allgather", false),
    ("scatter_allgather_ring", false),
];
/// Those of MPICH, and whether they are segmented.
const MPICH: [(&str, bool); 6] = [
    ("binomial", false),
    ("nb", false),
    ("scatter_recursive_doubling_allgather", false),
    ("scatter_ring_allgather", false),
    ("pipelined_tree", true),
    ("tree", false),
];
/// Algorithms that a quick run tries: a tree, a pipeline and a scatter of each.
const QUICK: [&str; 5] = [
    "knomial",
    "pipeline",
    "pipelined_tree",
    "scatter_allgather_ring",
    "scatter_ring_allgather",
];
/// Open MPI's copies by way of a shared segment, which can be asked for only when ranks
/// are started.
static SEGMENTS_OF_SM: [(&str, [&str; 6]); 2] =
    [("sm 8 KiB", sm("8192")), ("sm 64 KiB", sm("65536"))];

const fn sm(fragment: &str) -> [&str; 6] {
    [
        "--mca",
        "coll_sm_priority",
        "95",
        "--mca",
        "coll_sm_fragment_size",
        fragment,
    ]
}

/// What `bcast` calls copies from a shared window.
pub(super) const WINDOW: &str = "window";

impl Implementation {
    /// All configurations for a load.
    pub fn configurations(self, load: &Load, quick: bool) -> Vec<Mpi> {
        let wants = |algorithm: &str| !quick || QUICK.contains(&algorithm);
        let (algorithms, mut all) = match self {
            Self::OpenMpi => (&OPEN_MPI[..], self.open_mpi_defaults()),
            Self::Mpich => (&MPICH[..], self.mpich_defaults(quick)),
        };
        for &(algorithm, is_segmented) in algorithms.iter().filter(|known| wants(known.0)) {
            for segment in segments(load, is_segmented, quick) {
                let name = match segment {
                    0 => algorithm.to_owned(),
                    _ => format!("{algorithm} {} KiB", segment / KIB),
                };
                let variables = match self {
                    Self::OpenMpi => open_mpi(1, algorithm, segment),
                    Self::Mpich => mpich("none", "auto", algorithm, segment.max(KIB)),
                };
                // Shorter pieces than the whole are copied as the library likes.
                let is_whole = segment == 0 && (self == Self::OpenMpi || !is_segmented);
                all.push(self.configuration(&name, &format!("bcast,{variables}"), is_whole));
            }
        }
        if load.senders > 1 {
            all.push(self.configuration("ibcast", "ibcast", false));
        }
        if self == Self::OpenMpi {
            all.push(self.configuration(WINDOW, WINDOW, false));
        }
        if self == Self::OpenMpi && !quick {
            // At the end: they are started by themselves.
            all.extend(SEGMENTS_OF_SM.iter().map(|(name, launch)| Mpi {
                launch,
                ..self.configuration(name, &format!("bcast,{}", open_mpi(1, "ignore", 0)), false)
            }));
        }
        all
    }

    fn configuration(self, settings: &str, config: &str, is_by_cma: bool) -> Mpi {
        Mpi {
            implementation: self,
            settings: settings.to_owned(),
            config: config.to_owned(),
            launch: &[],
            is_by_cma,
        }
    }

    /// What Open MPI does by itself, with each of its collections of algorithms.
    fn open_mpi_defaults(self) -> Vec<Mpi> {
        let make = |name, han, by_cma| {
            let variables = open_mpi(han, "ignore", 0);
            self.configuration(name, &format!("bcast,{variables}"), by_cma)
        };
        vec![make("tuned", 1, true), make("han", 90, false)]
    }

    /// What MPICH does by itself, and with its algorithm for shared memory.
    fn mpich_defaults(self, quick: bool) -> Vec<Mpi> {
        let make = |name: &str, posix| {
            let variables = mpich("percoll", posix, "auto", 8 * KIB);
            self.configuration(name, &format!("bcast,{variables}"), false)
        };
        let mut all = vec![make("auto", "auto")];
        if !quick {
            all.push(make("release_gather", "release_gather"));
        }
        all
    }
}

/// Lengths of segments to try; 0 for none.
fn segments(load: &Load, is_segmented: bool, quick: bool) -> Vec<usize> {
    let all = if quick {
        &QUICK_SEGMENTS[..]
    } else {
        &SEGMENTS
    };
    let some = all
        .iter()
        .copied()
        .filter(|&segment| is_segmented && segment < load.bytes);
    std::iter::once(0).chain(some).collect()
}

/// All variables that any configuration of Open MPI sets: they stay until set again.
fn open_mpi(han: usize, algorithm: &str, segment: usize) -> String {
    format!(
        "coll_han_priority={han},coll_tuned_bcast_algorithm={algorithm},\
         coll_tuned_bcast_algorithm_segmentsize={segment}"
    )
}

/// The same of MPICH.
fn mpich(device: &str, posix: &str, algorithm: &str, segment: usize) -> String {
    format!(
        "MPIR_CVAR_DEVICE_COLLECTIVES={device},MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM={posix},\
         MPIR_CVAR_BCAST_INTRA_ALGORITHM={algorithm},\
         MPIR_CVAR_BCAST_TREE_PIPELINE_CHUNK_SIZE={segment}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmc::load::Experiment;

    fn load(bytes: usize, senders: usize) -> Load {
        Load {
            fabric: "shm".to_owned(),
            experiment: Experiment::Single,
            members: 4,
            bytes,
            senders,
            messages: 1,
            warm_up: 1,
            samples: 1,
        }
    }

    #[test]
    fn each_configuration_is_tried_once_and_has_a_name_of_its_own() {
        for (bytes, senders) in [(1, 1), (1 << 20, 1), (64 << 20, 4)] {
            for implementation in Implementation::ALL {
                for quick in [false, true] {
                    let load = load(bytes, senders);
                    let all = implementation.configurations(&load, quick);
                    for (at, one) in all.iter().enumerate() {
                        let told = |mpi: &Mpi| (mpi.config.clone(), mpi.launch);
                        let same = |other: &Mpi| {
                            told(other) == told(one) || other.settings == one.settings
                        };
                        assert!(!all[..at].iter().any(same), "{one:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_segment_is_as_long_as_the_message() {
        assert_eq!(segments(&load(128 * KIB, 1), true, false), [0, 32 * KIB]);
        assert_eq!(segments(&load(1 << 20, 1), false, false), [0]);
    }
}
