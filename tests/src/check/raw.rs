// SPDX-License-Identifier: MIT OR Apache-2.0

//! `/dev/weft` with nothing in between: any request, any argument, the errno as
//! it comes.

use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use nix::libc::{c_ulong, c_void, ioctl};
use nix::sys::mman::{mmap_anonymous, mprotect, munmap, MapFlags, ProtFlags};
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, WcStatus, ABI_VERSION, DEVICE_PATH};

/// A request that takes longer is lost.
const OUTCOME_NS: u64 = 30_000_000_000;

/// An open file, with or without a session.
pub struct Session {
    file: File,
}

impl Session {
    /// Opens the device and says nothing.
    pub fn bare() -> std::io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new()
                .read(true)
                .write(true)
                .open(DEVICE_PATH)?,
        })
    }

    /// Takes a descriptor over, whatever its state is.
    pub fn of(fd: OwnedFd) -> Self {
        Self { file: fd.into() }
    }

    /// Opens a session on a node.
    pub fn open(node: u32) -> std::io::Result<Self> {
        let this = Self::bare()?;
        this.hello(node)?;
        Ok(this)
    }

    /// Its descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Says hello.
    pub fn hello(&self, node: u32) -> Result<(), Errno> {
        let mut hello = uapi::Hello {
            abi_version: ABI_VERSION,
            node,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_HELLO, &mut hello)
    }

    /// A request with an argument that is there. No address in it is that of
    /// memory which Rust knows: what `enter` takes has to go through `enter`.
    pub fn call<T: Pod>(&self, request: u32, arg: &mut T) -> Result<(), Errno> {
        self.call_at(request, std::ptr::from_mut(arg).expose_provenance() as u64)
    }

    /// A request with any argument.
    pub fn call_at(&self, request: u32, arg: u64) -> Result<(), Errno> {
        let arg = std::ptr::with_exposed_provenance_mut::<c_void>(arg as usize);
        // SAFETY: the module writes, if it writes at all, the struct of the
        // request at `arg`: a struct that a caller here lent, a page of a
        // `Memory`, or an address where nothing is.
        let result = unsafe { ioctl(self.file.as_raw_fd(), c_ulong::from(request), arg) };
        Errno::result(result).map(drop)
    }

    /// Makes a VQP.
    pub fn create_vqp(&self, max_send_wr: u32) -> Result<u32, Errno> {
        let mut arg = uapi::VqpCreate {
            max_send_wr,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_VQP_CREATE, &mut arg)?;
        Ok(arg.vqp)
    }

    /// Destroys a VQP.
    pub fn destroy_vqp(&self, vqp: u32) -> Result<(), Errno> {
        self.call(
            uapi::IOC_VQP_DESTROY,
            &mut uapi::VqpHandle { vqp, reserved: 0 },
        )
    }

    /// Connects a VQP.
    pub fn qconnect(&self, vqp: u32, gid: Gid) -> Result<(), Errno> {
        self.call(
            uapi::IOC_QCONNECT,
            &mut uapi::QConnect {
                vqp,
                gid,
                ..Pod::zeroed()
            },
        )
    }

    /// Registers part of a mapping. Its length is not checked.
    pub fn register(
        &self,
        memory: &Memory,
        at: u64,
        len: u64,
        access: u32,
    ) -> Result<uapi::MrReg, Errno> {
        self.register_at(memory.addr() + at, len, access)
    }

    /// Registers any address.
    pub fn register_at(&self, addr: u64, len: u64, access: u32) -> Result<uapi::MrReg, Errno> {
        let mut arg = uapi::MrReg {
            addr,
            len,
            access,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_MR_REG, &mut arg)?;
        Ok(arg)
    }

    /// Deregisters memory.
    pub fn deregister(&self, lkey: u32) -> Result<(), Errno> {
        self.call(uapi::IOC_MR_DEREG, &mut uapi::MrDereg { lkey, reserved: 0 })
    }

    /// Submits, waits and reaps; answers with both counts.
    pub fn enter(
        &self,
        vqp: u32,
        wrs: &[uapi::SendWr],
        wcs: &mut [uapi::Wc],
        min: u32,
        timeout_ns: u64,
    ) -> Result<(usize, usize), Errno> {
        let mut arg = uapi::Enter {
            vqp,
            wr_count: wrs.len() as u32,
            wrs: wrs.as_ptr().expose_provenance() as u64,
            wc_max: wcs.len() as u32,
            wc_min: min,
            wcs: wcs.as_mut_ptr().expose_provenance() as u64,
            timeout_ns,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_ENTER, &mut arg)?;
        Ok((arg.submitted as usize, arg.completed as usize))
    }

    /// How one request ends on a VQP of its own to a node.
    pub fn outcome(&self, to: Gid, wr: uapi::SendWr) -> Result<WcStatus, Errno> {
        let vqp = self.create_vqp(4)?;
        self.qconnect(vqp, to)?;
        let mut wcs = [uapi::Wc::zeroed()];
        let flags = uapi::SEND_SIGNALED;
        let wr = uapi::SendWr { flags, ..wr };
        let (_, done) = self.enter(vqp, &[wr], &mut wcs, 1, OUTCOME_NS)?;
        self.destroy_vqp(vqp)?;
        let status = WcStatus::from_number(wcs[0].status).filter(|_| done == 1);
        status.ok_or(Errno::ETIME)
    }
}

/// A mapping of our own that Rust has no reference into, so that the module and
/// peers may do with it what they like.
pub struct Memory {
    base: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: it is an address; access to what is there is atomic.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `len` bytes.
    pub fn map(len: usize) -> Result<Self, Errno> {
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new private mapping where there is none.
        let base = unsafe { mmap_anonymous(None, len, prot, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { base, len })
    }

    /// Its address.
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Changes the protection of a part. What is not readable may not be loaded,
    /// what is not writable not be stored.
    pub fn protect(&self, at: usize, len: usize, prot: ProtFlags) -> Result<(), Errno> {
        assert!(at + len <= self.len.get());
        // SAFETY: within the mapping.
        let part = unsafe { self.base.byte_add(at) };
        // SAFETY: it is ours, and nothing of Rust's lies in it.
        unsafe { mprotect(part, len, prot) }
    }

    /// Unmaps what lies behind `len` bytes, whole pages. The hole is another's
    /// from then on, and `len` bytes are ours.
    pub fn truncate(&mut self, len: usize) -> Result<(), Errno> {
        let (kept, old) = (NonZeroUsize::new(len).ok_or(Errno::EINVAL)?, self.len.get());
        assert!(len < old);
        // SAFETY: within the mapping.
        let tail = unsafe { self.base.byte_add(len) };
        // SAFETY: it is ours, and nothing of Rust's lies in it.
        unsafe { munmap(tail, old - len) }?;
        self.len = kept;
        Ok(())
    }

    /// The byte at an offset.
    pub fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len.get());
        // SAFETY: within the mapping.
        let byte = unsafe { self.base.cast::<u8>().add(at) };
        // SAFETY: mapped as long as `self`, and only atomics touch it.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    /// Fills a part.
    pub fn fill(&self, at: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            self.byte(at + i).store(*byte, Ordering::Relaxed);
        }
    }

    /// Copies a part out.
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        (at..at + len)
            .map(|i| self.byte(i).load(Ordering::Relaxed))
            .collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody refers to any more.
        let _ = unsafe { munmap(self.base, self.len.get()) };
    }
}
