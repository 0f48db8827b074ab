// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiver's side: it calls, and waits for its turn.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, Linger, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};

use super::{free_addr, hear, say, Call, Turn, MEETING_TIME};
use crate::args::{CommonArgs, Kind};
use crate::place::Party;

const RETRY: Duration = Duration::from_millis(100);
/// How long a host may take to answer, before it is tried again.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// Seconds of silence after which the sender's host is asked whether it is there.
const ALIVE_IDLE_S: u32 = 10;
/// Seconds from one such question to the next.
const ALIVE_INTERVAL_S: u32 = 5;
/// Questions without an answer after which the host counts as gone.
const ALIVE_COUNT: u32 = 3;

/// A receiver that calls until it was served.
pub struct Caller {
    at: SocketAddr,
    party: Party,
    /// Why it was not served the last time.
    failure: Option<anyhow::Error>,
}

impl Caller {
    /// For the sender at an address.
    pub fn new(at: SocketAddr, args: &CommonArgs) -> Self {
        Self {
            at,
            party: args.party(),
            failure: None,
        }
    }

    /// A transfer was given up, for which this receiver can do nothing.
    pub fn note_failure(&mut self, error: anyhow::Error) {
        tracing::warn!("calling again: {error:#}");
        self.failure = Some(error);
    }

    /// Calls, and waits for the turn; answers with who takes part, and this one's rank.
    ///
    /// # Errors
    ///
    /// If the sender is not there within the time; with why the last transfer was given up, if there
    /// was one.
    pub fn call(&mut self) -> Result<(Party, usize)> {
        let end = Instant::now() + self.party.patience;
        let refusal = loop {
            match self.call_once() {
                Ok(turn) => {
                    let party = Party {
                        receivers: turn.receivers,
                        name: turn.name,
                        nodes: turn.nodes,
                        patience: MEETING_TIME,
                        ..self.party.clone()
                    };
                    return Ok((party, turn.rank));
                }
                Err(error) if Instant::now() >= end => break error,
                Err(_) => std::thread::sleep(RETRY),
            }
        };
        let refusal = refusal.context(format!("no sender serves at {}", self.at));
        Err(match self.failure.take() {
            Some(failure) => failure.context(format!("{refusal:#}; before that")),
            None => refusal,
        })
    }

    /// While others are served nothing is said, for however long. If the sender's host has gone
    /// meanwhile, the line breaks.
    fn call_once(&self) -> Result<Turn> {
        let line = connect(self.at)?;
        let own = match self.party.fabric == Kind::Shm {
            true => None,
            false => Some(free_addr(line.local_addr()?.ip())?),
        };
        let call = Call {
            fabric: self.party.fabric,
            own,
        };
        say(&line, &call.to_line(), CONNECT_TIME)?;
        Turn::from_line(&hear(&line, None)?)
    }
}

/// A line to the sender. The system looks now and then whether its host is still there: one that
/// has lost its power does not hang up.
fn connect(at: SocketAddr) -> Result<TcpStream> {
    let line = TcpStream::connect_timeout(&at, CONNECT_TIME).context("nobody is there")?;
    ensure!(!is_to_itself(&line), "nobody is there");
    setsockopt(&line, KeepAlive, &true)?;
    setsockopt(&line, TcpKeepIdle, &ALIVE_IDLE_S)?;
    setsockopt(&line, TcpKeepInterval, &ALIVE_INTERVAL_S)?;
    setsockopt(&line, TcpKeepCount, &ALIVE_COUNT)?;
    Ok(line)
}

/// Whether a line connects to itself: no sender has listened at the address, and the kernel has
/// drawn its port for this end (RFC 9293, 3.5: a simultaneous open). Dropped, it leaves the port to
/// the sender at once.
fn is_to_itself(line: &TcpStream) -> bool {
    let is_so = matches!(
        (line.local_addr(), line.peer_addr()),
        (Ok(own), Ok(other)) if own == other
    );
    if is_so {
        let at_once = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        // Else the port is free a minute later.
        let _ = setsockopt(line, Linger, &at_once);
    }
    is_so
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{
        bind, connect as connect_to, getsockopt, socket, AddressFamily, SockFlag, SockType,
        SockaddrStorage,
    };
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_line_to_itself_is_nobodys_and_leaves_the_address_to_the_sender() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let line = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        bind(line.as_raw_fd(), &SockaddrStorage::from(any)).expect("a port");
        let line = TcpStream::from(line);
        let at = line.local_addr().expect("its address");
        connect_to(line.as_raw_fd(), &SockaddrStorage::from(at)).expect("it meets itself");
        assert!(is_to_itself(&line));
        drop(line);
        let sender = TcpListener::bind(at).expect("the address is free");
        let line = TcpStream::connect(sender.local_addr().expect("an address"));
        assert!(!is_to_itself(&line.expect("it is heard")));
    }

    #[test]
    fn a_sender_whose_host_is_gone_is_noticed_within_half_a_minute() {
        let sender = TcpListener::bind(("127.0.0.1", 0)).expect("it listens");
        let line = connect(sender.local_addr().expect("an address"));
        let line = line.expect("it is heard");
        assert!(getsockopt(&line, KeepAlive).expect("it is set"));
        let idle_s = getsockopt(&line, TcpKeepIdle).expect("it is set");
        let interval_s = getsockopt(&line, TcpKeepInterval).expect("it is set");
        let count = getsockopt(&line, TcpKeepCount).expect("it is set");
        assert!(idle_s + interval_s * count <= 30);
    }
}
