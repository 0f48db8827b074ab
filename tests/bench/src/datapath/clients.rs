// SPDX-License-Identifier: MIT OR Apache-2.0

//! The clients of all systems at one-sided requests.

use anyhow::{Context as _, Result};

use super::args::{Contender, DatapathArgs};
use super::plan::Work;
use super::verbs_client::VerbsClients;
use super::weft_client::WeftClients;
use super::Sides;
use crate::cli::Transport;
use crate::nodes::{DC_SERVER, SERVER};
use crate::round_robin::MakeCase;
use crate::wait::Wait;

/// A system over a transport: what a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub system: Contender,
    pub transport: Transport,
    pub wait: Wait,
    /// Of its RC queue pairs.
    pub path_mtu: Option<u32>,
}

impl Lane {
    /// User-space verbs.
    pub fn verbs(wait: Wait, path_mtu: u32) -> Self {
        Self {
            system: Contender::Verbs,
            transport: Transport::Rc,
            wait,
            path_mtu: Some(path_mtu),
        }
    }

    /// perftest, which polls.
    pub fn perftest(path_mtu: u32) -> Self {
        Self {
            system: Contender::Perftest,
            ..Self::verbs(Wait::Poll, path_mtu)
        }
    }

    /// Weft. `rc_mtu` is that of the module's RC queue pairs.
    pub fn weft(transport: Transport, wait: Wait, rc_mtu: u32) -> Self {
        Self {
            system: Contender::Weft,
            transport,
            wait,
            path_mtu: (transport == Transport::Rc).then_some(rc_mtu),
        }
    }
}

/// Connected clients of each lane.
pub struct Fleet {
    verbs: Vec<VerbsClients>,
    weft: Vec<(Transport, WeftClients)>,
    rc_mtu: u32,
}

impl Fleet {
    /// Connects `count` clients of each, with memory for the longest of `works`.
    pub fn connect(args: &DatapathArgs, sides: &Sides, count: u16, works: &[Work]) -> Result<Self> {
        let longest = works.iter().map(|work| work.bytes).max().unwrap_or(1);
        let bytes = usize::try_from(longest)?;
        let wants = |system| args.systems.contains(&system);
        let mut fleet = Self {
            verbs: Vec::new(),
            weft: Vec::new(),
            rc_mtu: sides.rc_mtu,
        };
        if wants(Contender::Verbs) {
            for wait in Wait::OF_VERBS {
                let clients = VerbsClients::connect(&sides.rc.ready, wait, count, bytes)?;
                fleet.verbs.push(clients);
            }
        }
        for &transport in args.transports.iter().filter(|_| wants(Contender::Weft)) {
            let (node, peer) = match transport {
                Transport::Rc => (SERVER, &sides.rc),
                Transport::Dc => (DC_SERVER, sides.dc.as_ref().context("no peer for DC")?),
            };
            let clients = WeftClients::connect(&peer.ready, node, transport, count, bytes)?;
            fleet.weft.push((transport, clients));
        }
        Ok(fleet)
    }

    /// What each lane does at one-sided work.
    pub fn cases(&self, work: Work) -> Vec<(Lane, MakeCase<'_>)> {
        let mut cases: Vec<(Lane, MakeCase<'_>)> = Vec::new();
        for clients in &self.verbs {
            cases.push((clients.lane(), Box::new(move || clients.case(work))));
        }
        for (transport, clients) in &self.weft {
            let lane = Lane::weft(*transport, Wait::Call, self.rc_mtu);
            cases.push((lane, Box::new(move || clients.case(work))));
        }
        cases
    }
}
