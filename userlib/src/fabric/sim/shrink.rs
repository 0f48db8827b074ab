// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes a failing run small.

/// Attempts, at most.
const ATTEMPTS: usize = 400;

/// What a run does, as far as its seed does not decide that.
pub trait Plan: Clone + PartialEq {
    /// What goes wrong in it.
    type Fault: Clone;

    /// How many actions it has, and which faults, each before an action.
    fn events(&self) -> (usize, &[(usize, Self::Fault)]);

    /// The same, with others.
    #[must_use]
    fn with_events(&self, actions: usize, faults: Vec<(usize, Self::Fault)>) -> Self;

    /// Plans that are smaller in other ways.
    fn smaller(&self) -> Vec<Self>;
}

/// A run that is smaller and fails alike, as `fails` says, which answers how; the given one if
/// there is none. `plan_of` says what a failed run's plan was.
pub fn shrink<P: Plan, F>(
    first: F,
    plan_of: impl Fn(&F) -> &P,
    fails: impl Fn(&P, &F) -> Option<F>,
) -> F {
    let mut best = first;
    let mut attempts = 0;
    loop {
        let before = plan_of(&best).clone();
        for plan in smaller(&before) {
            attempts += 1;
            if let Some(failure) = fails(&plan, &best) {
                best = failure;
                break;
            }
            if attempts >= ATTEMPTS {
                return best;
            }
        }
        if *plan_of(&best) == before {
            return best;
        }
    }
}

/// Plans that are a little smaller, the smallest first.
fn smaller<P: Plan>(plan: &P) -> Vec<P> {
    let mut plans = Vec::new();
    let (actions, faults) = plan.events();
    for left_out in 0..faults.len() {
        let mut others = faults.to_vec();
        others.remove(left_out);
        plans.push(plan.with_events(actions, others));
    }
    plans.extend(plan.smaller());
    let first = faults.first().map_or(0, |fault| fault.0);
    let last = faults.last().map_or(0, |fault| fault.0);
    for cut in [actions / 2, actions / 8, 1] {
        if cut > 0 && last + cut < actions {
            plans.push(plan.with_events(actions - cut, faults.to_vec()));
        }
        // What was done before the faults may not have mattered.
        if cut > 0 && first >= cut {
            let earlier = faults.iter().map(|(at, fault)| (at - cut, fault.clone()));
            plans.push(plan.with_events(actions, earlier.collect()));
        }
    }
    plans
}
