// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of random lengths, one at a time, each of which has to arrive once, whole, and in
//! its turn.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_core::dc::MAX_CHUNK_BYTES;
use weft_shim::{Device, MemoryRegion, Message, RecvWr, SendWr, Sender, Vqp, VqpConfig, Wc};
use weft_testkit::pace::patient;

use crate::rng::Rng;
use crate::two_sided::Ear;
use crate::world::{full_access, gid};

/// The port that they go to, and the node that it is at.
pub const PORT: u32 = 900;
pub const NODE: u32 = 1;
/// Bytes of a receive buffer: several chunks.
const BUFFER: usize = 12 << 10;
/// Receive buffers. A message that never ends holds one for as long as its stream lives.
const BUFFERS: u32 = 768;
/// A message's first bytes: a number that nobody else knows, and which of the messages it is.
const HEAD: usize = 16;
/// Messages that are taken at a time.
const BATCH: usize = 64;
/// A message that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a look at the two ends takes at most.
const GLANCE: Duration = Duration::from_millis(2);

/// Messages of others that the port got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Others {
    /// Those that are whole; of these, those of more than one chunk.
    pub whole: u64,
    pub of_several_chunks: u64,
    /// Those that ended with an error.
    pub failed: u64,
}

/// Sends itself messages from node 0 to a port of node 1, and looks whether each arrives
/// once, whole, and in its turn.
pub struct Messenger {
    vqp: Vqp,
    local: MemoryRegion,
    ear: Ear,
    /// Begins each of its messages.
    secret: u64,
    /// The message that is on its way.
    number: u64,
    content: Vec<u8>,
    /// The sender of the last one, as the port's owner sees it.
    sender: Option<Sender>,
    pub others: Others,
    rng: Rng,
}

impl Messenger {
    /// Two ends.
    pub fn new(seed: u64) -> Result<Self> {
        let device = Device::open_on(0)?;
        let mut ear = Ear::on(PORT, BUFFERS as usize * BUFFER, BUFFERS, full_access())?;
        ear.post(BUFFERS as usize, BUFFER)?;
        let mut rng = Rng::new(seed);
        Ok(Self {
            vqp: connect(&device)?,
            local: MemoryRegion::allocate(&device, BUFFER, full_access())?,
            ear,
            secret: rng.next(),
            number: 0,
            content: Vec::new(),
            sender: None,
            others: Others::default(),
            rng,
        })
    }

    /// One message.
    pub fn round(&mut self) -> Result<()> {
        let len = HEAD + self.rng.below(BUFFER - HEAD + 1);
        self.content = self.rng.bytes(len);
        self.content[..8].copy_from_slice(&self.secret.to_ne_bytes());
        self.content[8..HEAD].copy_from_slice(&self.number.to_ne_bytes());
        self.local.copy_in(0, &self.content)?;
        let deadline = Instant::now() + patient(PATIENCE);
        let (mut taken, mut sent, mut arrived) = (false, false, false);
        while !(sent && arrived) {
            let wr = SendWr::send(self.local.slice(0..len)?).signaled();
            let mut wcs = [Wc::default()];
            let wrs = if taken { &[][..] } else { &[wr][..] };
            let wait = usize::from(!sent);
            let progress = self.vqp.enter(wrs, &mut wcs, wait, GLANCE)?;
            taken |= progress.submitted == 1;
            if progress.completed == 1 {
                let moved = wcs[0].result().context("a message was not sent")?;
                ensure!(moved as usize == len, "{moved} bytes of {len} were sent");
                sent = true;
            }
            arrived |= self.receive()?;
            ensure!(
                Instant::now() < deadline,
                "message {} is lost; taken: {taken}, sent: {sent}, arrived: {arrived}",
                self.number
            );
        }
        self.number += 1;
        Ok(())
    }

    /// Takes what has come; answers whether the message was among it.
    fn receive(&mut self) -> Result<bool> {
        let mut messages = [Message::default(); BATCH];
        let count = self
            .ear
            .listener
            .pop_msgs(&mut messages, 0, Duration::ZERO)?;
        let mut arrived = false;
        for message in &messages[..count] {
            arrived |= self.is_own(message)?;
            let at = message.wr_id() as usize * BUFFER;
            let buffer = RecvWr::new(self.ear.memory.slice(at..at + BUFFER)?);
            let posted = self
                .ear
                .listener
                .post_recv(&[buffer.wr_id(message.wr_id())]);
            ensure!(posted == 1, "buffer {} was not taken back", message.wr_id());
        }
        Ok(arrived)
    }

    /// Whether it is the message that is on its way. An attacker may send the bytes of one
    /// that it captured, whole or changed: but that has another sender.
    fn is_own(&mut self, message: &Message) -> Result<bool> {
        let Ok(len) = message.result() else {
            self.others.failed += 1;
            return Ok(false);
        };
        let mut bytes = vec![0; len as usize];
        let at = message.wr_id() as usize * BUFFER;
        self.ear.memory.copy_out(at, &mut bytes)?;
        if bytes == self.content {
            self.sender = message.sender();
            return Ok(true);
        }
        let is_senders = self.sender.is_some() && message.sender() == self.sender;
        let word = |at| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        ensure!(
            !is_senders || word(0) != Some(self.secret),
            "message {} of {} bytes: {len} bytes came, as those of message {:?}",
            self.number,
            self.content.len(),
            word(8)
        );
        self.others.whole += 1;
        self.others.of_several_chunks += u64::from(len > MAX_CHUNK_BYTES);
        Ok(false)
    }
}

fn connect(device: &Device) -> Result<Vqp> {
    let mut vqp = Vqp::create(device, &VqpConfig::default())?;
    vqp.qconnect(gid(1), PORT)?;
    Ok(vqp)
}
