// SPDX-License-Identifier: GPL-2.0

//! What nodes write to each other: offers of RC queue pairs, and their answers;
//! which regions go, and who does not use them any more.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::{Arc, SpinLock};
use weft_core::gid::Gid;
use weft_core::mr::Notice;
use weft_core::rc::{Hello, Role};

use super::Node;
use crate::clock::now_ns;
use crate::dc::{Letter, Reader};
use crate::peer::{Peer, NODE_USER};
use crate::rc::{Exchange, HelloBytes, NoticeBytes};
use crate::sync::{new_event_count, EventCount};
use crate::text::Shown;
use crate::vqp::Sender;

/// How long a peer may take to answer: a letter each way, and the making of a queue
/// pair in between.
const PATIENCE_NS: u64 = 2_000_000_000;
/// How often it is looked whether the node goes meanwhile.
const NAP_NS: u64 = 50_000_000;
/// The DC initiator that letters go by.
const INITIATOR: usize = 0;

/// The answer to the offer that is on its way; a node makes one at a time.
#[pin_data]
pub(super) struct Answers {
    #[pin]
    last: SpinLock<Option<HelloBytes>>,
    #[pin]
    count: EventCount,
}

impl Answers {
    /// None yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            last <- kernel::new_spinlock!(None, "weft_answers"),
            count <- new_event_count!("weft_answer_count"),
        })
    }

    /// Takes the answer with this token out, if it is there.
    fn take(&self, token: u64) -> Option<HelloBytes> {
        let mut last = self.last.lock();
        let is_it = |bytes: &mut HelloBytes| {
            Hello::decode(&*bytes).is_some_and(|hello| hello.token == token)
        };
        last.take_if(is_it)
    }
}

impl Exchange for Node {
    fn exchange(&self, to: &Gid, offer: &HelloBytes) -> Result<HelloBytes> {
        let token = Hello::decode(offer).ok_or(EINVAL)?.token;
        *self.answers.last.lock() = None;
        self.find_peer(to)?
            .stream(NODE_USER, INITIATOR)?
            .post_letter(offer)?;
        let start_ns = now_ns();
        loop {
            let seen = self.answers.count.seen();
            if let Some(answer) = self.answers.take(token) {
                return Ok(answer);
            }
            if !self.alive.load(Ordering::SeqCst) {
                return Err(ENODEV);
            }
            if now_ns().saturating_sub(start_ns) >= PATIENCE_NS {
                return Err(ETIMEDOUT);
            }
            self.answers.count.wait(seen, NAP_NS, false);
        }
    }

    fn tell(&self, to: &Gid, letter: &NoticeBytes) -> Result {
        self.find_peer(to)?
            .stream(NODE_USER, INITIATOR)?
            .post_letter(letter)
    }
}

impl Node {
    /// Who wrote a letter.
    fn writer(&self, letter: &Letter) -> Result<Arc<Peer>> {
        self.peer_of(&Sender {
            from: letter.from,
            node: letter.node,
            flow: 0,
        })
    }

    /// Answers a peer's offer of an RC queue pair. May sleep.
    fn answer(&self, letter: &Letter) -> Result {
        let peer = self.writer(letter)?;
        let answer = self.accept_rc(letter.text())?;
        peer.stream(NODE_USER, INITIATOR)?.post_letter(&answer)
    }

    /// Reads of regions that go, or are used no more.
    fn on_notice(&self, letter: &Letter, notice: &Notice) -> Result {
        match self.rc.hear(notice) {
            Some(answer) => self
                .writer(letter)?
                .stream(NODE_USER, INITIATOR)?
                .post_letter(&answer.encode()),
            None => Ok(()),
        }
    }
}

impl Reader for Node {
    fn read(&self, letter: &Letter) {
        if let Some(notice) = Notice::decode(letter.text()) {
            if let Err(error) = self.on_notice(letter, &notice) {
                pr_debug!("no answer about a region: {error:?}\n");
            }
            return;
        }
        // A letter that says nothing that we know is a later version's.
        let Some(hello) = Hello::decode(letter.text()) else {
            return;
        };
        match hello.role {
            Role::Offer => {
                if let Err(error) = self.answer(letter) {
                    pr_debug!("{}: no RC: {error:?}\n", Shown(hello.gid));
                }
            }
            Role::Answer => {
                *self.answers.last.lock() = letter.text().try_into().ok();
                self.answers.count.notify();
            }
        }
    }
}
