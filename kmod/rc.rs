// SPDX-License-Identifier: GPL-2.0

//! RC queue pairs to peers (krcore §4.2, §4.4): a node's part of the hybrid pool
//! that is not DC. They are made in the background, never on a caller's path.
//!
//! - [`wants`]: the peers that are to get one, and the work that connects to them.
//! - [`lanes`]: which of the queue pairs to a peer a processor uses.
//! - [`handshake`]: offers and answers, which travel as messages of the nodes
//!   (`dc::Inbox`).
//! - [`links`]: the queue pairs that there are, and their upkeep.
//! - [`closing`]: how they go again.
//! - [`register`]: what the device has to know of regions.
//! - [`revoke`]: notices about regions that go.
//!
//! | of a node, at most | seen to by | beyond that |
//! |---|---|---|
//! | 64 wants (`MAX_WANTS`) | `WantTable::add` | `makes_room` takes one out, or none is added |
//! | 80 first queue pairs (`MAX_FIRST_LINKS`) | `room_for` | a want tries again later |
//! | 64 further ones (`MAX_MORE_LINKS`) | `room_for`, `want_more` | requests stay on the first |
//! | 16 half open among these | `displaced` | the oldest one goes |
//! | 8 to one peer (`MAX_LANES`) | `rc_lanes`, `Hello::decode` | the message is not read |
//! | 32 offers that wait, 8 of unknown senders | `on_offer` | the offer is refused |
//!
//! `room_for` is asked before a queue pair is made, and when it is taken in; a peer's offer
//! for which there is no room is refused. The list has room for all, first and further ones.
//!
//! Lock order: `registrar`, `hardware`; `wants`, `links`; the others are held alone. None
//! of them is held while a queue is ended.

mod arming;
mod chain;
mod closing;
mod control;
mod handshake;
mod lanes;
mod link;
mod links;
mod long;
mod polling;
mod post;
mod queue;
mod register;
mod revoke;
mod single;
mod slots;
mod wants;

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::wire::Destination;
use weft_core::gid::Gid;
use weft_core::mr::LEDGER_LINES;
use weft_core::rc::{Admission, HELLO_BYTES, MAX_FIRST_LINKS, MAX_MORE_LINKS};

use crate::dc::Requester;
use crate::mem::{MrTable, RcUse};
use crate::net::{Endpoint, Handler};
use crate::rdma::{Pd, Port, Registrar};
use crate::sync::{new_event_count, new_lock, new_periodic, EventCount, FastLock, Periodic};

pub(crate) use control::Behind;
use handshake::{Pending, MAX_PENDING};
pub(crate) use lanes::{check_parameter, lane_of_this_cpu, lanes};
use link::Hardware;
use links::{end, Link};
pub(crate) use polling::{Attending, LONGEST_SPIN_NS};
pub(crate) use post::Posted;
use queue::Ending;
pub(crate) use queue::RcQueue;
pub(crate) use single::SingleRequest;
use wants::{Connector, WantTable};

/// Peers that a node wants a queue pair to, at most; each has a work item.
pub(crate) const MAX_WANTS: usize = 64;
const MAX_LINKS: usize = MAX_FIRST_LINKS + MAX_MORE_LINKS;
const _: () = assert!(MAX_LINKS <= LEDGER_LINES);
/// How often links are looked after.
const TICK_MS: u32 = 1000;

/// An offer or an answer.
pub(crate) type HelloBytes = [u8; HELLO_BYTES];

/// A message's claim about its sender; whoever can forge packets can claim anything.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    /// Where it came from.
    pub(crate) from: Endpoint,
    /// The DC target that it says it is of.
    pub(crate) node: Destination,
}

impl Claim {
    /// The GID of the address that it came from.
    pub(crate) fn gid(&self) -> Gid {
        Gid::from_ipv4(self.from.addr)
    }
}

/// Carries messages between nodes, and knows their records.
pub(crate) trait Exchange: Send + Sync {
    /// Sends a message to the address in a peer's record; it may be lost. May sleep for
    /// a look-up.
    fn send(&self, to: &Gid, message: &[u8]) -> Result;

    /// Sends a message to a peer whose claim was verified; it may be lost. Waits for no
    /// look-up, whatever has become of the peer.
    fn tell(&self, peer: &Claim, message: &[u8]) -> Result;

    /// Whether the cached record of the sender's GID holds what it claims. Does not
    /// sleep.
    fn knows(&self, claim: &Claim) -> bool;

    /// Looks the record of the sender's GID up. May sleep.
    ///
    /// # Errors
    ///
    /// `EPROTO`: the record does not hold what the sender claims. Those of a look-up.
    fn verify(&self, claim: &Claim) -> Result;

    /// Has the time taken that a round trip to a peer needs by DC. May sleep for a look-up.
    fn probe(&self, to: &Gid) -> Result;

    /// A queue pair has come up, or gone. Any context.
    fn links_changed(&self);

    /// Takes the packets that come by RC, and the bytes of the longest that the node sends.
    fn packets(&self) -> (Arc<dyn Handler>, u32);
}

/// A node's RC side.
#[pin_data]
pub(crate) struct Rc<R: Requester> {
    gid: Gid,
    mrs: Arc<MrTable>,
    /// The node, which holds this in turn: `stop` breaks the cycle.
    #[pin]
    exchange: FastLock<Option<Arc<dyn Exchange>>>,
    /// `None` where the device cannot do it, and once it goes.
    #[pin]
    hardware: Mutex<Option<Hardware>>,
    /// Makes regions' keys valid; made when it is needed.
    #[pin]
    registrar: Mutex<Option<Registrar>>,
    /// Room for all is made at the start.
    #[pin]
    links: FastLock<KVec<Link<R>>>,
    /// Looks after the links.
    #[pin]
    work: Periodic<Self>,
    #[pin]
    wants: FastLock<WantTable>,
    /// One for each slot of `wants`.
    connectors: KVec<Pin<KBox<Connector<R>>>>,
    #[pin]
    admission: FastLock<KBox<Admission>>,
    /// Offers to be answered. Room for all is made at the start.
    #[pin]
    offers: FastLock<KVec<Pending>>,
    /// Answers them.
    #[pin]
    acceptor: Periodic<Self, 2>,
    /// Sends and answers notices about regions that go.
    #[pin]
    announcer: Periodic<Self, 1>,
    /// Closes queue pairs.
    #[pin]
    closer: Periodic<Self, 3>,
    /// Counts the times that a queue pair has come up or gone.
    #[pin]
    changes: EventCount,
}

impl<R: Requester> Rc<R> {
    /// The RC side of a node whose regions are in `mrs`.
    pub(crate) fn new(gid: Gid, port: Port, pd: Arc<Pd>, mrs: Arc<MrTable>) -> Result<Arc<Self>> {
        let is_possible = mrs.rc_use() != RcUse::NoFastRegistration;
        let hardware = is_possible.then_some(Hardware { port, pd });
        let links = KVec::with_capacity(MAX_LINKS, GFP_KERNEL)?;
        let offers = KVec::with_capacity(MAX_PENDING, GFP_KERNEL)?;
        let (wants, connectors) = (WantTable::new()?, Connector::all()?);
        let admission = KBox::new(Admission::NEW, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                gid,
                mrs,
                exchange <- new_lock!(None, "weft_rc_exchange"),
                hardware <- kernel::new_mutex!(hardware, "weft_rc"),
                registrar <- kernel::new_mutex!(None, "weft_rc_registrar"),
                links <- new_lock!(links, "weft_rc_links"),
                work <- new_periodic!("weft_rc_work"),
                wants <- new_lock!(wants, "weft_rc_wants"),
                connectors,
                admission <- new_lock!(admission, "weft_rc_admission"),
                offers <- new_lock!(offers, "weft_rc_offers"),
                acceptor <- new_periodic!("weft_rc_accept_work"),
                announcer <- new_periodic!("weft_rc_notice_work"),
                closer <- new_periodic!("weft_rc_close_work"),
                changes <- new_event_count!("weft_rc_changes"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets queue pairs be made; `exchange` carries the offers until [`Rc::stop`].
    pub(crate) fn start(self: &Arc<Self>, exchange: Arc<dyn Exchange>) {
        *self.exchange.lock() = Some(exchange);
        for connector in &self.connectors {
            connector.start(self);
        }
    }

    /// The DC transport for messages to peers, unless the node has stopped. Only the work
    /// items take it, and `stop` waits for them: none of them holds the last reference.
    pub(crate) fn exchange(&self) -> Result<Arc<dyn Exchange>> {
        self.exchange.lock().clone().ok_or(EAGAIN)
    }

    /// A queue pair has come up, or gone.
    fn links_changed(&self) {
        self.changes.notify();
        if let Ok(exchange) = self.exchange() {
            exchange.links_changed();
        }
    }

    /// Ends everything: the device goes. May sleep.
    pub(crate) fn stop(&self) {
        for connector in &self.connectors {
            connector.stop();
        }
        self.acceptor.stop();
        self.announcer.stop();
        self.closer.stop();
        self.work.stop();
        self.clear_wants();
        *self.hardware.lock() = None;
        // Without hardware none is made any more.
        *self.registrar.lock() = None;
        loop {
            let link = self.links.lock().pop();
            let Some(link) = link else { break };
            end(&link.queue, Ending::NodeStops);
        }
        let exchange = self.exchange.lock().take();
        drop(exchange);
    }
}
