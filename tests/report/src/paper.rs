// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures of the papers' evaluations: their numbers, taken from the papers' text,
//! and ours.

pub mod krcore;
pub mod rdmc;
pub mod spindle;

use crate::figure::Recipe;

/// A paper, and its figures in its order.
pub struct Paper {
    pub name: &'static str,
    pub about: &'static str,
    pub figures: Vec<Recipe>,
}

/// All papers.
pub fn all() -> Vec<Paper> {
    vec![
        Paper {
            name: "KRCore (USENIX ATC 2022)",
            about: "Ten machines with two 12-core processors and a 100 Gb/s adapter each, \
                    whose hardware has DC. Here nodes are network namespaces of one virtual \
                    machine, and soft-RoCE and SoftDc do in software what adapters do: all \
                    times are longer, and ratios are what can be compared.",
            figures: krcore::figures(),
        },
        Paper {
            name: "Spindle (ICDCS 2022)",
            about: "Sixteen machines with 16 cores and a 100 Gb/s adapter each. Here members \
                    are processes of one machine with fewer processors than members, over \
                    shared memory where nothing else is said.",
            figures: spindle::figures(),
        },
        Paper {
            name: "RDMC",
            about: "Clusters of 16 to 512 machines with adapters of 40 to 100 Gb/s. Here \
                    members are processes of one machine; where only more nodes show \
                    anything, the schedules run on simulated links.",
            figures: rdmc::figures(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_own_name_and_says_what_can_be_seen() {
        let papers = all();
        let figures: Vec<_> = papers.iter().flat_map(|paper| &paper.figures).collect();
        for (at, figure) in figures.iter().enumerate() {
            assert!(figure.limits.ends_with('.'), "{}", figure.id);
            assert!(figures[..at].iter().all(|other| other.id != figure.id));
        }
    }

    #[test]
    fn no_figure_of_an_evaluation_is_forgotten() {
        // Some share a title: "Figures 5, 11 and 12: ...".
        let all: [&[&str]; 3] = [
            &[
                "3", "8a", "8b", "9a", "9b", "10", "11", "12a", "12b", "13", "14a", "14b", "15a",
                "15b", "16",
            ],
            &[
                "1", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
                "17", "18",
            ],
            &["4", "5", "6", "7", "8", "9", "10", "11", "12"],
        ];
        for (paper, numbers) in super::all().iter().zip(all) {
            let titles = paper
                .figures
                .iter()
                .filter_map(|figure| figure.title.split(':').next());
            let titles: Vec<&str> = titles.flat_map(|title| title.split([' ', ','])).collect();
            for number in numbers {
                assert!(titles.contains(number), "{}, figure {number}", paper.name);
            }
        }
    }
}
