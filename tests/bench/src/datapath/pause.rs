// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that compute between two samples.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::round_robin::{Case, MakeCase, Sample};

/// A case before each of whose samples the client computes.
struct Paused<'a> {
    case: Box<dyn Case + 'a>,
    pause: Duration,
}

impl Case for Paused<'_> {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        while start.elapsed() < self.pause {
            spin_loop();
        }
        let paused = start.elapsed();
        let sample = self.case.sample()?;
        Ok(Sample {
            outside: sample.outside + paused,
            ..sample
        })
    }
}

/// The case with such a pause, if it is one.
pub fn paused(make: MakeCase<'_>, pause: Duration) -> MakeCase<'_> {
    if pause.is_zero() {
        return make;
    }
    Box::new(move || {
        let case = make()?;
        Ok(Box::new(Paused { case, pause }) as Box<dyn Case>)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Case for Nothing {
        fn sample(&mut self) -> Result<Sample> {
            Ok(Sample::default())
        }
    }

    #[test]
    fn a_pause_is_outside_of_the_sample() {
        let pause = Duration::from_millis(1);
        let make = paused(Box::new(|| Ok(Box::new(Nothing))), pause);
        let sample = make().unwrap().sample().unwrap();
        assert_eq!(sample.call, Duration::ZERO);
        assert!(sample.outside >= pause);
    }
}
