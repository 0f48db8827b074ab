// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receivers that come when they like: they call the sender at its [`Desk`], and wait. The
//! sender makes a party of those who are there, serves it as any other, and then those who have
//! called meanwhile. Each party has a meeting place of its own, so nothing of one transfer is left
//! in the next. One that was given up is over: who did not cause that calls again.
//!
//! # What is said
//!
//! A line of text each way, over TCP. The receiver's is `weft-cp 1 FABRIC IP:PORT`, with the address
//! where it will listen for the others to meet, if the fabric is no shared memory (else `-`). The
//! sender's answer, when it is the receiver's turn, is `weft-cp 1 RANK RECEIVERS NAME IP:PORT,...`:
//! its rank, how many there are, and where they meet: by name (`-`: not), or at these addresses, the
//! sender's first (`-`: not). Whoever reaches the sender's port could take part.

mod caller;
mod desk;

pub use caller::Caller;
pub use desk::Desk;

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use clap::ValueEnum as _;

use crate::args::Kind;

/// The beginning of each line: the release of what is said here.
const RELEASE: &str = "weft-cp 1";
const NONE: &str = "-";
/// Longest line: an address takes at most 47 bytes and a comma.
const MAX_LINE_BYTES: u64 = 4096;
/// How long those of a party have to meet: they are all there.
const MEETING_TIME: Duration = Duration::from_secs(20);

/// A receiver's line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    fabric: Kind,
    /// Where it will listen.
    own: Option<SocketAddr>,
}

/// The sender's line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    rank: usize,
    receivers: usize,
    name: String,
    nodes: Vec<SocketAddr>,
}

impl Call {
    fn to_line(&self) -> String {
        let own = self
            .own
            .map_or_else(|| NONE.to_owned(), |own| own.to_string());
        format!("{RELEASE} {} {own}\n", name_of(self.fabric))
    }

    fn from_line(line: &str) -> Result<Self> {
        let [fabric, own] = words(line)?;
        let own = match own {
            NONE => None,
            own => Some(own.parse()?),
        };
        let Ok(fabric) = Kind::from_str(fabric, false) else {
            bail!("it uses a fabric that is none here: {fabric}");
        };
        Ok(Self { fabric, own })
    }
}

impl Turn {
    fn to_line(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(SocketAddr::to_string).collect();
        let nodes = match nodes.as_slice() {
            [] => NONE.to_owned(),
            nodes => nodes.join(","),
        };
        let name = if self.name.is_empty() {
            NONE
        } else {
            &self.name
        };
        let (rank, receivers) = (self.rank, self.receivers);
        format!("{RELEASE} {rank} {receivers} {name} {nodes}\n")
    }

    fn from_line(line: &str) -> Result<Self> {
        let [rank, receivers, name, nodes] = words(line)?;
        let nodes: Vec<SocketAddr> = match nodes {
            NONE => Vec::new(),
            nodes => nodes
                .split(',')
                .map(FromStr::from_str)
                .collect::<Result<_, _>>()?,
        };
        let turn = Self {
            rank: rank.parse()?,
            receivers: receivers.parse()?,
            name: if name == NONE { "" } else { name }.to_owned(),
            nodes,
        };
        let is_one = (1..=turn.receivers).contains(&turn.rank);
        ensure!(is_one, "the sender gives a rank that is none: {line}");
        Ok(turn)
    }
}

fn name_of(fabric: Kind) -> String {
    let value = fabric.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The words behind the release, which are so many.
fn words<const COUNT: usize>(line: &str) -> Result<[&str; COUNT]> {
    let rest = line.trim_end().strip_prefix(RELEASE);
    let rest = rest.context("it does not speak as this release does: run the same everywhere")?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    words.try_into().ok().context("a line that says nothing")
}

/// Reads a line, all of it within this time.
fn hear(line: &TcpStream, patience: Option<Duration>) -> Result<String> {
    let end = patience.map(|patience| Instant::now() + patience);
    let line = Until { line, end };
    let mut said = String::new();
    BufReader::new(line.take(MAX_LINE_BYTES)).read_line(&mut said)?;
    ensure!(said.ends_with('\n'), "the other side has hung up");
    Ok(said)
}

/// A connection that is read until a time, if there is one. A timeout of the socket is for one
/// read, of which a line may take many.
struct Until<'a> {
    line: &'a TcpStream,
    end: Option<Instant>,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(end) = self.end {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.line.set_read_timeout(Some(left))?;
        }
        (&mut &*self.line).read(into)
    }
}

fn say(mut line: &TcpStream, what: &str, patience: Duration) -> Result<()> {
    line.set_write_timeout(Some(patience))?;
    Ok(line.write_all(what.as_bytes())?)
}

/// An address that nobody listens at: for the meeting that follows at once.
fn free_addr(ip: IpAddr) -> Result<SocketAddr> {
    let taken = TcpListener::bind((ip, 0)).with_context(|| format!("{ip} has no port left"))?;
    Ok(taken.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_they_were_made_of() {
        let addr = SocketAddr::from(([10, 0, 0, 2], 7601));
        for own in [None, Some(addr)] {
            let fabric = Kind::Shm;
            let call = Call { fabric, own };
            assert_eq!(Call::from_line(&call.to_line()).expect("a call"), call);
        }
        for (name, nodes) in [("n", vec![]), ("", vec![addr; 2])] {
            let turn = Turn {
                rank: 1,
                receivers: 1,
                name: name.to_owned(),
                nodes,
            };
            assert_eq!(Turn::from_line(&turn.to_line()).expect("a turn"), turn);
        }
    }

    #[test]
    fn noise_says_nothing() {
        for noise in [
            "",
            "\n",
            "GET / HTTP/1.0\n",
            "weft-cp 2 shm -\n",
            "weft-cp 1 shm\n",
            "weft-cp 1 shm x\n",
            "weft-cp 1 tape -\n",
        ] {
            assert!(Call::from_line(noise).is_err(), "{noise:?}");
        }
        for noise in [
            "weft-cp 1 0 1 n -\n",
            "weft-cp 1 2 1 n -\n",
            "weft-cp 1 1 1 n\n",
            "weft-cp 1 1 1 - 1.2.3.4\n",
        ] {
            assert!(Turn::from_line(noise).is_err(), "{noise:?}");
        }
    }
}
