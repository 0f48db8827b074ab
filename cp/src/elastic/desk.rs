// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sender's side: who has called, and who is served together.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{listen, Backlog};
use weft::fabric::MAX_NODES;

use super::{free_addr, hear, say, Call, Turn, MEETING_TIME};
use crate::args::{CommonArgs, Kind};
use crate::place::Party;

/// Most receivers of a party.
const MOST: usize = MAX_NODES - 1;
/// How long one that has called may take to say what it wants.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);
/// How long others are waited for when somebody has called: they may have been started together.
const GATHERING: Duration = Duration::from_millis(200);

/// One that waits for its turn.
struct Waiting {
    line: TcpStream,
    own: Option<SocketAddr>,
}

/// Where receivers call.
pub struct Desk {
    listener: TcpListener,
    /// All that parties have in common.
    party: Party,
    waiting: Vec<Waiting>,
    served: u64,
}

impl Desk {
    /// Listens at an address.
    pub fn open(at: SocketAddr, args: &CommonArgs) -> Result<Self> {
        let listener = TcpListener::bind(at);
        let listener = listener.with_context(|| format!("cannot listen at {at} for receivers"))?;
        // Receivers that call while others are served wait there: more than the standard library lets.
        listen(&listener, Backlog::MAXALLOWABLE)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            party: args.party(),
            waiting: Vec::new(),
            served: 0,
        })
    }

    /// Waits until somebody has called, and tells those who are there that it is their turn. None,
    /// if nobody has called for as long as the sender has patience.
    pub fn next_party(&mut self) -> Result<Option<Party>> {
        loop {
            let end = Instant::now() + self.party.patience;
            while self.waiting.is_empty() {
                if !self.receive(end)? {
                    return Ok(None);
                }
            }
            let end = Instant::now() + GATHERING;
            while self.waiting.len() < MOST && self.receive(end)? {}
            self.waiting.retain(|waiting| is_there(&waiting.line));
            if let Some(party) = self.begin()? {
                return Ok(Some(party));
            }
        }
    }

    /// Receives one that calls, if it says what it wants; false if nobody has called until the end.
    fn receive(&mut self, end: Instant) -> Result<bool> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for receivers"),
        }
        let (line, from) = match self.listener.accept() {
            Ok(called) => called,
            Err(error) if has_gone(error.kind()) => return Ok(true),
            Err(error) => return Err(error).context("receivers cannot be heard"),
        };
        match self.hear(line) {
            Ok(waiting) => self.waiting.push(waiting),
            Err(error) => tracing::warn!("{from} has called, but: {error:#}"),
        }
        Ok(true)
    }

    fn hear(&self, line: TcpStream) -> Result<Waiting> {
        line.set_nonblocking(false)?;
        let call = Call::from_line(&hear(&line, Some(STRANGER_PATIENCE))?)?;
        ensure!(
            call.fabric == self.party.fabric,
            "it uses another fabric: give both the same --fabric"
        );
        let has_addr = call.own.is_some() == (call.fabric != Kind::Shm);
        ensure!(has_addr, "it does not say where it listens");
        Ok(Waiting {
            line,
            own: call.own,
        })
    }

    /// Tells those who wait. None, if nobody does any more.
    fn begin(&mut self) -> Result<Option<Party>> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(None);
        }
        self.served += 1;
        let receivers = waiting.len();
        let (mut name, mut nodes) = (String::new(), Vec::new());
        if self.party.fabric == Kind::Shm {
            name = fresh_name(self.served);
        } else {
            nodes.push(free_addr(self.listener.local_addr()?.ip())?);
            nodes.extend(waiting.iter().filter_map(|waiting| waiting.own));
        }
        for (waiting, rank) in waiting.iter().zip(1..) {
            let turn = Turn {
                rank,
                receivers,
                name: name.clone(),
                nodes: nodes.clone(),
            };
            if let Err(error) = say(&waiting.line, &turn.to_line(), STRANGER_PATIENCE) {
                // The others learn it when they do not meet it.
                tracing::warn!("receiver {rank} has gone: {error:#}");
            }
        }
        Ok(Some(Party {
            receivers,
            name,
            nodes,
            patience: MEETING_TIME,
            ..self.party.clone()
        }))
    }
}

/// A name that no other party of this network namespace meets under. Process ids are not enough:
/// two senders that share it may be in PID namespaces of their own.
fn fresh_name(served: u64) -> String {
    let random = RandomState::new().build_hasher().finish();
    format!("elastic-{}-{served}-{random:x}", std::process::id())
}

/// Whether one that had called hung up before it was heard.
fn has_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::ConnectionAborted)
}

/// Whether one that waits has not hung up: it says nothing meanwhile.
fn is_there(line: &TcpStream) -> bool {
    if line.set_nonblocking(true).is_err() {
        return false;
    }
    let peeked = line.peek(&mut [0]);
    let waits = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    waits && line.set_nonblocking(false).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, What};
    use crate::place::Place;
    use clap::Parser as _;
    use std::fs;
    use std::io::Write as _;
    use std::thread;

    /// Longer than anybody waits for a stranger.
    const LONG: Duration = Duration::from_secs(15);

    fn desk() -> Desk {
        let line = "weft-cp send file --elastic 127.0.0.1:0";
        let args = Args::try_parse_from(line.split(' ')).expect("good");
        let What::Send(args) = args.what else {
            panic!("to send");
        };
        let at = args.common.elastic.expect("an address");
        Desk::open(at, &args.common).expect("it listens")
    }

    /// Says one byte after the other, and never a whole line.
    fn dribble(mut line: TcpStream) {
        let begun = Instant::now();
        while begun.elapsed() < LONG && line.write_all(b"w").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    }

    #[test]
    fn more_receivers_can_call_while_others_are_served_than_a_party_has() {
        let most = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("the system's limit");
        let most: usize = most.trim().parse().expect("a number");
        let desk = desk();
        let at = desk.listener.local_addr().expect("an address");
        let call = || TcpStream::connect_timeout(&at, STRANGER_PATIENCE).expect("it can wait");
        let lines: Vec<_> = (0..most.min(300)).map(|_| call()).collect();
        assert!(lines.iter().all(|line| line.peer_addr().is_ok()));
    }

    #[test]
    fn a_party_has_a_name_of_its_own_that_is_short_enough_for_all_its_nodes() {
        let name = fresh_name(u64::MAX);
        assert_ne!(name, fresh_name(u64::MAX));
        let desk = desk();
        let party = Party {
            name,
            ..desk.party.clone()
        };
        Place::new(&party.alone(MOST), 0).expect("a name that can be");
    }

    #[test]
    fn one_that_says_its_line_byte_by_byte_does_not_hold_up_others() {
        let mut desk = desk();
        let at = desk.listener.local_addr().expect("an address");
        let stranger = TcpStream::connect(at).expect("it is heard");
        let stranger = thread::spawn(move || dribble(stranger));
        let receiver = TcpStream::connect(at).expect("it is heard");
        let call = Call {
            fabric: Kind::Shm,
            own: None,
        };
        say(&receiver, &call.to_line(), LONG).expect("it is heard");
        let begun = Instant::now();
        let party = desk
            .next_party()
            .expect("it listens")
            .expect("one is there");
        assert_eq!(party.receivers, 1);
        assert!(begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
        drop(desk);
        stranger.join().expect("it ends");
    }
}
