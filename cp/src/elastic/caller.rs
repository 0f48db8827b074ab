// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiver's side: it calls, and waits for its turn.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::{free_addr, hear, say, Call, Turn, MEETING_TIME};
use crate::args::{CommonArgs, Kind};
use crate::place::Party;

const RETRY: Duration = Duration::from_millis(100);
/// How long a host may take to answer, before it is tried again.
const CONNECT_TIME: Duration = Duration::from_secs(1);

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

    /// While others are served nothing is said, for however long.
    fn call_once(&self) -> Result<Turn> {
        let line = TcpStream::connect_timeout(&self.at, CONNECT_TIME);
        let line = line.context("nobody is there")?;
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
