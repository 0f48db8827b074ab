// SPDX-License-Identifier: MIT OR Apache-2.0

//! Spindle's evaluation (spindle §IV), and its figure 1.

mod numbers;
mod plots;

use crate::figure::{no_charts, no_numbers, Recipe};
use crate::rows::{Rows, Selection};
pub use plots::ladders;

use numbers as number;
use plots as plot;

/// The paper's message.
const BYTES: f64 = 10_240.0;

/// What makes most of the figures.
const MULTICAST: &[&str] = &["multicast"];

/// Its figures.
pub fn figures() -> Vec<Recipe> {
    let mut all = batching();
    all.extend(rest());
    all
}

/// Figures 1 to 9.
fn batching() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "spindle-1",
            title: "Figure 1: latency of a WRITE by size",
            limits: "soft-RoCE's time for a packet hides the size of small messages as an adapter's \
                     does, at forty times the latency.",
            benches: &["datapath"],
            charts: |rows| vec![plot::write_latency(rows)],
            compare: number::write_latency,
        },
        Recipe {
            id: "spindle-3",
            title: "Figures 3 and 16: one subgroup, messages of 10 KB",
            limits: "Members share processors and memory, so that bandwidth falls with more members \
                     than processors, where the paper's machines are one to a member; the share of \
                     what plain writes and reads of the same bytes reach is what compares.",
            benches: MULTICAST,
            charts: |rows| vec![plot::single(rows)],
            compare: number::single,
        },
        Recipe {
            id: "spindle-4",
            title: "Figure 4: messages a second by size",
            limits: "Each message is written and read in full, so that large ones cost memory's time \
                     here, where the paper's cost the network's.",
            benches: MULTICAST,
            charts: |rows| vec![plot::rates(rows)],
            compare: number::rates,
        },
        Recipe {
            id: "spindle-5",
            title: "Figures 5, 11 and 12: one optimisation after the other",
            limits: "Over shared memory a post is a store, so that batching saves less than where \
                     each post is a microsecond at an adapter; over VQPs and verbs it is a system call \
                     or more.",
            benches: MULTICAST,
            charts: plot::ladders,
            compare: number::ladder,
        },
        Recipe {
            id: "spindle-6",
            title: "Figure 6: size of the window",
            limits: "Caches bound what a window may take before memory's speed counts; a network has \
                     no such bound.",
            benches: MULTICAST,
            charts: |rows| vec![plot::window(rows)],
            compare: no_numbers,
        },
        Recipe {
            id: "spindle-7",
            title: "Figure 7: sizes of batches",
            limits: "Where members take turns on a processor, a batch is what came while others ran, \
                     so that batches are larger than the paper's.",
            benches: MULTICAST,
            charts: no_charts,
            compare: number::batches,
        },
        Recipe {
            id: "spindle-8",
            title: "Figures 8, 9 and 13: many subgroups, one of them active",
            limits: "The paper's figure 13 has all subgroups active, which is not measured here.",
            benches: MULTICAST,
            charts: |rows| vec![plot::subgroups(rows)],
            compare: number::subgroups,
        },
    ]
}

/// Figures 10 to 18.
fn rest() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "spindle-10",
            title: "Figure 10: senders that are late, with null messages",
            limits: "A sender that waits busily takes a processor from the others here, which it does \
                     not in the paper.",
            benches: MULTICAST,
            charts: |rows| vec![plot::delayed(rows)],
            compare: number::delayed,
        },
        Recipe {
            id: "spindle-14",
            title: "Figure 14: copying memory",
            limits: "What memory of this machine gives is in the rows of plain writes and reads beside \
                     each experiment; memcpy by itself is not measured.",
            benches: &[],
            charts: no_charts,
            compare: no_numbers,
        },
        Recipe {
            id: "spindle-15",
            title: "Figure 15: messages copied in and out",
            limits: "Here messages are written and read in any case, so that a copy more costs what a \
                     copy within caches does.",
            benches: MULTICAST,
            charts: |rows| vec![plot::memcpy(rows)],
            compare: number::memcpy,
        },
        Recipe {
            id: "spindle-17",
            title: "Figure 17: latency",
            limits: "The latency of a stream is that of a full window; how long a lone message takes is \
                     a question of waking a process, which the paper does not measure.",
            benches: MULTICAST,
            charts: |rows| vec![plot::latency(rows)],
            compare: number::latency,
        },
        Recipe {
            id: "spindle-18",
            title: "Figure 18: DDS",
            limits: "The library has no DDS on top of it; its messages are the paper's second level, \
                     atomic multicast.",
            benches: &[],
            charts: no_charts,
            compare: no_numbers,
        },
    ]
}

/// An experiment over a fabric, with messages that are written and read.
fn experiment<'a>(rows: &'a Rows, name: &str, fabric: &str) -> Selection<'a> {
    let rows = rows.of("multicast").is("experiment", name);
    rows.is("fabric", fabric).is("touch", "full")
}

/// The same without what is particular to some cases.
fn plain<'a>(rows: &'a Rows, name: &str, fabric: &str) -> Selection<'a> {
    experiment(rows, name, fabric).without("note")
}
