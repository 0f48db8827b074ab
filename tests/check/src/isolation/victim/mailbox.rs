// SPDX-License-Identifier: MIT OR Apache-2.0

//! The victim's messages: a port that anybody may send to, senders of its own on
//! both nodes, answers to them; and a port that it posts no buffers to.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{RecvWr, Sge, Wc, WcStatus, ACCESS_LOCAL_WRITE, WC_RECV};

use super::super::users::with_reserve;
use crate::raw::{buffer, message, Memory, Queue, Said, Session};
use crate::rng::Rng;
use crate::world::gid;
use weft_testkit::pace::patient;

pub const PORT: u32 = 4711;
pub const DEAF_PORT: u32 = 4712;
/// Bytes of a receive buffer.
pub const BUFFER: usize = 256;
/// From one buffer to the next. What lies between is nobody's.
const SPACE: usize = 2 * BUFFER;
const BUFFERS: usize = 32;
/// A message is this and a number.
const SECRET: usize = 16;
const TEXT: usize = SECRET + 8;
/// A message of its own that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at the sender.
const GLANCE_NS: u64 = 20_000_000;
/// Times that others may take a sender's place in the list before it is accepted.
const REFUSALS: usize = 20;

type Text = [u8; TEXT];

/// Buffers with something around them.
struct Buffers {
    memory: Memory,
    model: u8,
    lkey: u32,
}

impl Buffers {
    fn new(session: &Session, rng: &mut Rng) -> Result<Self> {
        let (memory, model) = (Memory::map(BUFFERS * SPACE)?, rng.next() as u8);
        memory.fill(0, &[model; BUFFERS * SPACE]);
        let len = (BUFFERS * SPACE) as u64;
        let lkey = session.register(&memory, 0, len, ACCESS_LOCAL_WRITE)?.lkey;
        Ok(Self {
            memory,
            model,
            lkey,
        })
    }

    fn get(&self, index: usize) -> RecvWr {
        let local = Sge {
            addr: self.memory.addr() + (index * SPACE) as u64,
            len: BUFFER as u32,
            lkey: self.lkey,
        };
        buffer(index as u64, local)
    }

    /// Whether this completion is of a message that says `text`.
    fn says(&self, wc: &Wc, text: &Text) -> bool {
        let at = wc.wr_id as usize * SPACE;
        wc.status == 0 && wc.byte_len as usize == TEXT && self.memory.bytes(at, TEXT) == text
    }

    fn look(&self) -> Result<()> {
        let behind = |index: usize| self.memory.bytes(index * SPACE + BUFFER, SPACE - BUFFER);
        let kept = (0..BUFFERS).all(|index| behind(index).iter().all(|byte| *byte == self.model));
        ensure!(kept, "what lies between receive buffers has changed");
        Ok(())
    }
}

/// Somebody whose messages the victim waits for.
struct Sender {
    session: Session,
    queue: Queue,
    buffers: Buffers,
}

impl Sender {
    fn new(node: usize, rng: &mut Rng) -> Result<Self> {
        let session = with_reserve(|| Session::open(node as u32))?;
        let queue = session.queue(4, 4).context("a sender")?;
        session.qconnect_port(queue.vqp, gid(0), PORT)?;
        Ok(Self {
            buffers: Buffers::new(&session, rng)?,
            session,
            queue,
        })
    }
}

/// All of it.
pub(super) struct Mailbox {
    session: Session,
    inbox: Queue,
    buffers: Buffers,
    _deaf: Queue,
    senders: [Option<Sender>; 2],
    rng: Rng,
    secret: Vec<u8>,
    count: u64,
    /// By which it knows its sender on the other node.
    pub(super) src: u32,
}

impl Mailbox {
    pub(super) fn new(seed: u64) -> Result<Self> {
        let mut rng = Rng::new(!seed);
        let session = Session::open(0)?;
        let inbox = session.queue(4, BUFFERS as u32)?;
        let buffers = Buffers::new(&session, &mut rng)?;
        session.qbind(inbox.vqp, PORT)?;
        let deaf = session.queue(4, 4)?;
        session.qbind(deaf.vqp, DEAF_PORT)?;
        for index in 0..BUFFERS {
            inbox.post_recv(&buffers.get(index));
        }
        let mut this = Self {
            session,
            inbox,
            buffers,
            _deaf: deaf,
            senders: [None, None],
            secret: rng.bytes(SECRET),
            rng,
            count: 0,
            src: 0,
        };
        this.round()?;
        Ok(this)
    }

    /// A message from each sender and an answer to it; one from a new sender.
    pub(super) fn round(&mut self) -> Result<()> {
        for node in 0..self.senders.len() {
            let kept = self.senders[node].take();
            let sender = kept.map_or_else(|| Sender::new(node, &mut self.rng), Ok)?;
            let talked = self.talk(&sender);
            talked.with_context(|| format!("messages from node {node}"))?;
            sender.buffers.look()?;
            // After an error the next one is new.
            self.senders[node] = Some(sender);
        }
        let new = Sender::new(0, &mut self.rng)?;
        self.deliver(&new).context("a message of a new sender")?;
        self.buffers.look()
    }

    fn text(&mut self) -> Text {
        self.count += 1;
        let mut text = [0; TEXT];
        text[..SECRET].copy_from_slice(&self.secret);
        text[SECRET..].copy_from_slice(&self.count.to_le_bytes());
        text
    }

    /// There and back.
    fn talk(&mut self, sender: &Sender) -> Result<()> {
        sender.queue.post_recv(&sender.buffers.get(0));
        let made = self.accept(sender)?;
        let queue = Queue::map(&self.session, &made)?;
        let text = self.text();
        let status = queue.outcome(&self.session, message(&text))?;
        ensure!(status == WcStatus::Success, "an answer ended: {status:?}");
        self.session.destroy_vqp(queue.vqp)?;
        let wc = sender.queue.next(&sender.session)?;
        let answered = wc.opcode == WC_RECV && sender.buffers.says(&wc, &text);
        ensure!(answered, "instead of the answer came {wc:?}");
        Ok(())
    }

    /// A VQP to a sender. Others may push it out of the list of senders between its
    /// message and this; then its next message counts.
    fn accept(&mut self, sender: &Sender) -> Result<Said> {
        for _ in 0..REFUSALS {
            self.src = self.deliver(sender)?.src;
            match self.session.accept(self.inbox.vqp, self.src, 4) {
                Err(Errno::ENOENT) => {}
                made => return made.context("accepting it"),
            }
        }
        anyhow::bail!("{REFUSALS} times it was not known any more when it was accepted")
    }

    /// Sends a message and waits for it.
    fn deliver(&mut self, from: &Sender) -> Result<Wc> {
        let text = self.text();
        let submitted = from
            .queue
            .enter(&from.session, &[message(&text)], &mut [], 0, 0)?;
        ensure!(submitted.0 == 1, "its own message was not taken");
        let deadline = Instant::now() + patient(PATIENCE);
        let (mut heard, mut sent) = (None, false);
        loop {
            heard = heard.or(self.hear(&text)?);
            let mut wcs = [weft_core::uapi::Pod::zeroed()];
            if from.queue.take(&mut wcs) == 1 {
                let status = WcStatus::from_number(wcs[0].status.into());
                ensure!(wcs[0].status == 0, "its own message ended: {status:?}");
                sent = true;
            }
            match heard {
                Some(wc) if sent => return Ok(wc),
                _ => ensure!(Instant::now() < deadline, "its own message is lost"),
            }
        }
    }

    /// Takes what has come, posts the buffers again, and looks for `text`.
    fn hear(&self, text: &Text) -> Result<Option<Wc>> {
        self.session.enter(self.inbox.vqp, 0, 1, GLANCE_NS)?;
        let mut wcs = [weft_core::uapi::Pod::zeroed(); BUFFERS];
        let count = self.inbox.take(&mut wcs);
        let mut found = None;
        for wc in &wcs[..count] {
            ensure!((wc.wr_id as usize) < BUFFERS, "no buffer is {wc:?}");
            if self.buffers.says(wc, text) {
                found = Some(*wc);
            }
            self.inbox.post_recv(&self.buffers.get(wc.wr_id as usize));
        }
        Ok(found)
    }
}
