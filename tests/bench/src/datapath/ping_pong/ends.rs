// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ends of a ping-pong of WRITEs, of verbs and of Weft. Each has memory in two
//! halves: what it WRITEs is in the first, what the other WRITEs arrives in the
//! second.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Vqp, VqpConfig};
use weft_verbs::{Batch, Endpoint, InitQp, Op};

use super::End;
use crate::cli::Transport;
use crate::nodes::Node;
use crate::peer::Region;
use crate::verbs::{Link, Stack};
use crate::weft::WeftLink;

const WORD: usize = size_of::<u64>();
/// What halves are aligned to.
const ALIGNMENT: usize = 64;
/// Requests outstanding.
const MAX_SEND_WR: u32 = 4;

/// Where a half's last byte is.
#[derive(Clone, Copy)]
struct Last {
    /// Of the word that it is in, from the start of memory.
    word: usize,
    byte: usize,
}

impl Last {
    fn of(half: usize, bytes: u32) -> Self {
        let at = half * half_bytes(bytes) + (bytes as usize).max(1) - 1;
        Self {
            word: at / WORD,
            byte: at % WORD,
        }
    }

    fn get(self, word: u64) -> u8 {
        word.to_ne_bytes()[self.byte]
    }

    fn put(self, word: u64, mark: u8) -> u64 {
        let mut bytes = word.to_ne_bytes();
        bytes[self.byte] = mark;
        u64::from_ne_bytes(bytes)
    }
}

fn half_bytes(bytes: u32) -> usize {
    (bytes as usize).next_multiple_of(ALIGNMENT)
}

/// The second half of another's memory.
fn arrivals(of: Region, bytes: u32) -> Region {
    Region {
        addr: of.addr + half_bytes(bytes) as u64,
        ..of
    }
}

/// An end of verbs that has no peer yet.
pub struct VerbsHalf {
    stack: Arc<Stack>,
    qp: InitQp,
    bytes: u32,
}

impl VerbsHalf {
    /// Makes it on a node, in whose network namespace the process is.
    pub fn new(node: Node, bytes: u32) -> Result<Self> {
        let context = node.open()?;
        let local = node.local_gid(&context)?;
        let stack = Stack::with(&context, 2 * half_bytes(bytes), MAX_SEND_WR)?;
        let qp = stack.new_qp(local)?;
        Ok(Self { stack, qp, bytes })
    }

    /// Its queue pair's address.
    pub fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Its memory.
    pub fn region(&self) -> Region {
        self.stack.region()
    }

    /// Connects it to the other end's queue pair and memory.
    pub fn connect(self, peer: &Endpoint, memory: Region) -> Result<VerbsEnd> {
        let link = Link::over(
            self.qp.connect(peer)?,
            self.stack,
            arrivals(memory, self.bytes),
        );
        Ok(VerbsEnd {
            request: Batch::new(&[link.request(Op::Write, self.bytes, 0)]),
            link,
            out: Last::of(0, self.bytes),
            into: Last::of(1, self.bytes),
        })
    }
}

/// An end of verbs, connected.
pub struct VerbsEnd {
    link: Link,
    /// Made beforehand.
    request: Batch,
    out: Last,
    into: Last,
}

impl VerbsEnd {
    /// The path MTU of its queue pair.
    pub fn path_mtu(&self) -> Result<u32> {
        Ok(self.link.path_mtu()?.bytes())
    }
}

impl End for VerbsEnd {
    fn arrived(&self) -> Result<u8> {
        let word = &self.link.stack().memory().words()[self.into.word];
        Ok(self.into.get(word.load(Ordering::Acquire)))
    }

    fn write(&mut self, mark: u8) -> Result<()> {
        let word = &self.link.stack().memory().words()[self.out.word];
        let marked = self.out.put(word.load(Ordering::Relaxed), mark);
        word.store(marked, Ordering::Release);
        self.link.run_batch(&self.request)
    }
}

/// An end of Weft that has no peer yet: a session with memory.
pub struct WeftHalf {
    device: Device,
    memory: MemoryRegion,
    bytes: u32,
}

impl WeftHalf {
    /// Makes it on a node.
    pub fn new(node: Node, bytes: u32) -> Result<Self> {
        let device = Device::open_on(u32::from(node.0)).context("cannot use Weft")?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = MemoryRegion::allocate(&device, 2 * half_bytes(bytes), access)?;
        Ok(Self {
            device,
            memory,
            bytes,
        })
    }

    /// Its memory.
    pub fn region(&self) -> Region {
        self.memory.remote().into()
    }

    /// Connects it to the other end's node and memory, over a transport.
    pub fn connect(self, to: Node, memory: Region, transport: Transport) -> Result<WeftEnd> {
        let config = VqpConfig {
            max_send_wr: MAX_SEND_WR,
            ..VqpConfig::default()
        };
        let mut vqp = Vqp::create(&self.device, &config)?;
        vqp.qconnect(to.gid(), 0)
            .with_context(|| format!("cannot connect to node {}", to.0))?;
        let mut link = WeftLink {
            vqp,
            memory: self.memory,
            remote: arrivals(memory, self.bytes).into(),
        };
        link.expect(transport)?;
        Ok(WeftEnd {
            link,
            bytes: self.bytes as usize,
            out: Last::of(0, self.bytes),
            into: Last::of(1, self.bytes),
        })
    }
}

/// An end of Weft, connected.
pub struct WeftEnd {
    link: WeftLink,
    bytes: usize,
    out: Last,
    into: Last,
}

impl End for WeftEnd {
    fn arrived(&self) -> Result<u8> {
        Ok(self
            .into
            .get(self.link.memory.load_u64(self.into.word * WORD)?))
    }

    fn write(&mut self, mark: u8) -> Result<()> {
        let WeftLink {
            vqp,
            memory,
            remote,
        } = &mut self.link;
        let at = self.out.word * WORD;
        memory.store_u64(at, self.out.put(memory.load_u64(at)?, mark))?;
        vqp.write(memory.slice(0..self.bytes)?, *remote)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_of_each_half_is_its_own() {
        for bytes in [1, 7, 8, 9, 64, 65, 4096] {
            let (out, into) = (Last::of(0, bytes), Last::of(1, bytes));
            assert_eq!(out.word * WORD + out.byte, bytes as usize - 1);
            let start = half_bytes(bytes);
            assert_eq!(into.word * WORD + into.byte, start + bytes as usize - 1);
            assert!(into.word > out.word);
            assert_eq!(out.get(out.put(u64::MAX, 3)), 3);
        }
    }
}
