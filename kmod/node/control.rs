// SPDX-License-Identifier: GPL-2.0

//! Messages from node to node: offers of RC queue pairs and their answers, and notices
//! about regions that go.
//!
//! They are read in one work, in the order of their arrival, so nothing here waits for
//! a peer or a meta server: what has to is left to works of the RC side.

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::mr::Notice;
use weft_core::rc::{Hello, Role};

use super::{as_connect_error, DeviceUse, Node};
use crate::dc::{ControlMessage, Reader};
use crate::net::{Bearer, Handler};
use crate::peer::NODE_USER;
use crate::rc::{Claim, Exchange};
use crate::vqp::Peer;

/// The DC initiator that these messages go by.
const INITIATOR: usize = 0;

fn post(peer: &Peer, message: &[u8]) -> Result {
    peer.stream(NODE_USER, INITIATOR)?
        .post_control_message(message)
}

impl Exchange for Node {
    fn send(&self, to: &Gid, message: &[u8]) -> Result {
        let (peer, _) = self.find_peer(to)?;
        post(&peer, message)
    }

    fn tell(&self, to: &Claim, message: &[u8]) -> Result {
        let _using = DeviceUse::new(self)?;
        let peer = self
            .dccache
            .find_sender(to.from, to.node, &self.dc, &self.pool)?;
        post(&peer, message)
    }

    fn knows(&self, claim: &Claim) -> bool {
        let cached = self.dccache.find(&claim.gid());
        cached.is_some_and(|peer| peer.is_at(claim.from, claim.node))
    }

    fn verify(&self, claim: &Claim) -> Result {
        let _using = DeviceUse::new(self)?;
        let gid = claim.gid();
        let (record, _) = self.directory.look_up(&gid).map_err(as_connect_error)?;
        let peer = Peer::new(gid, &record, self.dc.clone(), self.pool.clone())?;
        if !peer.is_at(claim.from, claim.node) {
            return Err(crate::errno::proto());
        }
        self.dccache.insert(peer);
        Ok(())
    }

    fn probe(&self, to: &Gid) -> Result {
        let (peer, _) = self.find_peer(to)?;
        peer.stream(NODE_USER, INITIATOR)?.probe();
        Ok(())
    }

    fn links_changed(&self) {
        self.pool.hurry();
    }

    fn packets(&self) -> (Arc<dyn Handler>, u32) {
        (self.dc.clone(), self.dc.bearer().packet_max())
    }
}

impl Node {
    /// Takes a notice of regions that go, or that a peer no longer uses.
    fn on_notice(&self, claim: &Claim, notice: &Notice) -> Result {
        let gid = claim.gid();
        match self.rc().on_notice(&gid, notice, self.knows(claim)) {
            Some(answer) => self
                .cached_peer(&gid)
                .ok_or(ENOENT)?
                .stream(NODE_USER, INITIATOR)?
                .post_control_message(&answer.encode()),
            None => Ok(()),
        }
    }
}

impl Reader for Node {
    fn read(&self, message: &ControlMessage) {
        let claim = Claim {
            from: message.from,
            node: message.node,
        };
        if let Some(notice) = Notice::decode(message.text()) {
            if let Err(error) = self.on_notice(&claim, &notice) {
                pr_debug!("no answer about a region: {error:?}\n");
            }
            return;
        }
        // A message that does not decode is a later version's.
        let Some(hello) = Hello::decode(message.text()) else {
            return;
        };
        match hello.role {
            Role::Offer => self.rc().on_offer(&claim, &hello),
            Role::Answer => self.rc().on_answer(&claim, &hello),
        }
    }
}
