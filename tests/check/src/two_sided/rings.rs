// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nonsense in the receive ring of a bound VQP, while messages arrive: its own
//! messages may be lost, and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{anyhow, ensure, Result};
use weft_core::uapi::{Pod, RecvWr, Sge, Wc};
use weft_shim::{Device, Payload, SendWr, Wc as Completion};

use super::ends::{new_port, sender, Ear, PATIENCE};
use crate::raw::{buffer, Field, Memory, Queue, Session};
use crate::rng::Rng;
use weft_testkit::pace::patient;

const BUFFERS: u32 = 16;
const NONSENSE: [u32; 7] = [1, 15, 17, 1 << 16, 1 << 31, u32::MAX - 1, u32::MAX];

/// A bound VQP whose rings are open to all.
struct Fool {
    _session: Session,
    memory: Memory,
    queue: Queue,
    lkey: u32,
    port: u32,
}

impl Fool {
    fn new() -> Result<Self> {
        let session = Session::open(1)?;
        let memory = Memory::map(8192)?;
        memory.fill(0, &[0xee; 8192]);
        let queue = session.queue(4, BUFFERS)?;
        let port = new_port();
        session.qbind(queue.vqp, port)?;
        Ok(Self {
            lkey: session.register(&memory, 0, 4096, 1)?.lkey,
            _session: session,
            memory,
            queue,
            port,
        })
    }

    fn buffer(&self) -> RecvWr {
        let local = Sge {
            addr: self.memory.addr(),
            len: 64,
            lkey: self.lkey,
        };
        buffer(5, local)
    }

    /// Bytes outside of the region are as they were.
    fn is_contained(&self) -> Result<()> {
        let beyond = self.memory.bytes(4096, 4096);
        ensure!(
            beyond.iter().all(|byte| *byte == 0xee),
            "bytes outside of the region have changed"
        );
        Ok(())
    }
}

/// Sends to it until it has had so many; whatever becomes of them, they end.
fn pester(device: &Device, port: u32, times: usize) -> Result<usize> {
    let mut arrived = 0;
    for _ in 0..times {
        let mut vqp = sender(device, port, 4, 0)?;
        let wr = SendWr::send(Payload::inline(b"hello")?).signaled();
        let mut wcs = [Completion::default()];
        let done = vqp.enter(&[wr], &mut wcs, 1, patient(PATIENCE))?.completed;
        ensure!(done == 1, "a message to nonsense did not end");
        arrived += usize::from(wcs[0].result().is_ok());
    }
    Ok(arrived)
}

/// Indices that cannot be.
pub fn indices() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut bystander = Ear::new(4096, 4)?;
    thread::scope(|scope| {
        let mut running = Vec::new();
        // At once, because a receiver without buffers is waited for.
        for value in NONSENSE {
            let device = &device;
            running.push(scope.spawn(move || -> Result<()> {
                let fool = Fool::new()?;
                fool.queue.post_recv(&fool.buffer());
                for field in [Field::RqTail, Field::RqHead, Field::CqHead] {
                    fool.queue.index(field).store(value, Ordering::Release);
                }
                pester(device, fool.port, 1)?;
                fool.is_contained()
            }));
        }
        for thread in running {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        bystander.works(&device)
    })
}

/// Entries and indices that change all the while.
pub fn rewriting(seed: u64) -> Result<()> {
    let device = Device::open_on(0)?;
    let mut bystander = Ear::new(4096, 4)?;
    let fool = Fool::new()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let rewriter = scope.spawn(|| {
            let mut rng = Rng::new(seed);
            let mut wcs = [Wc::zeroed(); 16];
            while !stop.load(Ordering::Relaxed) {
                fool.queue.take(&mut wcs);
                fool.queue.post_recv(&fool.buffer());
                rewrite(&fool, &mut rng);
                thread::yield_now();
            }
        });
        let arrived = pester(&device, fool.port, 300);
        stop.store(true, Ordering::Relaxed);
        rewriter.join().map_err(|_| anyhow!("it panicked"))?;
        let arrived = arrived?;
        println!("# {arrived} of 300 messages arrived");
        ensure!(arrived > 0, "no message met a buffer");
        fool.is_contained()?;
        bystander.works(&device)
    })
}

/// Flips a bit of an entry for a moment.
fn rewrite(fool: &Fool, rng: &mut Rng) {
    let place = rng.below(fool.queue.said.rq_entries as usize);
    let word = 8 * rng.below(size_of::<RecvWr>() / 8);
    let at = fool.queue.said.rq_offset as usize + place * size_of::<RecvWr>() + word;
    let cell = fool.queue.rings.word(at);
    let bit = 1 << rng.below(64);
    cell.fetch_xor(bit, Ordering::Relaxed);
    thread::yield_now();
    cell.fetch_xor(bit, Ordering::Relaxed);
}
