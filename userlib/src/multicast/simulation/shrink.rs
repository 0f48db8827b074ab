// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes a failing run small.

use super::{run, Failure, Fault, Plan};
use crate::fabric::sim;

/// A run with fewer actions, faults and messages under way in which the same oracle fails; the given
/// one if there is none.
#[must_use]
pub fn shrink(failure: Box<Failure>) -> Box<Failure> {
    sim::shrink(
        failure,
        |failure| &failure.plan,
        |plan, before| {
            let failure = run(plan).err();
            failure.filter(|failure| failure.oracle == before.oracle)
        },
    )
}

impl sim::Plan for Plan {
    type Fault = Fault;

    fn events(&mut self) -> (&mut usize, &mut Vec<(usize, Fault)>) {
        (&mut self.actions, &mut self.faults)
    }

    fn smaller(&self) -> Option<Self> {
        let mut plan = self.clone();
        plan.window = self.window.checked_sub(1).filter(|&left| left > 0)?;
        Some(plan)
    }
}
