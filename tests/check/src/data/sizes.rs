// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes around every boundary, at offsets that are aligned to nothing.

use anyhow::{ensure, Context, Result};
use weft_shim::{Access, MemoryRegion};

use crate::rng::Rng;
use crate::world::{connect, full_access, Link};

const SIZES: [usize; 8] = [0, 1, 8, 4095, 4096, 4097, 64 << 10, 1 << 20];
/// Offsets at the near and at the far end.
const OFFSETS: [(usize, usize); 3] = [(0, 0), (1, 4093), (4091, 3)];
const ROOM: usize = (1 << 20) + (8 << 10);

/// WRITEs each size and READs it back.
pub fn all(seed: u64) -> Result<()> {
    let mut link = Link::new(1, ROOM, 16)?;
    let mut rng = Rng::new(seed);
    let mut near = rng.bytes(ROOM);
    let mut far = rng.bytes(ROOM);
    link.local.copy_in(0, &near)?;
    link.remote.copy_in(0, &far)?;
    for size in SIZES {
        for (from, to) in OFFSETS {
            one(&mut link, &mut rng, (&mut near, &mut far), size, from, to)
                .with_context(|| format!("{size} bytes from {from} to {to}"))?;
        }
    }
    Ok(())
}

fn one(
    link: &mut Link,
    rng: &mut Rng,
    (near, far): (&mut [u8], &mut [u8]),
    size: usize,
    from: usize,
    to: usize,
) -> Result<()> {
    let bytes = rng.bytes(size);
    near[from..from + size].copy_from_slice(&bytes);
    link.local.copy_in(from, &bytes)?;
    let remote = link.remote.remote().offset(to as u64);
    let moved = link
        .vqp
        .write(link.local.slice(from..from + size)?, remote)?;
    ensure!(moved as usize == size, "the WRITE moved {moved} bytes");
    far[to..to + size].copy_from_slice(&bytes);
    same(&link.remote, far).context("after the WRITE, at the peer")?;

    // Back to another place, so that bytes that stayed are not taken for read.
    let back = (from + 17) % 4096;
    let moved = link
        .vqp
        .read(link.local.slice(back..back + size)?, remote)?;
    ensure!(moved as usize == size, "the READ moved {moved} bytes");
    near[back..back + size].copy_from_slice(&bytes);
    same(&link.local, near).context("after the READ, here")?;
    same(&link.remote, far).context("after the READ, at the peer")
}

fn same(region: &MemoryRegion, expected: &[u8]) -> Result<()> {
    let mut bytes = vec![0; expected.len()];
    region.copy_out(0, &mut bytes)?;
    let wrong = bytes.iter().zip(expected).position(|(a, b)| a != b);
    ensure!(wrong.is_none(), "byte {wrong:?} is wrong");
    Ok(())
}

/// Pages that were never touched, or that were shared with a child, are pinned
/// as this process will see them.
pub fn late_stores() -> Result<()> {
    let near = weft_shim::Device::open_on(0)?;
    let far = weft_shim::Device::open_on(1)?;
    let source = MemoryRegion::allocate(&near, 8192, Access::empty())?;
    let readable = MemoryRegion::allocate(&far, 8192, Access::REMOTE_READ)?;
    let target = MemoryRegion::allocate(&far, 8192, full_access())?;
    let landing = MemoryRegion::allocate(&near, 8192, full_access())?;
    let mut vqp = connect(&near, 1, 16)?;

    source.store_u64(4096, 11)?;
    readable.store_u64(4096, 22)?;
    crate::world::system("true").context("a child that shares all pages")?;
    source.store_u64(0, 33)?;
    readable.store_u64(0, 44)?;
    vqp.write(source.slice(0..8192)?, target.remote())?;
    vqp.read(landing.slice(0..8192)?, readable.remote())?;
    let got = [
        target.load_u64(0)?,
        target.load_u64(4096)?,
        landing.load_u64(0)?,
        landing.load_u64(4096)?,
    ];
    ensure!(got == [33, 11, 44, 22], "got {got:?}");
    Ok(())
}
