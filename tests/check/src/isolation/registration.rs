// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration of memory that is not the attacker's, or that it may not write.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::c_void;
use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use weft_core::uapi::{self, Sge, WcStatus};
use weft_shim::Remote;

use super::attacker::{refusal, unanimous, Outcome, Stage};
use super::table::Verb;
use super::victim::{Part, LEN};
use crate::raw::{request, Memory};
use crate::world::{connect, gid};

const PAGE: u64 = 4096;
/// A file that the attacker opens for reading only.
const FILE: &str = "/etc/passwd";
const OWN_BYTE: u8 = 0x77;

const READ_ONLY: u32 = uapi::ACCESS_REMOTE_READ;
const WRITE: u32 = uapi::ACCESS_LOCAL_WRITE;
const PEERS_WRITE: u32 = uapi::ACCESS_LOCAL_WRITE | uapi::ACCESS_REMOTE_WRITE;

/// A mapping of a page or more.
struct Mapping {
    base: NonNull<c_void>,
    len: NonZeroUsize,
}

impl Mapping {
    fn of_file(prot: ProtFlags, flags: MapFlags) -> Result<Self> {
        let file = File::open(FILE)?;
        let len = NonZeroUsize::new(PAGE as usize).context("a page has no bytes")?;
        // SAFETY: a new mapping where there is none.
        let base = unsafe { mmap(None, len, prot, flags, file.as_fd(), 0) }?;
        Ok(Self { base, len })
    }

    /// Anonymous memory at an address where there is none.
    fn at(addr: u64, len: usize) -> Result<Self> {
        let at = NonZeroUsize::new(addr as usize & !(PAGE as usize - 1));
        let len = NonZeroUsize::new(len).context("no bytes")?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: the flag refuses to replace what is there.
        let base = unsafe { mmap_anonymous(at, len, prot, flags) }?;
        Ok(Self { base, len })
    }

    fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody refers to any more.
        let _ = unsafe { munmap(self.base, self.len.get()) };
    }
}

fn refused(stage: &Stage, addr: u64, len: u64, access: u32) -> Outcome {
    refusal(stage.raw.register_at(addr, len, access))
}

/// With every kind of rights.
fn refused_always(stage: &Stage, addr: u64, len: u64) -> Result<Outcome> {
    let rights = [
        uapi::ACCESS_LOCAL_READ,
        READ_ONLY,
        WRITE,
        PEERS_WRITE,
        uapi::ACCESS_ALL,
    ];
    unanimous(rights.map(|access| Ok(refused(stage, addr, len, access))))
}

// ---- addresses ----

/// There is nothing at these addresses in this process.
pub fn victims(stage: &mut Stage) -> Result<Outcome> {
    let places = stage.told.places.iter();
    unanimous(places.map(|place| refused_always(stage, place.addr, LEN as u64)))
}

/// The same address is another memory in another process.
pub fn own_at_victims(stage: &mut Stage) -> Result<Outcome> {
    let addr = stage.told.place(Part::Secret).addr;
    let mapping = Mapping::at(addr, LEN)?;
    for at in 0..LEN {
        // SAFETY: within the mapping, which Rust has no reference into.
        unsafe { mapping.base.cast::<u8>().add(at).write_volatile(OWN_BYTE) };
    }
    let reg = stage
        .raw
        .register_at(mapping.addr(), LEN as u64, READ_ONLY)?;
    let mut vqp = connect(&stage.device, stage.home(), 4)?;
    vqp.read(
        stage.own.slice(0..LEN)?,
        Remote {
            addr: reg.addr,
            rkey: reg.rkey,
        },
    )?;
    stage.raw.deregister(reg.lkey)?;
    let mut bytes = vec![0; LEN];
    stage.own.copy_out(0, &mut bytes)?;
    ensure!(
        bytes.iter().all(|byte| *byte == OWN_BYTE),
        "other bytes came"
    );
    Ok(Outcome::Said("its own bytes"))
}

pub fn kernel(stage: &mut Stage) -> Result<Outcome> {
    let addresses = [
        0x7fff_ffff_f000,
        0x0000_8000_0000_0000,
        0xffff_8000_0000_0000,
        0xffff_8880_0000_0000,
        0xffff_c900_0000_0000,
        0xffff_ffff_8100_0000,
        0xffff_ffff_c000_0000,
    ];
    unanimous(addresses.map(|addr| refused_always(stage, addr, PAGE)))
}

pub fn wrapping(stage: &mut Stage) -> Result<Outcome> {
    let ranges = [(u64::MAX - 7, 16), (u64::MAX - PAGE + 2, PAGE)];
    unanimous(ranges.map(|(addr, len)| refused_always(stage, addr, len)))
}

pub fn vsyscall(stage: &mut Stage) -> Result<Outcome> {
    refused_always(stage, 0xffff_ffff_ff60_0000, PAGE)
}

/// Where the kernel has mapped something of its own into this process.
fn special(name: &str) -> Result<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.contains(name));
    let start = line.and_then(|line| line.split('-').next());
    Ok(u64::from_str_radix(
        start.with_context(|| format!("no {name}"))?,
        16,
    )?)
}

pub fn vdso(stage: &mut Stage) -> Result<Outcome> {
    Ok(refused(stage, special("[vdso]")?, PAGE, WRITE))
}

/// It holds the time, which every process may read, and so may register for
/// reading where the kernel makes it of ordinary pages.
pub fn vvar(stage: &mut Stage) -> Result<Outcome> {
    let page = special("[vvar]")?;
    unanimous(
        [WRITE, PEERS_WRITE, uapi::ACCESS_ALL].map(|access| Ok(refused(stage, page, PAGE, access))),
    )
}

pub fn code(stage: &mut Stage) -> Result<Outcome> {
    let here: fn(&mut Stage) -> Result<Outcome> = code;
    let page = here as usize as u64 & !(PAGE - 1);
    unanimous(
        [WRITE, PEERS_WRITE, uapi::ACCESS_ALL].map(|access| Ok(refused(stage, page, PAGE, access))),
    )
}

// ---- files ----

pub fn file_shared(stage: &mut Stage) -> Result<Outcome> {
    let mapping = Mapping::of_file(ProtFlags::PROT_READ, MapFlags::MAP_SHARED)?;
    Ok(refused(stage, mapping.addr(), PAGE, WRITE))
}

pub fn file_private(stage: &mut Stage) -> Result<Outcome> {
    let mapping = Mapping::of_file(ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE)?;
    Ok(refused(stage, mapping.addr(), PAGE, WRITE))
}

pub fn file_for_peers(stage: &mut Stage) -> Result<Outcome> {
    let mapping = Mapping::of_file(ProtFlags::PROT_READ, MapFlags::MAP_SHARED)?;
    let rights = [uapi::ACCESS_REMOTE_WRITE, uapi::ACCESS_REMOTE_ATOMIC];
    unanimous(rights.map(|access| Ok(refused(stage, mapping.addr(), PAGE, access))))
}

/// Runs `body` with a read-only file registered for what it may be used for, and
/// sees that the file stays as it is.
fn with_file(
    stage: &Stage,
    body: impl FnOnce(&uapi::MrReg) -> Result<WcStatus>,
) -> Result<Outcome> {
    let before = std::fs::read(FILE)?;
    let mapping = Mapping::of_file(ProtFlags::PROT_READ, MapFlags::MAP_SHARED)?;
    let reg = stage.raw.register_at(mapping.addr(), PAGE, READ_ONLY)?;
    let status = body(&reg);
    stage.raw.deregister(reg.lkey)?;
    ensure!(
        std::fs::read(FILE)? == before,
        "{FILE} has changed: {status:?}"
    );
    Ok(Outcome::Status(status?))
}

fn into_file(stage: &Stage, opcode: u8) -> Result<Outcome> {
    with_file(stage, |reg| {
        let own = stage.own.remote();
        let near = Sge {
            addr: reg.addr,
            len: 8,
            lkey: reg.lkey,
        };
        let wr = request(opcode, near, own.addr, own.rkey);
        Ok(stage.raw.outcome(gid(stage.home()), wr)?)
    })
}

pub fn read_into_file(stage: &mut Stage) -> Result<Outcome> {
    into_file(stage, uapi::OP_READ)
}

pub fn add_into_file(stage: &mut Stage) -> Result<Outcome> {
    into_file(stage, uapi::OP_FAA)
}

pub fn write_to_file(stage: &mut Stage) -> Result<Outcome> {
    with_file(stage, |reg| write_from_own(stage, reg))
}

/// A WRITE from the attacker's own region to what it has just registered.
fn write_from_own(stage: &Stage, reg: &uapi::MrReg) -> Result<WcStatus> {
    let remote = Remote {
        addr: reg.addr,
        rkey: reg.rkey,
    };
    let wr = Verb::Write.request(stage.own.slice(0..64)?, remote);
    match connect(&stage.device, stage.home(), 4)?.run(wr) {
        Ok(_) => Ok(WcStatus::Success),
        Err(weft_shim::Error::Completion(error)) => error.status.context("an unknown status"),
        Err(error) => Err(error.into()),
    }
}

/// A private mapping may be written; what is written is a copy.
pub fn private_copy(stage: &mut Stage) -> Result<Outcome> {
    let before = std::fs::read(FILE)?;
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let mapping = Mapping::of_file(prot, MapFlags::MAP_PRIVATE)?;
    let reg = stage.raw.register_at(mapping.addr(), PAGE, PEERS_WRITE)?;
    stage.own.copy_in(0, &[OWN_BYTE; 64])?;
    let status = write_from_own(stage, &reg)?;
    stage.raw.deregister(reg.lkey)?;
    ensure!(status == WcStatus::Success, "{status:?}");
    // SAFETY: the first byte of our mapping.
    let seen = unsafe { mapping.base.cast::<u8>().read_volatile() };
    ensure!(seen == OWN_BYTE, "the copy has not changed");
    ensure!(std::fs::read(FILE)? == before, "{FILE} has changed");
    Ok(Outcome::Said("its own copy"))
}

// ---- protection ----

fn protected(stage: &Stage, prot: ProtFlags) -> Result<Outcome> {
    let memory = Memory::map(PAGE as usize)?;
    memory.protect(0, PAGE as usize, prot)?;
    let outcome = unanimous([WRITE, PEERS_WRITE].map(|access| {
        let refused = refused(stage, memory.addr(), PAGE, access);
        Ok(refused)
    }))?;
    if prot == ProtFlags::PROT_NONE {
        let reading = refused(stage, memory.addr(), PAGE, READ_ONLY);
        ensure!(
            reading == Outcome::Errno(Errno::EFAULT),
            "for reading: {reading}"
        );
    }
    Ok(outcome)
}

pub fn read_only(stage: &mut Stage) -> Result<Outcome> {
    protected(stage, ProtFlags::PROT_READ)
}

pub fn no_access(stage: &mut Stage) -> Result<Outcome> {
    protected(stage, ProtFlags::PROT_NONE)
}
