// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two ends of messages: a bound VQP with memory, VQPs that send to it, and how
//! their requests end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{
    Access, Device, Listener, MemoryRegion, Message, RecvWr, SendWr, Vqp, VqpConfig, Wc, WcStatus,
};

use crate::world::{full_access, gid};
use weft_testkit::pace::patient;

/// Nothing here takes longer, on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A port that no other check has.
pub fn new_port() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A bound VQP on node 1, with memory.
pub struct Ear {
    pub device: Device,
    pub listener: Listener,
    pub memory: MemoryRegion,
    pub port: u32,
}

impl Ear {
    /// One with so many bytes, and room for so many receive buffers.
    pub fn new(bytes: usize, buffers: u32) -> Result<Self> {
        Self::on(new_port(), bytes, buffers, full_access())
    }

    /// The same on a port, with memory of this access.
    pub fn on(port: u32, bytes: usize, buffers: u32, access: Access) -> Result<Self> {
        let device = Device::open_on(1)?;
        let config = VqpConfig {
            max_send_wr: 16,
            max_recv_wr: buffers,
        };
        let listener = Vqp::create(&device, &config)?.bind(port)?;
        let memory = MemoryRegion::allocate(&device, bytes, access)?;
        Ok(Self {
            device,
            listener,
            memory,
            port,
        })
    }

    /// Posts `count` buffers of `len` bytes, one behind the other, with their numbers.
    pub fn post(&mut self, count: usize, len: usize) -> Result<()> {
        for n in 0..count {
            let at = n * len;
            let wr = RecvWr::new(self.memory.slice(at..at + len)?).wr_id(n as u64);
            ensure!(
                self.listener.post_recv(&[wr]) == 1,
                "buffer {n} was not taken"
            );
        }
        Ok(())
    }

    /// The next message, or buffer that has failed.
    pub fn next(&mut self) -> Result<Message> {
        let mut messages = [Message::default()];
        let count = self
            .listener
            .pop_msgs(&mut messages, 1, patient(PATIENCE))?;
        ensure!(count == 1, "no message within {PATIENCE:?}");
        Ok(messages[0])
    }

    /// There is none.
    pub fn is_quiet(&mut self) -> Result<()> {
        let mut messages = [Message::default()];
        let count = self.listener.pop_msgs(&mut messages, 0, Duration::ZERO)?;
        ensure!(count == 0, "it got {:?}", messages[0]);
        Ok(())
    }

    /// A VQP of node 0 that sends to it.
    pub fn sender(&self, device: &Device, max_send_wr: u32) -> Result<Vqp> {
        sender(device, self.port, max_send_wr, 0)
    }

    /// A new sender's message arrives, and nothing is wrong with it.
    pub fn works(&mut self, device: &Device) -> Result<()> {
        let local = MemoryRegion::allocate(device, 64, full_access())?;
        local.copy_in(0, b"does it work?")?;
        let wr = RecvWr::new(self.memory.slice(1..65)?).wr_id(99);
        ensure!(self.listener.post_recv(&[wr]) == 1, "it takes no buffer");
        let mut vqp = self.sender(device, 4)?;
        let moved = vqp.run(SendWr::send(local.slice(0..13)?))?;
        ensure!(moved == 13, "{moved} bytes were sent");
        let message = self.next()?;
        let mut bytes = [0; 13];
        self.memory.copy_out(1, &mut bytes)?;
        ensure!(
            (message.wr_id(), message.result()?, &bytes) == (99, 13, b"does it work?"),
            "it is {message:?}: {bytes:?}"
        );
        Ok(())
    }
}

/// A VQP whose messages go to a port of node 1.
pub fn sender(device: &Device, port: u32, max_send_wr: u32, max_recv_wr: u32) -> Result<Vqp> {
    let config = VqpConfig {
        max_send_wr,
        max_recv_wr,
    };
    let mut vqp = Vqp::create(device, &config)?;
    vqp.qconnect(gid(1), port)?;
    Ok(vqp)
}

/// Posts requests that all get room, and answers how they end, in order.
pub fn ends(vqp: &mut Vqp, wrs: &[SendWr<'_>]) -> Result<Vec<WcStatus>> {
    post(vqp, wrs)?;
    reap(vqp, wrs.len())
}

/// Posts requests that all get room.
pub fn post(vqp: &mut Vqp, wrs: &[SendWr<'_>]) -> Result<()> {
    let taken = vqp.post_send(wrs)?;
    ensure!(taken == wrs.len(), "{taken} of {} were taken", wrs.len());
    Ok(())
}

/// How the next `count` requests end.
pub fn reap(vqp: &mut Vqp, count: usize) -> Result<Vec<WcStatus>> {
    let mut statuses = Vec::new();
    for wc in reap_wcs(vqp, count)? {
        statuses.push(wc.status().context("an unknown status")?);
    }
    Ok(statuses)
}

/// The next `count` completions.
pub fn reap_wcs(vqp: &mut Vqp, count: usize) -> Result<Vec<Wc>> {
    let start = Instant::now();
    let mut reaped = Vec::new();
    while reaped.len() < count {
        let mut wcs = [Wc::default(); 16];
        let room = wcs.len().min(count - reaped.len());
        let completed = vqp
            .enter(&[], &mut wcs[..room], 1, patient(PATIENCE))?
            .completed;
        reaped.extend_from_slice(&wcs[..completed]);
        ensure!(
            start.elapsed() < patient(PATIENCE),
            "{} of {count} completions",
            reaped.len()
        );
    }
    Ok(reaped)
}

/// They ended as they should.
pub fn are(what: &str, got: &[WcStatus], wanted: &[WcStatus]) -> Result<()> {
    ensure!(got == wanted, "{what} ended with {got:?}, not {wanted:?}");
    Ok(())
}
