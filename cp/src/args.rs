// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use weft::fabric::MAX_NODES;

use crate::link::{MAX_CHUNK_BYTES, MIN_CHUNK_BYTES};
use crate::place::Party;

/// Sends a file or a directory to many receivers at once, over RDMC.
///
/// Start one sender and all receivers, in any order, on hosts or in terminals of
/// their own:
///
///   weft-cp send disk.img --name image --receivers 2
///
///   weft-cp receive /srv/a --name image --rank 1 --receivers 2
///
///   weft-cp receive /srv/b --name image --rank 2 --receivers 2
///
/// With --elastic receivers come when they like, as many as like: the sender names an address,
/// and serves together those who have called there while it served others.
///
///   weft-cp send disk.img --elastic 127.0.0.1:7600
///
///   weft-cp receive /srv/a --elastic 127.0.0.1:7600
///
/// Exit status: of the sender 0 if all receivers have everything (with --elastic: if it has
/// served some, and nothing went wrong at the sender itself), of a receiver 0 if it has
/// everything itself; else 1, or 2 if the command line is wrong.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// The two sides.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Sends PATH to all receivers, and ends when all have it.
    ///
    /// A directory is sent as its tree of files, directories and symbolic links, with
    /// permissions and modification times (but not the links'); owners, extended
    /// attributes, holes and hard links are not kept. What is no file, directory or link
    /// is an error, and so is a file that changes meanwhile. If PATH itself is a link, what
    /// it leads to is sent.
    ///
    /// If a receiver fails, all give up, nothing is kept, and the error says which one
    /// failed and why. When all have everything, the sender tells them to give it its name.
    /// Only if somebody dies, is interrupted or cannot give it its name after that, some may
    /// have it and some not: a receiver's exit status is 0 if it has it.
    Send(SendArgs),
    /// Receives into the directory DIR, under the name that PATH has at the sender.
    ///
    /// What arrives is named when all receivers have all of it and its BLAKE3 is the
    /// sender's. Until then a file has no name, or where the filesystem cannot do that, a
    /// name that begins with .weft-cp-, in DIR, as the temporary directory of a tree
    /// does. When the transfer fails or is interrupted, that is removed. Only if the
    /// receiver itself is killed by SIGKILL, or the host stops, DIR/.weft-cp-* is left, to
    /// be removed by hand.
    ///
    /// Like cp, it leaves it to the system when data goes from its cache to the disk.
    Receive(ReceiveArgs),
}

/// What the sender is told.
#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// A file or a directory.
    pub path: PathBuf,
    /// Where to meet the receivers.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// What a receiver is told.
#[derive(Debug, clap::Args)]
pub struct ReceiveArgs {
    /// A directory that exists.
    pub dir: PathBuf,
    /// The receiver's rank, from 1 on. Not with --elastic.
    #[arg(long, value_name = "R", default_value_t = 0, hide_default_value = true)]
    pub rank: usize,
    /// Replace a file of the same name. A directory is never replaced.
    #[arg(long)]
    pub force: bool,
    /// Where to meet the others.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// What all are told.
#[derive(Debug, clap::Args)]
pub struct CommonArgs {
    /// How many receivers there are; the same everywhere. Not with --elastic.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub receivers: usize,
    /// Receivers come when they like, and call the sender at this address of its host; with weft
    /// or verbs an address of the RDMA network. If a receiver fails, those that were served
    /// together with it call again by themselves.
    #[arg(long, value_name = "IP:PORT")]
    pub elastic: Option<SocketAddr>,
    /// What to send over; the same everywhere.
    #[arg(long, value_enum, default_value_t = Kind::Shm)]
    pub fabric: Kind,
    /// With shm: the name under which the processes meet, all of one user.
    #[arg(long)]
    pub name: Option<String>,
    /// Not with shm: where each node listens for the others to meet, the sender first,
    /// then the receivers by rank.
    #[arg(long, value_name = "IP:PORT,...", value_delimiter = ',')]
    pub nodes: Vec<SocketAddr>,
    /// With weft: the RDMA port, by the index that `weftctl nodes` shows.
    #[arg(long, value_name = "INDEX")]
    pub device: Option<u32>,
    /// Longest message, such as 512K or 16M. The least that sender or receivers say
    /// counts; each takes five times its own as memory.
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_chunk)]
    pub chunk: usize,
    /// How long to wait for the others to come. With --elastic the sender ends when nobody has
    /// called for so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Show no progress, and say nothing unless something is wrong.
    #[arg(long, short)]
    pub quiet: bool,
}

/// A fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Shared memory of this host.
    Shm,
    /// Weft's virtual queue pairs: needs the module.
    #[cfg(feature = "weft")]
    Weft,
    /// Plain queue pairs of verbs.
    #[cfg(feature = "verbs")]
    Verbs,
}

impl CommonArgs {
    /// How long to wait for the others.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The party that the command line names. With --elastic it has no receivers yet.
    pub(crate) fn party(&self) -> Party {
        Party {
            fabric: self.fabric,
            receivers: self.receivers,
            name: self.name.clone().unwrap_or_default(),
            nodes: self.nodes.clone(),
            device: self.device,
            chunk: self.chunk,
            patience: self.patience(),
        }
    }

    fn has_elastic_conflict(&self, rank: Option<usize>) -> bool {
        self.receivers != 0
            || rank.is_some_and(|rank| rank != 0)
            || self.name.is_some()
            || !self.nodes.is_empty()
    }
}

impl Args {
    /// Checks what clap cannot.
    ///
    /// # Errors
    ///
    /// What is wrong; clap ends the process with it.
    pub fn check(&self) -> Result<(), clap::Error> {
        match self.what_is_wrong() {
            Some(what) => Err(Self::command().error(ErrorKind::ValueValidation, what)),
            None => Ok(()),
        }
    }

    fn what_is_wrong(&self) -> Option<String> {
        let (common, rank) = match &self.what {
            What::Send(args) => (&args.common, None),
            What::Receive(args) => (&args.common, Some(args.rank)),
        };
        if let Some(at) = common.elastic {
            if at.ip().is_unspecified() && common.fabric != Kind::Shm {
                return Some(format!(
                    "--elastic {at}: over a network this is an address of the sender's host"
                ));
            }
            let what = "--elastic tells all that --receivers, --rank, --name and --nodes would: leave them out";
            return common.has_elastic_conflict(rank).then(|| what.to_owned());
        }
        let receivers = common.receivers;
        let most = MAX_NODES - 1;
        if !(1..=most).contains(&receivers) {
            return Some(format!("--receivers {receivers}: 1 to {most} are possible"));
        }
        if let Some(rank) = rank.filter(|rank| !(1..=receivers).contains(rank)) {
            return Some(format!(
                "--rank {rank}: the ranks of {receivers} receivers are 1 to {receivers}"
            ));
        }
        match (common.fabric, common.nodes.len()) {
            (Kind::Shm, 0) => match common.name.as_deref().unwrap_or_default() {
                "" => Some("--name is missing: the same for all processes".to_owned()),
                _ => None,
            },
            (Kind::Shm, _) => Some("--nodes is not for shm, whose nodes meet by --name".to_owned()),
            #[cfg(any(feature = "weft", feature = "verbs"))]
            (_, nodes) => (nodes != receivers + 1).then(|| {
                format!(
                    "--nodes names {nodes}, but there are {}: one sender and {receivers} receivers",
                    receivers + 1
                )
            }),
        }
    }
}

fn parse_chunk(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let unit: usize = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return Err("a number of bytes, with K or M for KiB or MiB".to_owned()),
    };
    let count: usize = digits.parse().map_err(|error| format!("{error}"))?;
    count
        .checked_mul(unit)
        .filter(|bytes| (MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(bytes))
        .ok_or_else(|| format!("{MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES} bytes are possible"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let args = Args::try_parse_from(line.split(' '))?;
        args.check()?;
        Ok(args)
    }

    #[test]
    fn the_command_line_is_consistent_and_has_its_defaults() {
        Args::command().debug_assert();
        let args = parse("weft-cp send f --name n --receivers 63").expect("good");
        let What::Send(SendArgs { common, .. }) = args.what else {
            panic!("to send");
        };
        assert_eq!((common.chunk, common.fabric), (16 << 20, Kind::Shm));
    }

    #[test]
    fn bad_arguments_are_refused() {
        for bad in [
            "send f --receivers 1",
            "send f --name= --receivers 1",
            "send f --name n --receivers 0",
            "send f --name n --receivers 64",
            "send f --name n --receivers 1 --chunk 1",
            "send f --name n --receivers 1 --chunk 2G",
            "send f --name n --receivers 1 --chunk M",
            "send f --name n --receivers 1 --nodes 10.0.0.1:1,10.0.0.2:1",
            "receive d --name n --receivers 2 --rank 0",
            "receive d --name n --receivers 2 --rank 3",
            "receive d --name n --receivers 2",
            "receive d --elastic 127.0.0.1:7600 --rank 1",
            "send f --elastic 127.0.0.1:7600 --receivers 1",
            "send f --elastic 127.0.0.1:7600 --name n",
        ] {
            let error = parse(&format!("weft-cp {bad}")).expect_err(bad);
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
    }

    #[cfg(feature = "weft")]
    #[test]
    fn over_a_network_receivers_call_at_an_address_of_a_host() {
        for (at, fabric, is_good) in [
            ("0.0.0.0:1", "weft", false),
            ("[::]:1", "weft", false),
            ("10.0.0.1:1", "weft", true),
            ("0.0.0.0:1", "shm", true),
        ] {
            let line = format!("weft-cp send f --elastic {at} --fabric {fabric}");
            assert_eq!(parse(&line).is_ok(), is_good, "{line}");
        }
    }

    #[cfg(feature = "weft")]
    #[test]
    fn over_a_network_each_node_has_an_address() {
        let line = "weft-cp send f --fabric weft --receivers 1 --nodes 10.0.0.1:1";
        assert!(parse(line).is_err());
        assert!(parse(&format!("{line},10.0.0.2:1")).is_ok());
    }
}
