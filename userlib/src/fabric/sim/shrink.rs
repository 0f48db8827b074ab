// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes a failing run small.

/// Attempts, at most.
const ATTEMPTS: usize = 400;

/// A description of a run, as far as its seed does not decide it.
pub trait Plan: Clone + PartialEq {
    /// Something that goes wrong in it.
    type Fault: Clone;

    /// How many actions it has, and the faults, each before an action.
    fn events(&mut self) -> (&mut usize, &mut Vec<(usize, Self::Fault)>);

    /// A plan that is smaller in another way, if there is one.
    fn smaller(&self) -> Option<Self>;
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
    let mut whole = plan.clone();
    let (actions, faults) = whole.events();
    let (actions, count) = (*actions, faults.len());
    let first = faults.first().map_or(0, |fault| fault.0);
    let last = faults.last().map_or(0, |fault| fault.0);
    let mut plans = Vec::new();
    let mut changed = |change: &dyn Fn(&mut usize, &mut Vec<_>)| {
        let mut plan = plan.clone();
        let (actions, faults) = plan.events();
        change(actions, faults);
        plans.push(plan);
    };
    for left_out in 0..count {
        changed(&|_, faults| drop(faults.remove(left_out)));
    }
    for cut in [actions / 2, actions / 8, 1] {
        if cut > 0 && last + cut < actions {
            changed(&|actions, _| *actions -= cut);
        }
        // What was done before the faults may not have mattered.
        if cut > 0 && first >= cut {
            changed(&|_, faults| faults.iter_mut().for_each(|fault| fault.0 -= cut));
        }
    }
    plans.extend(plan.smaller());
    plans
}
