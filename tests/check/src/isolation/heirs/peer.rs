// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer on node 1 that reads and writes single bytes of node 0.

use anyhow::Result;
use weft_core::uapi::MrReg;
use weft_shim::{Access, Device, MemoryRegion, Remote};

use crate::world::connect;

/// The peer.
pub(super) struct Peer {
    device: Device,
    region: MemoryRegion,
}

impl Peer {
    pub(super) fn new() -> Result<Self> {
        let device = Device::open_on(1)?;
        let region = MemoryRegion::allocate(&device, 4096, Access::all())?;
        Ok(Self { device, region })
    }

    /// Where others may put bytes for it.
    pub(super) fn remote(&self) -> Remote {
        self.region.remote()
    }

    /// What others have put there.
    pub(super) fn got(&self) -> Result<u8> {
        let mut byte = [0];
        self.region.copy_out(0, &mut byte)?;
        Ok(byte[0])
    }

    /// A byte of somebody's region.
    pub(super) fn read(&self, reg: &MrReg, at: u64) -> Result<u8> {
        let mut vqp = connect(&self.device, 0, 4)?;
        vqp.read(self.region.slice(0..1)?, place(reg, at))?;
        self.got()
    }

    /// Changes a byte of somebody's region.
    pub(super) fn write(&self, reg: &MrReg, at: u64, byte: u8) -> Result<()> {
        self.region.copy_in(0, &[byte])?;
        let mut vqp = connect(&self.device, 0, 4)?;
        vqp.write(self.region.slice(0..1)?, place(reg, at))?;
        Ok(())
    }
}

fn place(reg: &MrReg, at: u64) -> Remote {
    Remote {
        addr: reg.addr + at,
        rkey: reg.rkey,
    }
}
