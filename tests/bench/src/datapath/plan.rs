// SPDX-License-Identifier: MIT OR Apache-2.0

//! What there is to do, and how much of it.

use std::time::{Duration, Instant};

use super::args::{Contender, DatapathArgs, Mode, Operation, MAX_REQUEST_BYTES};
use super::senders::Senders;
use super::{perftest, BATCH};
use crate::cli::Transport;
use crate::round_robin::{Amount, Outcome};

/// The peer's memory. Clients use it side by side as far as it goes.
pub const PEER_BYTES: u32 = 4 * MAX_REQUEST_BYTES;
/// Sizes, in bytes, unless told.
const SIZES: [u32; 7] = [8, 64, 512, 4096, 65536, 1 << 20, 4 << 20];
/// In a quick run, of READs and WRITEs; all other requests have a word.
const QUICK_SIZES: [u32; 2] = [WORD, 4096];
/// Numbers of clients, unless told.
const CLIENTS: [u16; 3] = [1, 8, 64];
const QUICK_CLIENTS: [u16; 2] = [1, 8];
/// Pauses of single requests, in microseconds, unless told.
const PAUSES: [u32; 2] = [0, 100];
/// Bytes of an atomic operation.
const WORD: u32 = 8;
/// Bytes that all clients together may have on the way: more take soft-RoCE
/// seconds, and their memory is the machine's.
const MAX_ON_THE_WAY: u64 = 128 << 20;
/// How long each system is at a case.
const CASE_TIME: Duration = Duration::from_secs(1);
/// In a quick run at most so long, and all cases together at most so long. The
/// rest of the minute is for connecting, for trials and for long samples.
const QUICK_CASE_TIME: Duration = Duration::from_millis(500);
const QUICK_TIME: Duration = Duration::from_secs(12);
/// When a quick run begins no further case, however slow the machine is. It fails then.
const QUICK_LIMIT: Duration = Duration::from_secs(57);
/// Times that perftest has its turn, and the others theirs; the median counts, so
/// that what else happens on the machine in one turn does not.
const TURNS: u32 = 5;
const QUICK_TURNS: u32 = 1;
/// Blocks that a turn of one client is cut into: none, as perftest's is in one
/// piece. When a block begins, soft-RoCE's worker sleeps, and for tens of
/// milliseconds it may share the client's processor before the scheduler has moved
/// it to the other one. In short blocks that is most of what is measured.
const ROUNDS: u32 = 1;
/// The same of several clients, at most. They keep the worker awake and the
/// processors busy, and perftest has nothing beside them: systems that take turns
/// more often are better compared with one another.
const ROUNDS_OF_MANY: u32 = 7;
/// What a block of several clients lasts at least, if there is time for it.
const BLOCK_OF_MANY: Duration = Duration::from_millis(5);
/// Between the blocks of ping-pongs, so that a peer that looks for its bytes without
/// sleeping is asleep when others have their turn.
const PING_PONG_REST: Duration = Duration::from_millis(5);
/// Samples of perftest where nothing of ours is beside it.
const LONE_PERFTEST_SAMPLES: u32 = 1000;
/// The fewest samples of a client, however long they take.
const MIN_SAMPLES: u32 = 15;
const QUICK_MIN_SAMPLES: u32 = 2;

/// What a case does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub op: Operation,
    pub mode: Mode,
    pub bytes: u32,
    pub clients: u16,
    /// Computing between two samples.
    pub pause_us: u32,
}

impl Work {
    /// The same as a time.
    pub fn pause(self) -> Duration {
        Duration::from_micros(self.pause_us.into())
    }

    /// Requests of a sample.
    pub fn requests(self) -> u32 {
        match self.mode {
            Mode::Sync => 1,
            Mode::Async => BATCH,
        }
    }

    /// Requests that all clients have on the way at a time.
    pub fn outstanding(self) -> u32 {
        u32::from(self.clients) * self.requests()
    }

    /// Where in the peer's `memory` bytes the client with this index works:
    /// beside the others, or on top of one if there are too many.
    pub fn offset(self, client: u16, memory: u32) -> u64 {
        // An atomic operation's word is aligned, as all sizes' starts then are.
        let place = self.bytes.next_multiple_of(WORD);
        let places = (memory / place).max(1);
        u64::from(u32::from(client) % places) * u64::from(place)
    }

    fn bytes_on_the_way(self) -> u64 {
        u64::from(self.outstanding()) * u64::from(self.bytes)
    }
}

/// The numbers of clients.
pub fn clients(args: &DatapathArgs) -> Vec<u16> {
    match (&args.clients[..], args.common.quick) {
        ([], true) => QUICK_CLIENTS.to_vec(),
        ([], false) => CLIENTS.to_vec(),
        (list, _) => list.to_vec(),
    }
}

/// All that so many clients have to do, in the table's order.
pub fn works(args: &DatapathArgs, clients: u16) -> Vec<Work> {
    let mut works = Vec::new();
    for &op in &args.ops {
        for &mode in args.modes.iter().filter(|&&mode| has(op, mode, clients)) {
            for &pause_us in pauses(args, op, mode) {
                let work = |&bytes| Work {
                    op,
                    mode,
                    bytes,
                    clients,
                    pause_us,
                };
                let fits = |work: &Work| {
                    work.bytes_on_the_way() <= MAX_ON_THE_WAY
                        && Senders::can(*work)
                        && has_time(args, *work)
                };
                works.extend(sizes(args, op).iter().map(work).filter(fits));
            }
        }
    }
    works
}

fn sizes(args: &DatapathArgs, op: Operation) -> &[u32] {
    match &args.sizes[..] {
        _ if op.is_atomic() => &[WORD],
        [] if !args.common.quick => &SIZES,
        [] if matches!(op, Operation::Send | Operation::SendPp) => &[WORD],
        [] => &QUICK_SIZES,
        list => list,
    }
}

/// Whether a run has time for a work: unless it is told, a quick one has pauses between one
/// client's READs of a word, and no others.
fn has_time(args: &DatapathArgs, work: Work) -> bool {
    let is_free = !args.common.quick || !args.pause_us.is_empty() || work.pause_us == 0;
    is_free || (work.op, work.bytes, work.clients) == (Operation::Read, WORD, 1)
}

/// Whether there is such a case: a ping-pong is of one client and one request at a
/// time.
fn has(op: Operation, mode: Mode, clients: u16) -> bool {
    !op.is_ping_pong() || (mode == Mode::Sync && clients == 1)
}

fn pauses(args: &DatapathArgs, op: Operation, mode: Mode) -> &[u32] {
    match &args.pause_us[..] {
        // Its two ends wait for one another anyway.
        _ if op.is_ping_pong() => &[0],
        [] if mode == Mode::Async => &[0],
        [] => &PAUSES,
        list => list,
    }
}

/// How the samples of a case are spread over its time. They are `turns` times `rounds` times
/// a block, whose length is a system's own:
///
/// | | one client | several clients |
/// |---|---|---|
/// | turns of a full run, of a quick one | 5, 1 | 5, 1 |
/// | rounds of a turn | 1 | 7, or so many that a block lasts 5 ms |
/// | samples of a turn | those that take 1/5 s; quick: its share of 12 s | the same |
#[derive(Clone, Debug)]
pub struct Schedule {
    /// In each perftest has its turn, and then the systems have theirs.
    pub turns: u32,
    /// In each of a turn's rounds each system has a block. All have as many, so that they stay
    /// interleaved.
    rounds: u32,
    /// Each system's samples of a block.
    blocks: Vec<u32>,
    /// After each block.
    rest: Duration,
    /// Samples of perftest in its turn: as many as the system has that takes the fewest, which is
    /// one that is about as fast.
    pub perftest: u32,
}

impl Schedule {
    /// Each system has so much to do in its turn.
    pub fn amounts(&self) -> impl Iterator<Item = Amount> + '_ {
        self.blocks.iter().map(|&block| Amount {
            block,
            rounds: self.rounds,
            rest: self.rest,
        })
    }
}

/// How much time there is for each case.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Samples of a client, if they are told.
    samples: Option<u32>,
    /// The fewest of them, if not.
    at_least: u32,
    /// How long each system is at a case.
    time: Duration,
    turns: u32,
    /// When no further case begins.
    limit: Option<Duration>,
}

impl Budget {
    /// For a run of so many rows.
    pub fn new(args: &DatapathArgs, rows: usize) -> Self {
        let quick = args.common.quick;
        let share = QUICK_TIME / u32::try_from(rows.max(1)).unwrap_or(u32::MAX);
        Self {
            samples: args.samples,
            at_least: if quick {
                QUICK_MIN_SAMPLES
            } else {
                MIN_SAMPLES
            },
            time: match quick {
                true => share.min(QUICK_CASE_TIME),
                false => CASE_TIME,
            },
            turns: if quick { QUICK_TURNS } else { TURNS },
            limit: (quick && args.samples.is_none()).then_some(QUICK_LIMIT),
        }
    }

    /// Whether a run that began then has no time for another case.
    pub fn is_over(&self, start: Instant) -> bool {
        self.limit.is_some_and(|limit| start.elapsed() > limit)
    }

    /// Whether trials are needed to know how much.
    pub fn is_open(&self) -> bool {
        self.samples.is_none()
    }

    /// Spreads the time of a case, by what a trial of each system gave.
    pub fn schedule(&self, trial: &[Outcome], work: Work) -> Schedule {
        let share = |outcome| {
            self.samples_of(sample_us(outcome, work.clients))
                .div_ceil(self.turns)
        };
        let wanted: Vec<_> = trial.iter().map(share).collect();
        let fewest = wanted.iter().copied().min();
        let most_rounds = match work.clients {
            1 => ROUNDS,
            _ => self.blocks_of_many(),
        };
        let rounds = fewest.unwrap_or(1).min(most_rounds);
        let block = |wanted: u32| wanted.div_ceil(rounds);
        let blocks: Vec<_> = wanted.into_iter().map(block).collect();
        let alone = self.samples.unwrap_or(LONE_PERFTEST_SAMPLES);
        Schedule {
            turns: self.turns,
            rounds,
            perftest: blocks.iter().min().map_or(alone, |block| block * rounds),
            blocks,
            rest: match work.op.is_ping_pong() {
                true => PING_PONG_REST,
                false => Duration::ZERO,
            },
        }
    }

    fn blocks_of_many(&self) -> u32 {
        let fit = (self.time / self.turns).as_micros() / BLOCK_OF_MANY.as_micros();
        let fit = u32::try_from(fit).unwrap_or(u32::MAX);
        fit.clamp(1, ROUNDS_OF_MANY)
    }

    /// Samples of `sample_us` each.
    fn samples_of(&self, sample_us: f64) -> u32 {
        // Saturates, if a sample takes no time at all.
        let fit = (self.time.as_secs_f64() * 1e6 / sample_us) as u32;
        self.samples
            .unwrap_or_else(|| fit.clamp(self.at_least, 10_000_000))
    }
}

/// How long a client is at a sample, in microseconds. The mean, not the median:
/// where clients outnumber processors, few samples take most of the time.
fn sample_us(outcome: &Outcome, clients: u16) -> f64 {
    f64::from(clients) * 1e6 / outcome.per_sec().max(1e-6)
}

/// The longest sample of any system.
pub fn slowest_us(outcomes: &[Outcome], clients: u16) -> f64 {
    let each = outcomes.iter().map(|outcome| sample_us(outcome, clients));
    each.fold(0.0, f64::max)
}

/// Rows that a work gives, as far as they are ours to measure, and perftest's.
pub fn rows(args: &DatapathArgs, work: Work) -> usize {
    let has_rc = !matches!(work.op, Operation::Send | Operation::SendPp);
    let of = |system: &Contender| match system {
        Contender::Verbs if work.op.is_ping_pong() => 1,
        // Polling and sleeping.
        Contender::Verbs => 2,
        Contender::Weft => {
            let transports = args.transports.iter();
            transports
                .filter(|&&transport| transport == Transport::Dc || has_rc)
                .count()
        }
        Contender::Perftest => usize::from(perftest::can(work)),
    };
    args.systems.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::round_robin::Sample;
    use clap::Parser;

    fn args(list: &[&str]) -> DatapathArgs {
        let all = ["weft-bench", "datapath"].iter().chain(list);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Datapath(args) => args,
            _ => unreachable!(),
        }
    }

    #[test]
    fn clients_stay_within_the_peers_memory() {
        let work = |bytes| Work {
            op: Operation::Write,
            mode: Mode::Sync,
            bytes,
            clients: 64,
            pause_us: 0,
        };
        assert_eq!(work(8).offset(63, PEER_BYTES), 63 * 8);
        for bytes in SIZES {
            let end = work(bytes).offset(63, PEER_BYTES) + u64::from(bytes);
            assert!(end <= u64::from(PEER_BYTES));
        }
        assert_eq!(work(MAX_REQUEST_BYTES).offset(4, PEER_BYTES), 0);
    }

    #[test]
    fn what_is_too_much_at_a_time_is_left_out() {
        let args = args(&["--sizes", "8,4194304"]);
        let longest = |clients, mode| {
            let all = works(&args, clients);
            let of_mode = all.iter().filter(|work| work.mode == mode);
            of_mode.map(|work| work.bytes).max()
        };
        assert_eq!(longest(1, Mode::Async), Some(4 << 20));
        assert_eq!(longest(8, Mode::Async), Some(8));
        assert_eq!(longest(8, Mode::Sync), Some(4 << 20));
    }

    #[test]
    fn atomic_operations_have_one_size() {
        let args = args(&["--ops", "cas,faa", "--modes", "async"]);
        let sizes: Vec<_> = works(&args, 1).iter().map(|work| work.bytes).collect();
        assert_eq!(sizes, [8, 8]);
    }

    #[test]
    fn single_requests_go_in_a_loop_and_with_a_pause() {
        let all = |list: &[&str], clients| works(&args(list), clients);
        let pauses = |list: &[&str], clients, mode| -> Vec<_> {
            let all = all(list, clients).into_iter();
            all.filter(|work| work.mode == mode)
                .map(|work| work.pause_us)
                .collect()
        };
        let read = ["--ops", "read", "--sizes", "8"];
        assert_eq!(pauses(&read, 1, Mode::Sync), [0, 100]);
        assert_eq!(pauses(&read, 1, Mode::Async), [0]);
        let told = ["--ops", "read", "--sizes", "8", "--pause-us", "7"];
        assert_eq!(pauses(&told, 1, Mode::Async), [7]);
        let ping_pong = ["--ops", "write_pp", "--sizes", "8"];
        assert_eq!(pauses(&ping_pong, 1, Mode::Sync), [0]);
        assert_eq!(all(&ping_pong, 1).len(), 1);
        assert!(all(&ping_pong, 8).is_empty());
    }

    #[test]
    fn a_quick_run_has_something_of_everything() {
        let args = args(&["--quick"]);
        let plan = clients(&args).into_iter();
        let all: Vec<_> = plan.flat_map(|count| works(&args, count)).collect();
        for count in QUICK_CLIENTS {
            for op in Operation::ALL {
                let own = all.iter().filter(|work| work.op == op);
                let own: Vec<_> = own.filter(|work| work.clients == count).collect();
                for mode in [Mode::Sync, Mode::Async] {
                    let is_there = own.iter().any(|work| work.mode == mode);
                    assert_eq!(is_there, has(op, mode, count), "{op:?}, {mode:?}, {count}");
                }
            }
        }
        let pauses = all.iter().filter(|work| work.pause_us > 0);
        let pauses: Vec<_> = pauses.map(|work| (work.op, work.bytes)).collect();
        assert_eq!(pauses, [(Operation::Read, WORD)]);
        assert!(all.iter().all(|work| QUICK_SIZES.contains(&work.bytes)));
        // A second and a half for each, of which perftest takes most.
        assert_eq!(all.len(), 32);
        assert!(all.iter().filter(|&&work| perftest::can(work)).count() <= 13);
    }

    #[test]
    fn a_quick_run_does_what_it_is_told() {
        let told = [
            "--quick",
            "--sizes",
            "65536",
            "--pause-us",
            "7",
            "--modes",
            "sync",
        ];
        let of = |op| works(&args(&[&told[..], &["--ops", op]].concat()), 8);
        for op in ["read", "send"] {
            let own: Vec<_> = of(op)
                .iter()
                .map(|work| (work.bytes, work.pause_us))
                .collect();
            assert_eq!(own, [(65536, 7)], "{op}");
        }
    }

    #[test]
    fn a_turn_of_one_client_is_in_one_piece_as_perftests_is() {
        let budget = Budget::new(&args(&[]), 1);
        let mut trial = Outcome::empty();
        trial.add(Sample {
            call: Duration::from_micros(10),
            ..Sample::default()
        });
        let rounds = |clients| {
            let work = Work {
                op: Operation::Read,
                mode: Mode::Sync,
                bytes: 8,
                clients,
                pause_us: 0,
            };
            budget.schedule(&[trial.clone()], work).rounds
        };
        assert_eq!(rounds(1), 1);
        assert_eq!(rounds(8), ROUNDS_OF_MANY);
    }

    #[test]
    fn perftest_has_as_many_samples_as_the_system_with_the_fewest() {
        let work = Work {
            op: Operation::Read,
            mode: Mode::Sync,
            bytes: 8,
            clients: 1,
            pause_us: 0,
        };
        let told = Budget::new(&args(&["--samples", "30"]), 1);
        let schedule = told.schedule(&[Outcome::empty(), Outcome::empty()], work);
        assert_eq!((schedule.turns, schedule.perftest), (5, 6));
        assert!(schedule.amounts().all(|amount| amount.block == 6));
        assert_eq!(schedule.amounts().count(), 2);
        assert_eq!(told.schedule(&[], work).perftest, 30);
        let open = Budget::new(&args(&[]), 1);
        assert_eq!(open.schedule(&[], work).perftest, LONE_PERFTEST_SAMPLES);
    }

    #[test]
    fn a_quick_run_shares_its_time() {
        let budget = |list: &[&str], rows| Budget::new(&args(list), rows);
        assert!(budget(&["--quick"], 200).time * 200 <= QUICK_TIME);
        assert_eq!(budget(&["--quick"], 1).time, QUICK_CASE_TIME);
        assert_eq!(budget(&[], 200).time, CASE_TIME);
        assert_eq!(budget(&["--samples", "3"], 1).samples_of(1.0), 3);
        assert_eq!(budget(&[], 1).samples_of(1e9), MIN_SAMPLES);
        assert_eq!(budget(&[], 1).samples_of(10.0), 100_000);
    }
}
