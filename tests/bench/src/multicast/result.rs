// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `multicast` reports: a row for each case.

use serde::Serialize;

use super::case::{Case, Experiment, Touch};
use super::payload::Stores;
use super::seen::{Seen, Sizes};
use crate::report::{number, rounded, Sheet};
use crate::stats::{median, Times};

/// One case. Rates are medians over the rounds; counts are of all rounds and all
/// members together.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    experiment: Experiment,
    fabric: String,
    members: usize,
    senders: &'static str,
    bytes: usize,
    window: usize,
    subgroups: usize,
    opts: String,
    /// What else is particular to it: late senders, copying.
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    /// Whether messages are written and read in full. If not, they are counters that
    /// went on, and there is no bandwidth.
    touch: Touch,
    /// Whether senders read their own messages too.
    own_read: bool,
    /// How senders store.
    stores: Stores,
    /// Whether each member has a processor of its own and keeps to it.
    bound: bool,
    /// Whether the thread that sends also steps; else there is a polling thread.
    stepped: bool,
    /// Whether the group has views, of which one lasts all the time.
    views: bool,
    /// Application data delivered at each member.
    gb_per_s: Option<f64>,
    /// Messages delivered at each member.
    msgs_per_s: Option<f64>,
    /// From building a message to its delivery at its sender.
    lat_us_p50: Option<f64>,
    lat_us_p99: Option<f64>,
    posts: u64,
    posts_per_msg: Option<f64>,
    nulls: u64,
    nulls_per_msg: Option<f64>,
    /// System calls by which all members together hand requests to the module
    /// (`IOC_ENTER`, `IOC_RUN`), for a message. Those of sleeping and waking are not
    /// among them. None where a provider of verbs makes them.
    syscalls_per_msg: Option<f64>,
    /// What as many senders and readers move without multicast.
    raw_write_gb_per_s: Option<f64>,
    /// `gb_per_s` over that, round by round.
    raw_share: Option<f64>,
    /// From the sending of a lone message to its delivery elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_us_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_us_p99: Option<f64>,
    /// Share of the senders' time in which they waited for room, in percent. None where that is
    /// not measured.
    wait_percent: Option<f64>,
    /// Processor time of a member, in microseconds a second, where it is measured.
    cpu_us_per_s: Option<f64>,
    send_batch_mean: Option<f64>,
    receive_batch_mean: Option<f64>,
    delivery_batch_mean: Option<f64>,
    send_batches: Sizes,
    receive_batches: Sizes,
    delivery_batches: Sizes,
}

/// What was seen of all cases.
pub struct Results<'a> {
    cases: &'a [Case],
    /// What all members saw, in all rounds.
    sums: Vec<Seen>,
    /// How long members that send were measured, in seconds.
    sending: Vec<f64>,
    /// Messages a second at a member, by case and round.
    rates: Vec<Vec<f64>>,
}

impl<'a> Results<'a> {
    /// Nothing yet.
    pub fn new(cases: &'a [Case]) -> Self {
        Self {
            cases,
            sums: vec![Seen::default(); cases.len()],
            sending: vec![0.0; cases.len()],
            rates: vec![Vec::new(); cases.len()],
        }
    }

    /// What the members of a case saw in this round.
    pub fn add(&mut self, at: usize, members: Vec<Seen>) {
        let rate = |seen: &Seen| match seen.seconds > 0.0 {
            true => seen.delivered as f64 / seen.seconds,
            false => 0.0,
        };
        let total: f64 = members.iter().map(rate).sum();
        // Without multicast each sender tells of its own messages.
        let tell = match self.cases[at].experiment {
            Experiment::Raw => 1,
            _ => members.len(),
        };
        self.rates[at].push(total / tell as f64);
        for (rank, seen) in members.iter().enumerate() {
            self.sums[at].add(seen);
            if self.cases[at].sends(rank) {
                self.sending[at] += seen.seconds;
            }
        }
    }

    /// A row for each case.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        (0..self.cases.len()).map(|at| self.row(at))
    }

    /// The rates of what is done the same way without multicast.
    fn raw_rates(&self, at: usize) -> Option<&[f64]> {
        let raw = self.cases[at].raw();
        let at = self.cases.iter().position(|case| *case == raw)?;
        Some(&self.rates[at])
    }

    fn row(&self, at: usize) -> Row {
        let (case, sum, rates) = (&self.cases[at], &self.sums[at], &self.rates[at]);
        let (is_load, moves) = (case.is_stream(), case.touch == Touch::Full);
        let rate = median(rates).filter(|_| is_load);
        let raw = self.raw_rates(at).filter(|_| is_load && moves);
        let shares = raw.map(|raw| rates.iter().zip(raw).map(|(own, raw)| own / raw));
        let gb = |rate: f64| rate * case.bytes as f64 / 1e9;
        let per_message = |count: u64| (sum.sent > 0).then(|| count as f64 / sum.sent as f64);
        let (latencies, wakes) = (Times::from(&sum.latencies), Times::from(&sum.wakes));
        let share = |value: f64, seconds: f64| (seconds > 0.0).then(|| value / seconds);
        let waits = is_load && case.experiment != Experiment::Raw;
        Row {
            bench: "multicast",
            experiment: case.experiment,
            fabric: case.fabric.clone(),
            members: case.members,
            senders: case.senders.name(),
            bytes: case.bytes,
            window: case.window,
            subgroups: case.subgroups,
            opts: case.opts.clone(),
            note: case.note(),
            touch: case.touch,
            own_read: case.own_read && moves,
            stores: case.stores,
            bound: case.bound,
            stepped: case.stepped,
            views: case.views,
            gb_per_s: rate.filter(|_| moves).map(gb).map(rounded_fine),
            msgs_per_s: rate.map(f64::round),
            lat_us_p50: rounded(latencies.percentile_us(50.0)),
            lat_us_p99: rounded(latencies.percentile_us(99.0)),
            posts: sum.posts,
            posts_per_msg: rounded(per_message(sum.posts)),
            nulls: sum.nulls,
            nulls_per_msg: rounded(per_message(sum.nulls)),
            syscalls_per_msg: rounded(sum.system_calls.and_then(per_message)),
            raw_write_gb_per_s: raw.and_then(median).map(gb).map(rounded_fine),
            raw_share: rounded(shares.and_then(|shares| median(&shares.collect::<Vec<_>>()))),
            wake_us_p50: rounded(wakes.percentile_us(50.0)),
            wake_us_p99: rounded(wakes.percentile_us(99.0)),
            wait_percent: rounded(share(sum.waited * 100.0, self.sending[at])).filter(|_| waits),
            cpu_us_per_s: rounded(sum.cpu.and_then(|cpu| share(cpu * 1e6, sum.seconds))),
            send_batch_mean: rounded(sum.sends.mean()),
            receive_batch_mean: rounded(sum.receives.mean()),
            delivery_batch_mean: rounded(sum.deliveries.mean()),
            send_batches: sum.sends.clone(),
            receive_batches: sum.receives.clone(),
            delivery_batches: sum.deliveries.clone(),
        }
    }
}

/// To a byte a microsecond.
fn rounded_fine(gb: f64) -> f64 {
    (gb * 1e6).round() / 1e6
}

/// The table for people.
pub struct Table(Sheet);

impl Table {
    /// With its heading.
    pub fn new() -> Self {
        let columns = [
            "experiment",
            "fabric",
            "opts",
            "senders",
            "touch",
            "note",
            "#members",
            "#bytes",
            "window",
            "#subgroups",
            "msg/s",
            "GB/s",
            "of raw[%]",
            "t_typical[usec]",
            "99% percentile[usec]",
            "wake[usec]",
            "posts/msg",
            "nulls/msg",
            "syscalls/msg",
            "batches s/r/d",
            "cpu[usec/s]",
        ];
        Self(Sheet::new(&columns, 6))
    }

    /// Adds a case.
    pub fn add(&mut self, row: &Row) {
        let whole = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
        };
        let batch =
            |mean: Option<f64>| mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}"));
        let batches = [
            row.send_batch_mean,
            row.receive_batch_mean,
            row.delivery_batch_mean,
        ];
        self.0.row(vec![
            format!("{:?}", row.experiment).to_lowercase(),
            row.fabric.clone(),
            row.opts.clone(),
            row.senders.to_owned(),
            row.touch.name().to_owned(),
            row.note.clone(),
            row.members.to_string(),
            row.bytes.to_string(),
            row.window.to_string(),
            row.subgroups.to_string(),
            whole(row.msgs_per_s),
            number(row.gb_per_s),
            whole(row.raw_share.map(|share| share * 100.0)),
            number(row.lat_us_p50),
            number(row.lat_us_p99),
            number(row.wake_us_p50),
            number(row.posts_per_msg),
            number(row.nulls_per_msg),
            number(row.syscalls_per_msg),
            batches.map(batch).join("/"),
            whole(row.cpu_us_per_s),
        ]);
    }

    /// Prints it.
    pub fn print(self) {
        self.0.print();
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Senders;
    use super::*;

    #[test]
    fn senders_wait_a_share_of_their_own_time_and_nothing_is_told_that_was_not_measured() {
        let case = Case {
            senders: Senders::One,
            ..Case::usual(Experiment::Single, "shm", 4)
        };
        let lone = Case::usual(Experiment::Lone, "shm", 2);
        let cases = [case, lone];
        let seen = |waited, cpu| Seen {
            seconds: 2.0,
            waited,
            cpu,
            ..Seen::default()
        };
        let mut results = Results::new(&cases);
        let others = [0.0; 3].map(|waited| seen(waited, Some(0.5)));
        let all = [seen(1.0, Some(0.5))].into_iter().chain(others);
        results.add(0, all.collect());
        results.add(1, vec![seen(0.0, None), seen(0.0, None)]);
        let rows: Vec<Row> = results.rows().collect();
        assert_eq!(rows[0].wait_percent, Some(50.0));
        assert_eq!(rows[0].cpu_us_per_s, Some(250_000.0));
        assert_eq!((rows[1].wait_percent, rows[1].cpu_us_per_s), (None, None));
    }

    #[test]
    fn cases_are_compared_with_plain_writes_of_their_round() {
        let single = Case::usual(Experiment::Single, "shm", 2);
        let touch = Touch::None;
        let untouched = Case {
            touch,
            ..single.clone()
        };
        let cases = [single.raw(), single, untouched];
        let seen = |delivered| Seen {
            seconds: 1.0,
            sent: delivered,
            delivered,
            posts: delivered / 10,
            ..Seen::default()
        };
        let mut results = Results::new(&cases);
        for (raw, own) in [(1000, 900), (100, 80), (10, 7)] {
            results.add(0, vec![seen(raw), Seen::default()]);
            results.add(1, vec![seen(own), seen(own)]);
            results.add(2, vec![seen(9 * raw), seen(9 * raw)]);
        }
        let rows: Vec<Row> = results.rows().collect();
        assert_eq!(rows[0].msgs_per_s, Some(100.0));
        assert_eq!(rows[1].msgs_per_s, Some(80.0));
        assert_eq!(rows[1].raw_share, Some(0.8));
        assert_eq!(rows[1].raw_write_gb_per_s, Some(0.001_024));
        // What was neither written nor read has no bandwidth, nor a share of any.
        assert_eq!(rows[2].msgs_per_s, Some(900.0));
        assert_eq!((rows[2].gb_per_s, rows[2].raw_share), (None, None));
    }
}
