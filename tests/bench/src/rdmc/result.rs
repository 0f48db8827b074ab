// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `rdmc` reports: a row for each load and what carried it.

use serde::Serialize;

use super::load::{Experiment, Load, Variant, Wait, Way};
use super::member::Seen;
use super::mpi::{Implementation, Mpi, Samples};
use crate::report::{number, Sheet};
use crate::stats::median;

/// Of MPI's configurations the table has those that are at least so many times as fast
/// as the fastest. The others are in the JSON lines.
const SHOWN: f64 = 0.8;

/// What carried a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    Weft(Variant),
    Mpi(Mpi),
}

/// One load by one carrier. Times are medians of all samples of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    pub experiment: Experiment,
    system: &'static str,
    pub fabric: String,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    implementation: Option<Implementation>,
    /// An implementation's algorithm and the length of its segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mpi_version: Option<String>,
    /// Bytes that the kernel has copied straight from one rank to another, for a
    /// message.
    #[serde(skip_serializing_if = "Option::is_none")]
    cma_bytes_per_msg: Option<f64>,
    pub members: usize,
    /// Members that send at once.
    pub senders: usize,
    pub bytes: usize,
    /// None where the library chooses.
    block_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    samples: usize,
    /// Messages of each sender in a sample.
    messages: usize,
    pub seconds_p50: f64,
    seconds_min: f64,
    /// Bytes of all messages of a sample over its time.
    pub gb_per_s: f64,
    pub msgs_per_s: f64,
    /// Processor time of all members together, for a message.
    cpu_us_per_msg: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sleeps_per_msg: Option<f64>,
    /// The fastest MPI_Bcast of the same load, its time, and how many times as fast this
    /// is.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<Baseline>,
    #[serde(skip)]
    pub carrier: Carrier,
}

/// What a row is compared with.
#[derive(Clone, Debug, Serialize)]
struct Baseline {
    name: String,
    seconds_p50: f64,
    speedup: f64,
}

/// What was seen of one load by one carrier.
struct Entry {
    load: Load,
    carrier: Carrier,
    seconds: Vec<f64>,
    cpu_seconds: f64,
    sleeps: u64,
    cma_bytes: u64,
    version: Option<String>,
}

/// What was seen of all.
#[derive(Default)]
pub struct Results(Vec<Entry>);

impl Results {
    /// What the members of a session saw of a variant.
    pub fn add_weft<'a>(
        &mut self,
        load: &Load,
        variant: Variant,
        members: impl Iterator<Item = &'a Seen>,
    ) {
        let entry = self.entry(load, Carrier::Weft(variant));
        for seen in members {
            entry.seconds.extend(&seen.seconds);
            entry.cpu_seconds += seen.cpu_seconds;
            entry.sleeps += seen.sleeps;
        }
    }

    /// What an implementation of MPI printed.
    pub fn add_mpi(&mut self, load: &Load, mpi: &Mpi, samples: &Samples) {
        let entry = self.entry(load, Carrier::Mpi(mpi.clone()));
        let seconds = samples.nanoseconds.iter().map(|&ns| ns as f64 / 1e9);
        entry.seconds.extend(seconds);
        entry.cpu_seconds += samples.cpu_us as f64 / 1e6;
        entry.cma_bytes += samples.cma_bytes;
        entry.version = Some(samples.version.clone());
    }

    /// The fastest so many of these so far; the shared window besides.
    pub fn fastest<'a>(&self, load: &Load, of: &'a [Mpi], count: usize) -> Vec<&'a Mpi> {
        let (windows, broadcasts): (Vec<_>, Vec<_>) = of.iter().partition(|mpi| mpi.is_window());
        let time = |mpi: &Mpi| {
            let carrier = Carrier::Mpi(mpi.clone());
            let is_it = |entry: &&Entry| entry.load == *load && entry.carrier == carrier;
            let entry = self.0.iter().find(is_it)?;
            median(&entry.seconds)
        };
        let timed = broadcasts.into_iter();
        let mut timed: Vec<_> = timed.filter_map(|mpi| Some((time(mpi)?, mpi))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let best = timed.into_iter().take(count).map(|(_, mpi)| mpi);
        best.chain(windows).collect()
    }

    fn entry(&mut self, load: &Load, carrier: Carrier) -> &mut Entry {
        let is_it = |entry: &Entry| entry.load == *load && entry.carrier == carrier;
        let at = self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push(Entry {
                load: load.clone(),
                carrier,
                seconds: Vec::new(),
                cpu_seconds: 0.0,
                sleeps: 0,
                cma_bytes: 0,
                version: None,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// A row for each that has samples.
    pub fn rows(&self) -> Vec<Row> {
        let rows = self.0.iter().map(|entry| (entry, row(entry)));
        let mut rows: Vec<_> = rows
            .filter_map(|(entry, row)| Some((entry, row?)))
            .collect();
        let baselines: Vec<_> = rows
            .iter()
            .map(|(entry, own)| {
                let same = rows.iter().filter(|(other, _)| other.load == entry.load);
                let broadcasts = same.filter(|(_, row)| row.is_broadcast());
                let best =
                    broadcasts.min_by(|(_, a), (_, b)| a.seconds_p50.total_cmp(&b.seconds_p50));
                best.map(|(_, best)| Baseline {
                    name: best.name(),
                    seconds_p50: best.seconds_p50,
                    speedup: best.seconds_p50 / own.seconds_p50,
                })
            })
            .collect();
        for ((_, row), baseline) in rows.iter_mut().zip(baselines) {
            row.baseline = baseline;
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

fn row(entry: &Entry) -> Option<Row> {
    let (load, carrier) = (&entry.load, &entry.carrier);
    let seconds_p50 = median(&entry.seconds)?;
    let seconds_min = entry.seconds.iter().copied().reduce(f64::min)?;
    let messages = (entry.seconds.len() * load.total_messages()) as f64;
    let (variant, mpi) = match carrier {
        Carrier::Weft(variant) => (Some(*variant), None),
        Carrier::Mpi(mpi) => (None, Some(mpi)),
    };
    let algorithm = match (variant, mpi) {
        (Some(variant), _) => variant.way.name(),
        (None, Some(mpi)) if mpi.is_window() => "shared_window",
        _ => "bcast",
    };
    Some(Row {
        bench: "rdmc",
        experiment: load.experiment,
        system: if mpi.is_some() { "mpi" } else { "weft" },
        fabric: load.fabric.clone(),
        algorithm,
        implementation: mpi.map(|mpi| mpi.implementation),
        settings: mpi.map(|mpi| mpi.settings.clone()),
        mpi_version: entry.version.clone(),
        cma_bytes_per_msg: mpi.map(|_| entry.cma_bytes as f64 / messages),
        members: load.members,
        senders: load.senders,
        bytes: load.bytes,
        block_bytes: variant.and_then(|variant| variant.block_bytes),
        wait: variant.map(|variant| variant.wait),
        samples: entry.seconds.len(),
        messages: load.messages,
        seconds_p50,
        seconds_min,
        gb_per_s: load.total_bytes() as f64 / seconds_p50 / 1e9,
        msgs_per_s: load.total_messages() as f64 / seconds_p50,
        cpu_us_per_msg: entry.cpu_seconds * 1e6 / messages,
        sleeps_per_msg: variant.map(|_| entry.sleeps as f64 / messages),
        baseline: None,
        carrier: carrier.clone(),
    })
}

impl Row {
    /// What carried it, for people.
    pub fn name(&self) -> String {
        match &self.carrier {
            Carrier::Mpi(mpi) => mpi.name(),
            Carrier::Weft(variant) => match (variant.block_bytes, variant.wait) {
                (None, _) => variant.way.name().to_owned(),
                (Some(block), _) => format!("{} {}", variant.way.name(), size(block)),
            },
        }
    }

    /// The variant, if RDMC carried it.
    pub fn variant(&self) -> Option<Variant> {
        match &self.carrier {
            Carrier::Weft(variant) => Some(*variant),
            Carrier::Mpi(_) => None,
        }
    }

    /// Whether it is an MPI's broadcast.
    pub fn is_broadcast(&self) -> bool {
        matches!(&self.carrier, Carrier::Mpi(mpi) if !mpi.is_window())
    }

    /// Whether it is copies from a shared window.
    pub fn is_window(&self) -> bool {
        matches!(&self.carrier, Carrier::Mpi(mpi) if mpi.is_window())
    }

    /// Whether the table has it: of MPI's configurations the best ones.
    fn is_shown(&self) -> bool {
        !self.is_broadcast()
            || self
                .baseline
                .as_ref()
                .is_none_or(|best| best.speedup > SHOWN)
    }

    /// Whether RDMC carried it in this way.
    pub fn is_way(&self, way: Way) -> bool {
        self.variant().is_some_and(|variant| variant.way == way)
    }
}

/// The table for people.
pub struct Table(Sheet);

impl Table {
    /// An empty one.
    pub fn new() -> Self {
        let columns = [
            "experiment",
            "fabric",
            "carrier",
            "wait",
            "members",
            "senders",
            "size",
            "time[usec]",
            "min[usec]",
            "BW[GB/sec]",
            "msg/s",
            "CPU[usec/msg]",
            "sleeps/msg",
            "x best MPI",
            "#samples",
        ];
        Self(Sheet::new(&columns, 4))
    }

    /// Adds a row.
    pub fn add(&mut self, row: &Row) {
        if !row.is_shown() {
            return;
        }
        let wait = row.variant().map(|variant| variant.wait);
        self.0.row(vec![
            format!("{:?}", row.experiment).to_lowercase(),
            row.fabric.clone(),
            row.name(),
            wait.map_or_else(String::new, |wait| format!("{wait:?}").to_lowercase()),
            row.members.to_string(),
            row.senders.to_string(),
            size(row.bytes),
            format!("{:.1}", row.seconds_p50 * 1e6),
            format!("{:.1}", row.seconds_min * 1e6),
            format!("{:.3}", row.gb_per_s),
            format!("{:.0}", row.msgs_per_s),
            format!("{:.1}", row.cpu_us_per_msg),
            number(row.sleeps_per_msg),
            number(row.baseline.as_ref().map(|best| best.speedup)),
            row.samples.to_string(),
        ]);
    }

    /// Prints it.
    pub fn print(self) {
        self.0.print();
    }
}

/// Bytes as people say them.
pub fn size(bytes: usize) -> String {
    let units = [(1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(unit, _)| bytes % unit == 0);
    match unit {
        Some((unit, name)) if bytes > 0 => format!("{} {name}", bytes / unit),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_say_them() {
        assert_eq!(size(1), "1 B");
        assert_eq!(size(10 << 10), "10 KiB");
        assert_eq!(size(256 << 20), "256 MiB");
    }
}
