// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes a failing run small.

use super::{run, Failure, Fault, Plan};
use crate::fabric::sim;

/// A run with fewer actions, faults and groups in which the same oracle fails; the given one
/// if there is none.
#[must_use]
pub fn shrink(failure: Box<Failure>) -> Box<Failure> {
    sim::shrink(
        failure,
        |failure| &failure.plan,
        |plan, before| {
            run(plan)
                .err()
                .filter(|failure| failure.oracle == before.oracle)
        },
    )
}

impl sim::Plan for Plan {
    type Fault = Fault;

    fn events(&self) -> (usize, &[(usize, Fault)]) {
        (self.actions, &self.faults)
    }

    fn with_events(&self, actions: usize, faults: Vec<(usize, Fault)>) -> Self {
        Self {
            actions,
            faults,
            ..self.clone()
        }
    }

    fn smaller(&self) -> Vec<Self> {
        let fewer = self.groups.checked_sub(1).filter(|&groups| groups > 0);
        let plan = fewer.map(|groups| Self {
            groups,
            ..self.clone()
        });
        plan.into_iter().collect()
    }
}
