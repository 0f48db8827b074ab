// SPDX-License-Identifier: MIT OR Apache-2.0

//! The optimisations, each with its switch (spindle §III), for ablation.

/// Which optimisations are on. All members of a subgroup have to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Deliver all that is stable in one upcall, and acknowledge it with one
    /// push (§III.A).
    pub delivery_batching: bool,
    /// Take in all that has arrived, and acknowledge it with one push (§III.A).
    pub receive_batching: bool,
    /// Post all that is committed with one write (§III.A).
    pub send_batching: bool,
    /// Send nulls for the rounds that this sender holds others up with
    /// (§III.B). Without them a silent sender stalls its subgroup.
    pub nulls: bool,
    /// Keep no lock while posting, and post once at the end of a round what
    /// its predicates have to say (§III.C). In this library nothing is locked
    /// at all then; without it, senders and the polling thread share the lock
    /// that the paper's baseline has. The polling thread keeps that lock while it calls a
    /// closure: two groups whose closures send into each other can deadlock without this
    /// option, even if they never wait for room.
    pub early_lock_release: bool,
}

impl Options {
    /// All off: the paper's baseline.
    pub const BASELINE: Self = Self {
        delivery_batching: false,
        receive_batching: false,
        send_batching: false,
        nulls: false,
        early_lock_release: false,
    };

    /// All on.
    pub const FULL: Self = Self {
        delivery_batching: true,
        receive_batching: true,
        send_batching: true,
        nulls: true,
        early_lock_release: true,
    };

    /// The ladder of the ablation: each has one optimisation more than the one
    /// before it, in the paper's order.
    pub const LADDER: [(&'static str, Self); 6] = [
        ("baseline", Self::BASELINE),
        (
            "+delivery",
            Self {
                delivery_batching: true,
                ..Self::BASELINE
            },
        ),
        (
            "+receive",
            Self {
                delivery_batching: true,
                receive_batching: true,
                ..Self::BASELINE
            },
        ),
        (
            "+send",
            Self {
                nulls: false,
                early_lock_release: false,
                ..Self::FULL
            },
        ),
        (
            "+nulls",
            Self {
                early_lock_release: false,
                ..Self::FULL
            },
        ),
        ("full", Self::FULL),
    ];
}

impl Default for Options {
    fn default() -> Self {
        Self::FULL
    }
}
