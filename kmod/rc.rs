// SPDX-License-Identifier: GPL-2.0

//! RC queue pairs to peers (krcore §4.2, §4.4): a node's part of the hybrid pool
//! that is not DC. They are made in the background, never on a caller's path.
//!
//! - [`wants`]: the peers that are to get one, and the work that connects to them.
//! - [`handshake`]: offers and answers, which travel as messages of the nodes
//!   (`dc::Inbox`).
//! - [`links`]: the queue pairs that there are, and their upkeep.
//! - [`revoke`]: notices about regions that go.
//!
//! Lock order: `wants`, `links`; `hardware` and `exchange` are held alone. None of
//! them is held while a queue is ended.

mod arming;
mod chain;
mod control;
mod handshake;
mod link;
mod links;
mod polling;
mod post;
mod queue;
mod revoke;
mod single;
mod slots;
mod wants;

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::gid::Gid;
use weft_core::mr::NOTICE_BYTES;
use weft_core::rc::HELLO_BYTES;
use weft_core::uapi::WcStatus;

use crate::bindings;
use crate::dc::Requester;
use crate::mem::MrTable;
use crate::rdma::{Pd, Port};
use crate::sync::{new_lock, new_periodic, FastLock, Periodic};

use link::Hardware;
use links::{end, Link};
pub(crate) use polling::{Attending, LONGEST_SPIN_NS, SPIN_NS};
pub(crate) use queue::RcQueue;
pub(crate) use single::SingleRequest;
use wants::Want;

/// RC queue pairs of a node, and peers that it wants to have one to.
const MAX_LINKS: usize = 64;
/// How often links are looked at, and wanted ones tried.
const TICK_MS: u32 = 1000;
/// An offer or an answer.
pub(crate) type HelloBytes = [u8; HELLO_BYTES];
/// A letter about regions that go.
pub(crate) type NoticeBytes = [u8; NOTICE_BYTES];

/// Carries offers and other letters.
pub(crate) trait Exchange: Send + Sync {
    /// Carries an offer to a peer and brings the answer. May sleep for seconds.
    fn exchange(&self, to: &Gid, offer: &HelloBytes) -> Result<HelloBytes>;

    /// Carries a letter to a peer, perhaps. May sleep.
    fn tell(&self, to: &Gid, letter: &NoticeBytes) -> Result;
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
    /// Room for all is made at the start.
    #[pin]
    links: FastLock<KVec<Link<R>>>,
    #[pin]
    wants: FastLock<KVec<Want>>,
    #[pin]
    work: Periodic<Self>,
    /// Writes and answers letters about regions that go.
    #[pin]
    announcer: Periodic<Self, 1>,
}

/// Whether every peer that is used is to get an RC queue pair (`pool=rc`).
pub(crate) fn is_default() -> bool {
    // SAFETY: the parameter is a C string that no longer changes.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    text.to_bytes().trim_ascii_end() == b"rc"
}

/// Judges the `pool` parameter.
///
/// # Errors
///
/// `EINVAL`: it is neither `dc` nor `rc`.
pub(crate) fn check_parameter() -> Result {
    // SAFETY: as above.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    if is_default() || text.to_bytes().trim_ascii_end() == b"dc" {
        return Ok(());
    }
    pr_err!("pool={text:?}: it has to be dc or rc\n");
    Err(EINVAL)
}

impl<R: Requester> Rc<R> {
    /// The RC side of a node whose regions are in `mrs`.
    pub(crate) fn new(gid: Gid, port: Port, pd: Arc<Pd>, mrs: Arc<MrTable>) -> Result<Arc<Self>> {
        let hardware = mrs.table_info().map(|_| Hardware { port, pd });
        let links = KVec::with_capacity(MAX_LINKS, GFP_KERNEL)?;
        let wants = KVec::with_capacity(MAX_LINKS, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                gid,
                mrs,
                exchange <- new_lock!(None, "weft_rc_exchange"),
                hardware <- kernel::new_mutex!(hardware, "weft_rc"),
                links <- new_lock!(links, "weft_rc_links"),
                wants <- new_lock!(wants, "weft_rc_wants"),
                work <- new_periodic!("weft_rc_work"),
                announcer <- new_periodic!("weft_rc_notice_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets queue pairs be made; `exchange` carries the offers until [`Rc::stop`].
    pub(crate) fn start(&self, exchange: Arc<dyn Exchange>) {
        *self.exchange.lock() = Some(exchange);
    }

    /// What carries messages to peers, unless the node has stopped. Only the work
    /// items take it, and `stop` waits for them: none of them holds the last reference.
    fn exchange(&self) -> Result<Arc<dyn Exchange>> {
        self.exchange.lock().clone().ok_or(EAGAIN)
    }

    /// Ends everything: the device goes. May sleep.
    pub(crate) fn stop(&self) {
        self.work.stop();
        self.announcer.stop();
        *self.hardware.lock() = None;
        loop {
            let link = self.links.lock().pop();
            let Some(link) = link else { break };
            end(&link.queue, WcStatus::FatalErr);
        }
        let exchange = self.exchange.lock().take();
        drop(exchange);
    }
}
