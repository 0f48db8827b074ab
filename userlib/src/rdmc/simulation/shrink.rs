// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes a failing run small.

use super::{run, Failure, Plan};

/// Attempts, at most.
const ATTEMPTS: usize = 400;

/// A run with fewer actions, faults, groups and nodes in which the same oracle fails; the
/// given one if there is none.
#[must_use]
pub fn shrink(failure: Box<Failure>) -> Box<Failure> {
    let mut best = failure;
    let mut attempts = 0;
    loop {
        let before = best.plan.clone();
        for plan in smaller(&before) {
            attempts += 1;
            match run(&plan) {
                Err(failure) if failure.oracle == best.oracle => {
                    best = failure;
                    break;
                }
                _ if attempts >= ATTEMPTS => return best,
                _ => {}
            }
        }
        if best.plan == before {
            return best;
        }
    }
}

/// Plans that are a little smaller, the smallest first.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for left_out in 0..plan.faults.len() {
        let mut faults = plan.faults.clone();
        faults.remove(left_out);
        plans.push(Plan {
            faults,
            ..plan.clone()
        });
    }
    if plan.groups > 1 {
        plans.push(Plan {
            groups: plan.groups - 1,
            ..plan.clone()
        });
    }
    let first = plan.faults.first().map_or(0, |fault| fault.0);
    let last = plan.faults.last().map_or(0, |fault| fault.0);
    for cut in [plan.actions / 2, plan.actions / 8, 1] {
        if cut > 0 && last + cut < plan.actions {
            plans.push(Plan {
                actions: plan.actions - cut,
                ..plan.clone()
            });
        }
        // What was done before the faults may not have mattered.
        if cut > 0 && first >= cut {
            let faults = plan.faults.iter().map(|&(at, fault)| (at - cut, fault));
            plans.push(Plan {
                faults: faults.collect(),
                ..plan.clone()
            });
        }
    }
    plans
}
