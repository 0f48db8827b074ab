// SPDX-License-Identifier: MIT OR Apache-2.0

//! A station of Weft: one bound VQP. A message lands in the receive buffer, and
//! the answer is sent from there, unless copying is asked for.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use weft_shim::{
    Access, Device, Error, Listener, MemoryRegion, Message, RecvWr, SendWr, Vqp, VqpConfig,
};

use super::{Reply, StationArgs};
use crate::nodes::Node;

/// Messages taken at a time.
const BATCH: usize = 32;
/// Answers on the way to one client.
const MAX_SEND_WR: u32 = 64;
/// Longest sleep.
const NAP: Duration = Duration::from_secs(1);

/// See the module.
pub struct Station {
    listener: Listener,
    buffers: MemoryRegion,
    /// Where messages are copied to.
    copy: Vec<u8>,
    args: StationArgs,
}

impl Station {
    /// Binds to the port and posts all buffers.
    pub fn bind(node: Node, args: StationArgs) -> Result<Self> {
        let device = Device::open_on(u32::from(node.0))?;
        let bytes = usize::try_from(u64::from(args.bytes) * u64::from(args.buffers))?;
        let buffers = MemoryRegion::allocate(&device, bytes, Access::LOCAL_WRITE)?;
        let config = VqpConfig {
            max_send_wr: MAX_SEND_WR,
            max_recv_wr: args.buffers,
        };
        let mut station = Self {
            listener: Vqp::create(&device, &config)?.bind(args.weft_port())?,
            buffers,
            copy: vec![0; args.bytes as usize],
            args,
        };
        for index in 0..station.args.buffers {
            station.post(u64::from(index))?;
        }
        Ok(station)
    }

    fn place(&self, index: u64) -> Range<usize> {
        let bytes = self.args.bytes as usize;
        // As many as buffers, which were allocated.
        let start = index as usize * bytes;
        start..start + bytes
    }

    fn post(&mut self, index: u64) -> Result<()> {
        let slice = self.buffers.slice(self.place(index))?;
        let posted = self.listener.post_recv(&[RecvWr::new(slice).wr_id(index)]);
        (posted == 1)
            .then_some(())
            .context("the ring has no place for a buffer that was in it")
    }

    /// Serves as long as the process lives.
    pub fn serve(&mut self) -> Result<()> {
        let spin = Duration::from_micros(self.args.spin_us);
        let mut messages = [Message::default(); BATCH];
        let mut last = Instant::now();
        loop {
            let look = last.elapsed() < spin;
            let (min, timeout) = if look { (0, Duration::ZERO) } else { (1, NAP) };
            let count = match self.listener.pop_msgs(&mut messages, min, timeout) {
                Err(Error::Interrupted) => 0,
                popped => popped?,
            };
            for message in &messages[..count] {
                self.take(message)?;
            }
            if count > 0 {
                last = Instant::now();
            }
        }
    }

    fn take(&mut self, message: &Message) -> Result<()> {
        let bytes = message.result().context("a receive buffer failed")? as usize;
        let start = self.place(message.wr_id()).start;
        if self.args.reply == Reply::CopyEcho {
            self.buffers.copy_out(start, &mut self.copy[..bytes])?;
        }
        if self.args.reply.answers() {
            let sender = message.sender().context("a sender cannot be reached")?;
            let answer = [SendWr::send(self.buffers.slice(start..start + bytes)?)];
            let vqp = self.listener.vqp(sender)?;
            while let Err(error) = vqp.post_send(&answer) {
                match error {
                    // What was answered before makes room.
                    Error::QueueFull | Error::Interrupted => {}
                    // One that has left waits for no answer.
                    _ => {
                        self.listener.forget(sender);
                        break;
                    }
                }
            }
        }
        // It goes to the end of the ring: an answer that is still being sent is
        // sent before the buffer's turn comes.
        self.post(message.wr_id())
    }
}
