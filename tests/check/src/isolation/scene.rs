// SPDX-License-Identifier: MIT OR Apache-2.0

//! What has to be so while an attempt is made, and what has to come of it, where only the
//! tests' own process can prepare it and see it: attackers may not, or are not to be told.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{ensure, Result};
use weft_shim::Device;

use super::attacker::Who;
use super::member::FORGED_QPN;
use super::users::ROOT;
use crate::packets::memory_kib;
use crate::queue_pairs::queue_pairs;
use crate::rc;
use crate::world::{counter, gid, system, wait_for};

/// The node that is down in [`Scene::NodeDown`].
pub const DOWN: u8 = 4;
/// The first of the nodes that pin node 0 in [`Scene::Newcomer`], one for each node that
/// attackers are on.
const NEWCOMER: u8 = 5;
/// A peer that is down, and an attacker, delay another's RC queue pair by less.
const DELAY: Duration = Duration::from_secs(3);
/// The module has looked at what came in.
const BOUND: Duration = Duration::from_secs(5);
/// What a node gives to one address at most, of a machine's memory: a quarter of all.
const MOST_CONTEXTS_PER_MIB: u64 = 12;
/// Offers of a flood: more than a node looks up at once.
const MANY: i64 = 500;
/// Contexts that somebody gets who asks for thousands and knows the key.
const SOME_CONTEXTS: i64 = 1000;

/// What is prepared and looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Nodes 0 and 1 are connected by RC.
    Rc,
    /// The same. Offers that are not node 1's are refused and end no queue pair; those
    /// with all that node 1's have are taken, and end none either.
    Offers,
    /// Node 4 is down. The attacker pins [`live`] after it, which is connected in time.
    NodeDown,
    /// One address gets contexts at node 0, and not too many.
    Contexts,
    /// A node that node 0 does not know pins it, and is connected in time.
    Newcomer,
}

/// The node that is up and that this attacker pins: nobody was connected to it before.
pub fn live(uid: u32) -> u8 {
    match uid {
        ROOT => 2,
        _ => 3,
    }
}

impl Scene {
    /// Prepares it.
    pub fn set(self, who: &Who) -> Result<Set> {
        match self {
            Self::Rc | Self::Offers => rc::pin()?,
            Self::NodeDown => system(&format!("ip -n n{DOWN} link set v{DOWN} down"))?,
            Self::Newcomer => Device::open_on(0)?.flush_dccache()?,
            Self::Contexts => {}
        }
        Ok(Set {
            scene: self,
            newcomer: NEWCOMER + who.node as u8,
            is_node_1: who.uid == ROOT && who.node == 1,
            live: live(who.uid),
            queue_pairs: genuine_queue_pairs()?,
            refused: counter("rc_offers_refused")?,
            contexts: counter("contexts")?,
        })
    }
}

/// A scene that is set, until it is dropped.
pub struct Set {
    scene: Scene,
    /// The attacker can send as node 1.
    is_node_1: bool,
    live: u8,
    newcomer: u8,
    queue_pairs: BTreeSet<(String, u32)>,
    refused: i64,
    contexts: i64,
}

impl Set {
    /// What has to come of the attempt.
    pub fn look(&self) -> Result<()> {
        match self.scene {
            Scene::Rc => Ok(()),
            Scene::Offers => self.offers(),
            Scene::NodeDown => wait_for("the live peer is connected by RC", DELAY, || {
                rc::goes_by_rc(0, self.live)
            }),
            Scene::Contexts => self.contexts(),
            Scene::Newcomer => self.newcomer(),
        }
    }

    fn offers(&self) -> Result<()> {
        wait_for("offers are refused", BOUND, || {
            Ok(counter("rc_offers_refused")? > self.refused)
        })?;
        if self.is_node_1 {
            wait_for("offers that are node 1's are taken", BOUND, || {
                Ok(queue_pairs()?.iter().any(|pair| pair.rqpn == FORGED_QPN))
            })?;
        }
        let now = genuine_queue_pairs()?;
        let lost = self.queue_pairs.difference(&now).collect::<Vec<_>>();
        ensure!(lost.is_empty(), "queue pairs were lost: {lost:?}");
        ensure!(rc::goes_by_rc(0, 1)? && rc::goes_by_rc(1, 0)?, "RC is down");
        Ok(())
    }

    fn newcomer(&self) -> Result<()> {
        wait_for("offers are refused", BOUND, || {
            Ok(counter("rc_offers_refused")? > self.refused + MANY)
        })?;
        Device::open_on(u32::from(self.newcomer))?.pool_pin(gid(0))?;
        wait_for("the newcomer is connected by RC", DELAY, || {
            rc::goes_by_rc(self.newcomer, 0)
        })
    }

    fn contexts(&self) -> Result<()> {
        let contexts = counter("contexts")?;
        let most = MOST_CONTEXTS_PER_MIB * (memory_kib("MemTotal")? >> 10);
        ensure!(
            contexts - self.contexts >= SOME_CONTEXTS,
            "only {contexts} contexts: it does not know the key"
        );
        ensure!(contexts as u64 <= most, "{contexts} contexts");
        Ok(())
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        match self.scene {
            Scene::Rc | Scene::Offers => {
                let device = Device::open_on(0);
                let _ = device.and_then(|device| device.pool_unpin(gid(1)));
            }
            Scene::NodeDown => {
                let _ = system(&format!("ip -n n{DOWN} link set v{DOWN} up"));
            }
            Scene::Newcomer => {
                let device = Device::open_on(u32::from(self.newcomer));
                let _ = device.and_then(|device| device.pool_unpin(gid(0)));
            }
            Scene::Contexts => {}
        }
    }
}

/// The device and number of each that no attacker has offered.
fn genuine_queue_pairs() -> Result<BTreeSet<(String, u32)>> {
    let all = queue_pairs()?.into_iter();
    let genuine = all.filter(|pair| pair.rqpn != FORGED_QPN);
    Ok(genuine.map(|pair| (pair.device, pair.number)).collect())
}
