// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every size, from and to several uneven pieces at odd offsets.

use std::ops::Range;

use anyhow::{ensure, Context, Result};
use weft_shim::{
    Device, LocalSlice, MemoryRegion, Opcode, Payload, RecvWr, SendWr, Sges, Vqp, MAX_INLINE,
    MAX_RECV_SGE, MAX_SGE,
};

use super::ends::{Ear, PATIENCE};
use crate::rng::Rng;
use crate::world::{full_access, Link};

const LONGEST: usize = 1 << 20;
const ROOM: usize = LONGEST + (4 << 10);
/// Around what fits into a packet, a chunk and a page.
const EDGES: [usize; 12] = [
    1399,
    1472,
    4095,
    4096,
    4097,
    8191,
    8193,
    65_535,
    65_537,
    1 << 18,
    LONGEST - 1,
    LONGEST,
];
/// Bytes around the pieces that are looked at too.
const MARGIN: usize = 64;

/// Cuts `len` bytes into pieces that lie apart; some may have no bytes.
fn pieces(rng: &mut Rng, len: usize, count: usize) -> Vec<Range<usize>> {
    let mut cuts: Vec<usize> = (1..count).map(|_| rng.below(len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    let mut at = MARGIN + rng.below(97);
    let mut pieces = Vec::new();
    for cut in cuts.windows(2) {
        at += rng.below(61);
        pieces.push(at..at + cut[1] - cut[0]);
        at += cut[1] - cut[0];
    }
    pieces
}

fn slices<'a>(region: &'a MemoryRegion, pieces: &[Range<usize>]) -> Result<Vec<LocalSlice<'a>>> {
    let slices = pieces.iter().map(|piece| Ok(region.slice(piece.clone())?));
    slices.collect()
}

/// What memory should be: bytes that were put into pieces of it.
struct Model {
    bytes: Vec<u8>,
}

impl Model {
    fn fill(region: &MemoryRegion, rng: &mut Rng) -> Result<Self> {
        let bytes = rng.bytes(ROOM);
        region.copy_in(0, &bytes)?;
        Ok(Self { bytes })
    }

    fn put(&mut self, pieces: &[Range<usize>], mut bytes: &[u8]) {
        for piece in pieces {
            let len = piece.len().min(bytes.len());
            self.bytes[piece.start..piece.start + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
        }
    }

    fn get(&self, pieces: &[Range<usize>]) -> Vec<u8> {
        pieces
            .iter()
            .flat_map(|p| self.bytes[p.clone()].iter().copied())
            .collect()
    }

    /// The region has just that, in the pieces and around them.
    fn holds(&self, region: &MemoryRegion, pieces: &[Range<usize>]) -> Result<()> {
        let start = pieces.first().map_or(0, |piece| piece.start - MARGIN);
        let end = pieces.last().map_or(ROOM, |piece| piece.end + MARGIN);
        let mut bytes = vec![0; end - start];
        region.copy_out(start, &mut bytes)?;
        let wrong = bytes
            .iter()
            .zip(&self.bytes[start..])
            .position(|(a, b)| a != b);
        ensure!(
            wrong.is_none(),
            "byte {:?} is wrong; pieces {pieces:?}",
            wrong.map(|at| at + start)
        );
        Ok(())
    }
}

/// Both ends, and what their memory should be.
struct Stage {
    vqp: Vqp,
    local: MemoryRegion,
    near: Model,
    ear: Ear,
    far: Model,
    rng: Rng,
}

impl Stage {
    fn new(seed: u64) -> Result<Self> {
        let device = Device::open_on(0)?;
        let mut rng = Rng::new(seed);
        let ear = Ear::new(ROOM, 16)?;
        let local = MemoryRegion::allocate(&device, ROOM, full_access())?;
        Ok(Self {
            vqp: ear.sender(&device, 16)?,
            near: Model::fill(&local, &mut rng)?,
            far: Model::fill(&ear.memory, &mut rng)?,
            local,
            ear,
            rng,
        })
    }

    /// Sends one message, of several pieces or inline, with or without immediate.
    fn send(&mut self, len: usize) -> Result<()> {
        let rng = &mut self.rng;
        let count = 1 + rng.below(MAX_SGE);
        let from = pieces(rng, len, count);
        // A buffer may be longer than its message.
        let room = (len + rng.below(3) * 17).min(LONGEST);
        let count = 1 + rng.below(MAX_RECV_SGE);
        let into = pieces(rng, room, count);
        let sent = self.near.get(&from);
        let payload = if len <= MAX_INLINE as usize && rng.below(2) == 0 {
            Payload::inline(&sent)?
        } else {
            Sges::new(&slices(&self.local, &from)?)?.into()
        };
        let imm = (rng.below(2) == 0).then(|| rng.next() as u32);
        let wr = match imm {
            Some(imm) => SendWr::send_with_imm(payload, imm),
            None => SendWr::send(payload),
        };
        let buffer = RecvWr::scattered(&slices(&self.ear.memory, &into)?)?.wr_id(rng.next());
        ensure!(self.ear.listener.post_recv(&[buffer]) == 1, "no room");
        let moved = self.vqp.run(wr)?;
        let message = self.ear.next()?;
        ensure!(
            (moved as usize, message.result()? as usize) == (len, len),
            "{moved} sent, {message:?}"
        );
        ensure!(message.imm() == imm, "{:?}, not {imm:?}", message.imm());
        let opcode = message.wc().opcode();
        ensure!(opcode == Some(Opcode::Recv), "it is a {opcode:?}");
        self.far.put(&into, &sent);
        self.far.holds(&self.ear.memory, &into)
    }
}

/// Messages of every size up to 300 bytes, around all edges, and of random ones.
pub fn messages(seed: u64, small: usize, random: usize) -> Result<()> {
    let mut stage = Stage::new(seed)?;
    let mut lens: Vec<usize> = (0..small).chain(EDGES).collect();
    lens.extend((0..random).map(|n| stage.rng.below(LONGEST >> (n % 8))));
    for len in lens {
        stage.send(len).with_context(|| format!("{len} bytes"))?;
    }
    stage.far.holds(&stage.ear.memory, &[])?;
    stage.ear.is_quiet()
}

/// WRITEs that gather, inline or not, and READs that scatter.
pub fn one_sided(seed: u64, random: usize) -> Result<()> {
    let mut link = Link::new(1, ROOM, 16)?;
    let mut rng = Rng::new(seed);
    let mut near = Model::fill(&link.local, &mut rng)?;
    let mut far = Model::fill(&link.remote, &mut rng)?;
    let mut lens: Vec<usize> = (0..100).chain(EDGES).collect();
    lens.extend((0..random).map(|n| rng.below(LONGEST >> (n % 8))));
    for len in lens {
        let mut count = 1 + rng.below(MAX_SGE);
        let from = pieces(&mut rng, len, count);
        let there = pieces(&mut rng, len, 1);
        let remote = link.remote.remote().offset(there[0].start as u64);
        let sent = near.get(&from);
        let payload = if len <= MAX_INLINE as usize && rng.below(2) == 0 {
            Payload::inline(&sent)?
        } else {
            Sges::new(&slices(&link.local, &from)?)?.into()
        };
        let moved = link.vqp.run(SendWr::write(payload, remote))?;
        ensure!(moved as usize == len, "a WRITE of {len} moved {moved}");
        far.put(&there, &sent);
        far.holds(&link.remote, &there)
            .with_context(|| format!("WRITE of {len}"))?;

        count = 1 + rng.below(MAX_SGE);
        let back = pieces(&mut rng, len, count);
        let sges = Sges::new(&slices(&link.local, &back)?)?;
        let moved = link.vqp.run(SendWr::read(sges, remote))?;
        ensure!(moved as usize == len, "a READ of {len} moved {moved}");
        near.put(&back, &sent);
        near.holds(&link.local, &back)
            .with_context(|| format!("READ of {len}"))?;
    }
    Ok(())
}

/// A buffer without bytes takes messages without bytes.
pub fn empty_buffers() -> Result<()> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(4096, 16)?;
    let mut vqp = ear.sender(&device, 16)?;
    for imm in 0..8 {
        ensure!(ear.listener.post_recv(&[RecvWr::empty()]) == 1, "no room");
        let (wr, wanted) = if imm % 2 == 0 {
            (SendWr::send(Sges::EMPTY), None)
        } else {
            (SendWr::send_with_imm(Sges::EMPTY, imm), Some(imm))
        };
        vqp.run(wr)?;
        let message = ear.next()?;
        ensure!(
            message.result()? == 0 && message.imm() == wanted,
            "it is {message:?} after {PATIENCE:?} at most"
        );
    }
    Ok(())
}
