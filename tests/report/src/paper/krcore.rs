// SPDX-License-Identifier: MIT OR Apache-2.0

//! KRCore's evaluation (krcore §2.3 and §5).

mod control;
mod data;
mod messages;
mod scale;

pub use control::{cold_worker, largest_mesh, MeshTime};
pub use data::distributions;
pub use scale::cold_workers;

use crate::figure::{no_charts, no_numbers, Recipe};

/// Its figures, in its order.
pub fn figures() -> Vec<Recipe> {
    let mut all = control::figures();
    all.extend(data::figures());
    all.extend(scale::figures());
    all.extend([messages::without_copying(), messages::echo(), pool()]);
    let order = |recipe: &Recipe| ORDER.iter().position(|&id| id == recipe.id);
    all.sort_by_key(|recipe| order(recipe).unwrap_or(usize::MAX));
    all
}

/// Names of the figures in the paper's order.
const ORDER: [&str; 14] = [
    "krcore-3",
    "krcore-8a",
    "krcore-8b",
    "krcore-9a",
    "krcore-9b",
    "krcore-10",
    "krcore-11",
    "krcore-12a",
    "krcore-13",
    "krcore-14a",
    "krcore-14b",
    "krcore-15a",
    "krcore-15b",
    "krcore-16",
];

fn pool() -> Recipe {
    Recipe {
        id: "krcore-14a",
        title: "Figure 14a: size of the pool of DC queue pairs",
        limits: "SoftDc has no queue pairs that requests to different nodes would wait for: each \
                 node has one stream of packets to each peer, so that there is no pool whose size \
                 could be varied.",
        benches: &[],
        charts: no_charts,
        compare: no_numbers,
    }
}
