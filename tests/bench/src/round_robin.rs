// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures several cases interleaved: a small block of each in turn, again and
//! again, so that whatever else the machine does hits all of them alike. What a block
//! leaves behind, such as the driver's threads on other CPUs, the next one finds; so
//! each round has an order of its own, and no case always comes after the same one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Result};
use weft_testkit::rng::Rng;

use crate::report::progress;
use crate::stats::Times;

/// Calls of [`run`] so far, which give each its own orders: a benchmark may call it
/// for one round at a time. They are the same each time that the program runs.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// What a worker does beside the connecting call until its connection has carried
/// a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Opens the device.
    Open,
    /// Registers memory.
    Register,
    /// Makes the object that then connects.
    Create,
    /// Does the first WRITE, after the call.
    FirstWrite,
    /// All of it, the call included.
    Total,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Open,
        Self::Register,
        Self::Create,
        Self::FirstWrite,
        Self::Total,
    ];
}

/// How long each part took, of those that were part of the sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts([Option<Duration>; Part::ALL.len()]);

impl Parts {
    /// With one part more.
    pub fn with(mut self, part: Part, time: Duration) -> Self {
        self.0[part as usize] = Some(time);
        self
    }
}

/// One sample of a case.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    /// The call that is measured.
    pub call: Duration,
    /// What belongs to it.
    pub parts: Parts,
    /// Time that taking the sample took and that is not the case's.
    pub outside: Duration,
}

/// Something to measure, with one client's state.
pub trait Case {
    /// Does it once.
    fn sample(&mut self) -> Result<Sample>;

    /// Does it so many times, and hands each sample over as it comes. A case that
    /// wants nothing between two samples does this itself.
    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        for _ in 0..count {
            taken.add(self.sample()?);
        }
        Ok(())
    }
}

/// Where a client's samples of a block go.
pub struct Taken<'a> {
    outcome: &'a mut Outcome,
    outside: Duration,
}

impl Taken<'_> {
    /// Records a sample.
    pub fn add(&mut self, sample: Sample) {
        self.outside += sample.outside;
        self.outcome.add(sample);
    }

    /// Leaves out time that is not the case's.
    pub fn leave_out(&mut self, time: Duration) {
        self.outside += time;
    }
}

/// Makes a client's state for a case, in the client's thread.
pub type MakeCase<'a> = Box<dyn Fn() -> Result<Box<dyn Case + 'a>> + Sync + 'a>;

/// How much of a case to do.
#[derive(Clone, Copy)]
pub struct Amount {
    /// Samples in a block, of each client.
    pub block: u32,
    /// Blocks.
    pub rounds: u32,
    /// Rest after a block, for the peer to finish what the block left behind.
    pub rest: Duration,
}

impl Amount {
    /// One block of so many samples.
    pub fn of(block: u32) -> Self {
        Self {
            block,
            rounds: 1,
            rest: Duration::ZERO,
        }
    }
}

/// What all clients measured of one case.
#[derive(Clone)]
pub struct Outcome {
    pub call: Times,
    parts: BTreeMap<Part, Times>,
    /// Time in which any client was at it, block by block.
    blocks: Vec<Span>,
}

/// When a block began and ended.
#[derive(Clone, Copy)]
struct Span(Instant, Instant);

impl Outcome {
    /// Nothing measured yet.
    pub fn empty() -> Self {
        Self {
            call: Times::new(),
            parts: BTreeMap::new(),
            blocks: Vec::new(),
        }
    }

    /// Samples per second of all clients together, all that a sample does
    /// included but what is outside of the case.
    pub fn per_sec(&self) -> f64 {
        let wall: Duration = self.blocks.iter().map(|span| span.1 - span.0).sum();
        self.call.count() as f64 / wall.as_secs_f64().max(1e-9)
    }

    /// Records a sample.
    pub fn add(&mut self, sample: Sample) {
        self.call.record(sample.call);
        for part in Part::ALL {
            if let Some(time) = sample.parts.0[part as usize] {
                self.times_of(part).record(time);
            }
        }
    }

    /// The times of a part, if the samples have it.
    pub fn part(&self, part: Part) -> Option<&Times> {
        self.parts.get(&part)
    }

    fn times_of(&mut self, part: Part) -> &mut Times {
        self.parts.entry(part).or_insert_with(Times::new)
    }

    fn merge(&mut self, other: &Self) {
        self.call.merge(&other.call);
        for (&part, times) in &other.parts {
            self.times_of(part).merge(times);
        }
        // A block of all clients lasts from the first to begin to the last to end.
        let both = self.blocks.iter_mut().zip(&other.blocks);
        both.for_each(|(a, b)| *a = Span(a.0.min(b.0), a.1.max(b.1)));
        let known = self.blocks.len().min(other.blocks.len());
        self.blocks.extend_from_slice(&other.blocks[known..]);
    }
}

/// One client's measurement of one case.
struct Client<'a> {
    case: Box<dyn Case + 'a>,
    outcome: Outcome,
}

impl Client<'_> {
    fn block(&mut self, samples: u32) -> Result<()> {
        let start = Instant::now();
        let mut taken = Taken {
            outcome: &mut self.outcome,
            outside: Duration::ZERO,
        };
        self.case.samples(samples, &mut taken)?;
        let outside = taken.outside;
        let end = Instant::now();
        let end = end.checked_sub(outside).unwrap_or(end).max(start);
        self.outcome.blocks.push(Span(start, end));
        Ok(())
    }
}

/// In which order the cases of a round take turns.
pub struct Order {
    cases: Vec<usize>,
    rng: Rng,
}

impl Order {
    /// Of so many cases. Orders with one seed are the same.
    pub fn new(count: usize, seed: u64) -> Self {
        Self {
            cases: (0..count).collect(),
            rng: Rng::new(seed),
        }
    }

    /// The next round's.
    pub fn shuffled(&mut self) -> &[usize] {
        for last in (1..self.cases.len()).rev() {
            self.cases.swap(last, self.rng.below(last + 1));
        }
        &self.cases
    }
}

/// Runs all cases with `clients` threads each, and answers with what each gave.
/// `name` is shown while it runs.
pub fn run(name: &str, cases: &[(MakeCase<'_>, Amount)], clients: u16) -> Result<Vec<Outcome>> {
    let barrier = Barrier::new(usize::from(clients));
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let fail = |error: anyhow::Error| {
        stop.store(true, Ordering::Relaxed);
        let mut first = failure.lock().unwrap_or_else(|poison| poison.into_inner());
        first.get_or_insert(error);
    };
    let rounds = cases
        .iter()
        .map(|(_, amount)| amount.rounds)
        .max()
        .unwrap_or(0);
    let seed = RUNS.fetch_add(1, Ordering::Relaxed);
    let bar = progress(format!("{name}, {clients} clients"), u64::from(rounds));

    let client = |index: u16| {
        let mut states = Vec::new();
        for (make, _) in cases {
            match make() {
                Ok(case) => states.push(Some(Client {
                    case,
                    outcome: Outcome::empty(),
                })),
                Err(error) => {
                    fail(error);
                    states.push(None);
                }
            }
        }
        // All clients have the same one.
        let mut order = Order::new(cases.len(), seed);
        barrier.wait();
        for round in 0..rounds {
            if index == 0 {
                bar.inc(1);
            }
            for &case in order.shuffled() {
                // All start a block together. After a failure they still meet
                // here, so that none waits for one that is gone.
                barrier.wait();
                let amount = cases[case].1;
                let Some(state) = &mut states[case] else {
                    continue;
                };
                if round < amount.rounds && !stop.load(Ordering::Relaxed) {
                    if let Err(error) = state.block(amount.block) {
                        fail(error);
                    }
                    thread::sleep(amount.rest);
                }
            }
        }
        let outcome =
            |state: Option<Client<'_>>| state.map_or_else(Outcome::empty, |client| client.outcome);
        states.into_iter().map(outcome).collect::<Vec<_>>()
    };

    let mut total = vec![Outcome::empty(); cases.len()];
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..clients)
            .map(|index| {
                scope.spawn({
                    let client = &client;
                    move || client(index)
                })
            })
            .collect();
        for thread in threads {
            let outcomes = thread.join().map_err(|_| anyhow!("a client panicked"))?;
            for (sum, outcome) in total.iter_mut().zip(&outcomes) {
                sum.merge(outcome);
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    match failure
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner())
    {
        Some(error) => Err(error),
        None => Ok(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nap(Duration);

    impl Case for Nap {
        fn sample(&mut self) -> Result<Sample> {
            thread::sleep(self.0);
            Ok(Sample {
                call: self.0,
                ..Sample::default()
            })
        }
    }

    struct Fails;

    impl Case for Fails {
        fn sample(&mut self) -> Result<Sample> {
            Err(anyhow!("as it should"))
        }
    }

    #[test]
    fn throughput_counts_all_clients_in_the_time_that_they_share() {
        let nap = Duration::from_millis(2);
        let make: MakeCase<'_> = Box::new(move || Ok(Box::new(Nap(nap))));
        let amount = Amount {
            block: 5,
            rounds: 2,
            rest: Duration::ZERO,
        };
        let start = Instant::now();
        let outcomes = run("test", &[(make, amount)], 4).unwrap();
        let elapsed = start.elapsed();
        assert_eq!(outcomes[0].call.count(), 40);
        // Four sleepers at 2 ms each make at most 2,000 a second.
        assert!(outcomes[0].per_sec() <= 2000.0);
        // Their blocks are no longer than the whole run.
        assert!(outcomes[0].per_sec() >= 40.0 / elapsed.as_secs_f64());
    }

    #[test]
    fn the_parts_that_a_sample_has_are_recorded() {
        struct Halves;
        impl Case for Halves {
            fn sample(&mut self) -> Result<Sample> {
                let ms = Duration::from_millis;
                Ok(Sample {
                    call: ms(1),
                    parts: Parts::default()
                        .with(Part::Create, ms(2))
                        .with(Part::Total, ms(3)),
                    ..Sample::default()
                })
            }
        }
        let make: MakeCase<'_> = Box::new(|| Ok(Box::new(Halves)));
        let outcomes = run("test", &[(make, Amount::of(4))], 2).unwrap();
        let count = |part| outcomes[0].part(part).map(Times::count);
        assert_eq!(count(Part::Create), Some(8));
        assert_eq!(count(Part::Open), None);
        let total = outcomes[0].part(Part::Total).unwrap();
        assert!(total.min_us() > Some(2990.0) && total.max_us() < Some(3010.0));
    }

    #[test]
    fn each_case_has_its_turn_once_a_round_and_none_always_follows_the_same() {
        let mut order = Order::new(4, 1);
        let mut pairs = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let round = order.shuffled().to_vec();
            pairs.extend(round.windows(2).map(|pair| (pair[0], pair[1])));
            let mut sorted = round;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert_eq!(pairs.len(), 4 * 3);
    }

    #[test]
    fn runs_of_one_round_have_orders_of_their_own() {
        let first = |seed| Order::new(4, seed).shuffled()[0];
        let firsts: std::collections::BTreeSet<_> = (0..100).map(first).collect();
        assert_eq!(firsts.len(), 4);
    }

    #[test]
    fn a_case_that_one_client_cannot_begin_ends_the_run() {
        let begun = std::sync::atomic::AtomicU32::new(0);
        let make = || -> MakeCase<'_> {
            Box::new(|| match begun.fetch_add(1, Ordering::Relaxed) {
                2 => Err(anyhow!("as it should")),
                _ => Ok(Box::new(Nap(Duration::ZERO))),
            })
        };
        let cases = [(make(), Amount::of(1)), (make(), Amount::of(1))];
        let error = run("test", &cases, 4).err().unwrap();
        assert_eq!(error.to_string(), "as it should");
    }

    #[test]
    fn a_failure_ends_the_run_for_all_clients() {
        let make: MakeCase<'_> = Box::new(|| Ok(Box::new(Fails)));
        let amount = Amount {
            block: 1,
            rounds: 100,
            rest: Duration::ZERO,
        };
        let error = run("test", &[(make, amount)], 4).err().unwrap();
        assert_eq!(error.to_string(), "as it should");
    }
}
