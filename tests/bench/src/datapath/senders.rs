// SPDX-License-Identifier: MIT OR Apache-2.0

//! The clients of all systems at messages, and the stations that receive them.

use anyhow::Result;

use super::args::{DatapathArgs, Operation};
use super::clients::Lane;
use super::plan::Work;
use super::verbs_client::VerbsClients;
use super::weft_client::WeftClients;
use crate::cli::{System, Transport};
use crate::messages::{buffers_for, Reply, Station, StationArgs};
use crate::nodes::{Node, DC_SERVER, SERVER};
use crate::round_robin::MakeCase;

/// How long stations look for messages before sleeping: what a waiting VQP does.
const SPIN_US: u64 = 20;

/// Connected clients of each lane.
pub struct Senders {
    verbs: Option<(VerbsClients, Station)>,
    weft: Option<(WeftClients, Station)>,
}

impl Senders {
    /// Whether messages of this work can be received; other work has none.
    pub fn can(work: Work) -> bool {
        work.op != Operation::Send || buffers_for(work.outstanding(), work.bytes).is_some()
    }

    /// Starts the stations and connects the clients.
    pub fn connect(args: &DatapathArgs, work: Work) -> Result<Self> {
        let wants = |system| args.systems.contains(&system);
        let bytes = usize::try_from(work.bytes)?;
        let verbs = match wants(System::Verbs) {
            true => {
                let station = station(System::Verbs, SERVER, work)?;
                let to = station.rdma_cm;
                let clients = VerbsClients::connect_to_station(to, work.clients, bytes)?;
                Some((clients, station))
            }
            false => None,
        };
        let weft = match wants(System::Weft) && args.transports.contains(&Transport::Dc) {
            true => {
                let station = station(System::Weft, DC_SERVER, work)?;
                let clients = WeftClients::connect_to_station(&station, work.clients, bytes)?;
                Some((clients, station))
            }
            false => None,
        };
        Ok(Self { verbs, weft })
    }

    /// What each lane does.
    pub fn cases(&self, work: Work) -> Vec<(Lane, MakeCase<'_>)> {
        let mut cases: Vec<(Lane, MakeCase<'_>)> = Vec::new();
        if let Some((clients, _)) = &self.verbs {
            cases.push((Lane::VERBS, Box::new(move || clients.case(work))));
        }
        if let Some((clients, _)) = &self.weft {
            let make = Box::new(move || clients.case(work));
            cases.push((Lane::weft(Transport::Dc), make));
        }
        cases
    }
}

fn station(system: System, node: Node, work: Work) -> Result<Station> {
    Station::start(&StationArgs {
        node: node.0,
        system,
        index: 0,
        reply: Reply::None,
        bytes: work.bytes,
        // `can` has found that there are as many.
        buffers: buffers_for(work.outstanding(), work.bytes).unwrap_or(1),
        clients: work.clients,
        spin_us: SPIN_US,
    })
}
