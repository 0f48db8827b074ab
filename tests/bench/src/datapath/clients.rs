// SPDX-License-Identifier: MIT OR Apache-2.0

//! The clients of all systems at one-sided requests.

use anyhow::{Context as _, Result};

use super::args::DatapathArgs;
use super::plan::Work;
use super::verbs_client::VerbsClients;
use super::weft_client::WeftClients;
use super::Sides;
use crate::cli::{System, Transport};
use crate::nodes::{DC_SERVER, SERVER};
use crate::round_robin::MakeCase;

/// A system over a transport: what a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub system: System,
    pub transport: Transport,
}

impl Lane {
    /// User-space verbs.
    pub const VERBS: Self = Self {
        system: System::Verbs,
        transport: Transport::Rc,
    };

    /// Weft.
    pub fn weft(transport: Transport) -> Self {
        Self {
            system: System::Weft,
            transport,
        }
    }
}

/// Connected clients of each lane.
pub struct Fleet {
    verbs: Option<VerbsClients>,
    weft: Vec<(Transport, WeftClients)>,
}

impl Fleet {
    /// Connects `count` clients of each, with memory for the longest of `works`.
    pub fn connect(args: &DatapathArgs, sides: &Sides, count: u16, works: &[Work]) -> Result<Self> {
        let longest = works.iter().map(|work| work.bytes).max().unwrap_or(1);
        let bytes = usize::try_from(longest)?;
        let wants = |system| args.systems.contains(&system);
        let mut weft = Vec::new();
        for &transport in args.transports.iter().filter(|_| wants(System::Weft)) {
            let (node, peer) = match transport {
                Transport::Rc => (SERVER, &sides.rc),
                Transport::Dc => (DC_SERVER, sides.dc.as_ref().context("no peer for DC")?),
            };
            let clients = WeftClients::connect(&peer.ready, node, transport, count, bytes)?;
            weft.push((transport, clients));
        }
        Ok(Self {
            verbs: match wants(System::Verbs) {
                true => Some(VerbsClients::connect(&sides.rc.ready, count, bytes)?),
                false => None,
            },
            weft,
        })
    }

    /// What each lane does at one-sided work.
    pub fn cases(&self, work: Work) -> Vec<(Lane, MakeCase<'_>)> {
        let mut cases: Vec<(Lane, MakeCase<'_>)> = Vec::new();
        if let Some(verbs) = self.verbs.as_ref().filter(|_| VerbsClients::can(work.op)) {
            cases.push((Lane::VERBS, Box::new(move || verbs.case(work))));
        }
        for (transport, clients) in &self.weft {
            let make = Box::new(move || clients.case(work));
            cases.push((Lane::weft(*transport), make));
        }
        cases
    }
}
