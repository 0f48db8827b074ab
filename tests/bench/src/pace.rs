// SPDX-License-Identifier: MIT OR Apache-2.0

//! How requests follow one another.
//!
//! A client may go round in a tight loop, as perftest's latency tools do: one
//! time stamp in each round, and a sample is the time between two of them. Or it
//! computes between two requests, as one that uses the data does, and each
//! request is timed by itself. On soft-RoCE the two differ: in a tight loop the
//! kernel's worker thread is still awake from the request before.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::round_robin::{Case, Sample, Taken};
use crate::stamps::Stamps;

/// What is done again and again: a request, a batch, a message and its answer.
pub trait Step {
    /// Does it once, and waits until it is done.
    fn step(&mut self) -> Result<()>;
}

impl Step for Box<dyn Step + Send> {
    fn step(&mut self) -> Result<()> {
        (**self).step()
    }
}

/// A step at a pace.
pub struct Paced<S> {
    step: S,
    pause: Duration,
    /// Latencies that one step has: two in a ping-pong.
    latencies: u32,
}

impl<S: Step> Paced<S> {
    /// Repeats a step, with this long a pause before each; none is a tight loop.
    pub fn new(step: S, pause: Duration) -> Self {
        Self {
            step,
            pause,
            latencies: 1,
        }
    }

    /// Repeats a ping-pong in a tight loop. Its latency is half of a round trip.
    pub fn ping_pong(step: S) -> Self {
        Self {
            latencies: 2,
            ..Self::new(step, Duration::ZERO)
        }
    }

    fn tight_loop(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        let mut stamps = Stamps::begin(count);
        for _ in 0..count {
            stamps.take();
            self.step.step()?;
        }
        let laps = stamps.end();
        for lap in laps.times {
            taken.add(Sample {
                call: lap / self.latencies,
                ..Sample::default()
            });
        }
        taken.leave_out(laps.ended.elapsed());
        Ok(())
    }
}

impl<S: Step> Case for Paced<S> {
    fn sample(&mut self) -> Result<Sample> {
        let begin = Instant::now();
        while begin.elapsed() < self.pause {
            spin_loop();
        }
        let start = Instant::now();
        self.step.step()?;
        Ok(Sample {
            call: start.elapsed() / self.latencies,
            outside: start - begin,
            ..Sample::default()
        })
    }

    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        if self.pause.is_zero() {
            return self.tight_loop(count, taken);
        }
        for _ in 0..count {
            taken.add(self.sample()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_robin::{self, Amount, MakeCase, Outcome};

    /// A step that takes so long.
    struct Nap(Duration);

    impl Step for Nap {
        fn step(&mut self) -> Result<()> {
            std::thread::sleep(self.0);
            Ok(())
        }
    }

    /// Five samples, and how long all of that took.
    fn run(make: impl Fn() -> Paced<Nap> + Sync) -> (Outcome, Duration) {
        let make: MakeCase<'_> = Box::new(move || Ok(Box::new(make())));
        let start = Instant::now();
        let outcomes = round_robin::run("test", &[(make, Amount::of(5))], 1).unwrap();
        (outcomes.into_iter().next().unwrap(), start.elapsed())
    }

    /// The time that the samples took together.
    fn total(outcome: &Outcome) -> Duration {
        let mean_us = outcome.call.mean_us().unwrap();
        Duration::from_secs_f64(mean_us * outcome.call.count() as f64 / 1e6)
    }

    const NAP: Duration = Duration::from_millis(2);

    #[test]
    fn a_pause_is_outside_of_the_sample() {
        let pause = Duration::from_millis(5);
        let (outcome, elapsed) = run(|| Paced::new(Nap(NAP), pause));
        assert_eq!(outcome.call.count(), 5);
        assert!(total(&outcome) >= NAP * 5);
        // The histogram is exact to a thousandth.
        assert!(total(&outcome).mul_f64(0.99) + pause * 5 <= elapsed);
        // Nor is it in the rate.
        let in_blocks = Duration::from_secs_f64(5.0 / outcome.per_sec());
        assert!(in_blocks + pause * 5 <= elapsed);
    }

    #[test]
    fn a_tight_loop_samples_the_time_from_stamp_to_stamp() {
        let (outcome, elapsed) = run(|| Paced::new(Nap(NAP), Duration::ZERO));
        assert_eq!(outcome.call.count(), 5);
        assert!(total(&outcome) >= NAP * 5);
        assert!(total(&outcome).mul_f64(0.99) <= elapsed);
    }

    #[test]
    fn a_ping_pong_takes_two_latencies() {
        let (outcome, elapsed) = run(|| Paced::ping_pong(Nap(NAP)));
        assert!(outcome.call.min_us() >= Some(990.0));
        assert!(total(&outcome).mul_f64(1.98) <= elapsed);
    }
}
