// SPDX-License-Identifier: MIT OR Apache-2.0

//! The clients of all systems at messages, and the stations that receive them.

use anyhow::Result;

use super::args::{Contender, DatapathArgs, Operation};
use super::clients::Lane;
use super::plan::Work;
use super::verbs_client::VerbsClients;
use super::weft_client::WeftClients;
use crate::cli::{System, Transport};
use crate::messages::{buffers_for, Reply, Station, StationArgs};
use crate::nodes::{Node, DC_SERVER, SERVER};
use crate::round_robin::MakeCase;
use crate::wait::Wait;

/// How long stations look for messages before sleeping: what a waiting VQP does.
const SPIN_US: u64 = 20;

/// Connected clients of each lane.
pub struct Senders {
    verbs: Vec<(VerbsClients, Station)>,
    weft: Option<(WeftClients, Station)>,
    rc_mtu: u32,
}

impl Senders {
    /// Whether messages of this work can be received; other work has none.
    pub fn can(work: Work) -> bool {
        work.op != Operation::Send || buffers_for(work.outstanding(), work.bytes).is_some()
    }

    /// Starts the stations and connects the clients.
    pub fn connect(args: &DatapathArgs, rc_mtu: u32, work: Work) -> Result<Self> {
        let wants = |system| args.systems.contains(&system);
        let bytes = usize::try_from(work.bytes)?;
        let mut verbs = Vec::new();
        if wants(Contender::Verbs) {
            for (index, wait) in (0..).zip([Wait::Poll, Wait::Event]) {
                let station = station(System::Verbs, SERVER, index, work)?;
                let to = station.rdma_cm;
                let clients = VerbsClients::connect_to_station(to, wait, work.clients, bytes)?;
                verbs.push((clients, station));
            }
        }
        let weft = match wants(Contender::Weft) && args.transports.contains(&Transport::Dc) {
            true => {
                let station = station(System::Weft, DC_SERVER, 0, work)?;
                let clients = WeftClients::connect_to_station(&station, work.clients, bytes)?;
                Some((clients, station))
            }
            false => None,
        };
        Ok(Self {
            verbs,
            weft,
            rc_mtu,
        })
    }

    /// What each lane does.
    pub fn cases(&self, work: Work) -> Vec<(Lane, MakeCase<'_>)> {
        let mut cases: Vec<(Lane, MakeCase<'_>)> = Vec::new();
        for (clients, _) in &self.verbs {
            cases.push((clients.lane(), Box::new(move || clients.case(work))));
        }
        if let Some((clients, _)) = &self.weft {
            let lane = Lane::weft(Transport::Dc, Wait::Call, self.rc_mtu);
            cases.push((lane, Box::new(move || clients.case(work))));
        }
        cases
    }
}

fn station(system: System, node: Node, index: u16, work: Work) -> Result<Station> {
    Station::start(&StationArgs {
        node: node.0,
        system,
        transport: Transport::Dc,
        index,
        reply: Reply::None,
        bytes: work.bytes,
        // `can` has found that there are as many.
        buffers: buffers_for(work.outstanding(), work.bytes).unwrap_or(1),
        clients: work.clients,
        spin_us: SPIN_US,
    })
}
