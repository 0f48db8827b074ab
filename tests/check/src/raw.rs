// SPDX-License-Identifier: MIT OR Apache-2.0

//! `/dev/weft` with nothing in between: any request, any argument, the errno as
//! it comes.

mod memory;
mod queue;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc::{c_ulong, c_void, ioctl};
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, WcStatus, ABI_VERSION, DEVICE_PATH};

pub use memory::Memory;
pub use queue::{buffer, message, request, with_sge, Field, Queue};

/// VQPs of a session, where many are wanted, each with rings of its own.
pub const MANY_VQPS: usize = 256;

/// An open file, with or without a session.
pub struct Session {
    file: File,
    /// The rings of the VQPs that have some of their own, by the VQP.
    rings: Mutex<HashMap<u32, u32>>,
}

/// What the module said of a VQP and of the rings that it has alone.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// The VQP's handle.
    pub vqp: u32,
    /// Its rings.
    pub of_rings: uapi::RingsCreate,
}

impl Deref for Said {
    type Target = uapi::RingsCreate;

    fn deref(&self) -> &uapi::RingsCreate {
        &self.of_rings
    }
}

impl Session {
    /// Opens the device and says nothing.
    pub fn bare() -> std::io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE_PATH)?;
        Ok(Self {
            file,
            rings: Mutex::default(),
        })
    }

    /// Takes a descriptor over, whatever its state is.
    pub fn of(fd: OwnedFd) -> Self {
        Self {
            file: fd.into(),
            rings: Mutex::default(),
        }
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

    /// Says hello, with rings for a few requests and memory that peers may use; answers
    /// what the module says of these.
    pub fn start(&self, node: u32, memory_bytes: u32) -> Result<uapi::RingsCreate, Errno> {
        let mut hello = uapi::Hello {
            abi_version: ABI_VERSION,
            node,
            rings: uapi::RingsCreate {
                max_send_wr: 16,
                max_wc: 16,
                memory_bytes,
                memory_access: uapi::ACCESS_ALL,
                ..Pod::zeroed()
            },
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_HELLO, &mut hello)?;
        Ok(hello.rings)
    }

    /// A request with an argument that is there. No address in it is that of
    /// memory which Rust knows.
    pub fn call<T: Pod>(&self, request: u32, arg: &mut T) -> Result<(), Errno> {
        self.call_at(request, std::ptr::from_mut(arg).expose_provenance() as u64)
    }

    /// A request with any argument.
    pub fn call_at(&self, request: u32, arg: u64) -> Result<(), Errno> {
        self.answer(request, arg).map(drop)
    }

    /// The same, with what the system call answers.
    pub fn answer(&self, request: u32, arg: u64) -> Result<usize, Errno> {
        let arg = std::ptr::with_exposed_provenance_mut::<c_void>(arg as usize);
        // SAFETY: the module writes, if it writes at all, the struct of the
        // request at `arg`: a struct that a caller here lent, a page of a
        // `Memory`, or an address where nothing is.
        let result = unsafe { ioctl(self.file.as_raw_fd(), c_ulong::from(request), arg) };
        Ok(Errno::result(result)?.unsigned_abs() as usize)
    }

    /// Runs a request in the call; answers how it ended.
    pub fn run(&self, run: &uapi::Run) -> Result<WcStatus, Errno> {
        let at = std::ptr::from_ref(run).expose_provenance() as u64;
        let status = self.answer(uapi::IOC_RUN, at)?;
        WcStatus::from_number(status as u32).ok_or(Errno::EPROTO)
    }

    /// Makes a VQP whose rings are not mapped.
    pub fn create_vqp(&self, max_send_wr: u32) -> Result<u32, Errno> {
        Ok(self.describe_vqp(max_send_wr, 0)?.vqp)
    }

    /// The same, with all that the module says of it.
    pub fn describe_vqp(&self, max_send_wr: u32, max_recv_wr: u32) -> Result<Said, Errno> {
        let of_rings = self.create_rings(max_send_wr, max_recv_wr)?;
        self.on_rings(of_rings, |this| this.create_vqp_on(&of_rings))
    }

    /// What `make` makes on rings of its own; without it they go again.
    fn on_rings(
        &self,
        of_rings: uapi::RingsCreate,
        make: impl FnOnce(&Self) -> Result<u32, Errno>,
    ) -> Result<Said, Errno> {
        match make(self) {
            Ok(vqp) => {
                self.known_rings().insert(vqp, of_rings.rings);
                Ok(Said { vqp, of_rings })
            }
            Err(errno) => self.destroy_rings(of_rings.rings).and(Err(errno)),
        }
    }

    /// A VQP on rings, of as much room as they have.
    fn create_vqp_on(&self, on: &uapi::RingsCreate) -> Result<u32, Errno> {
        let mut arg = vqp_on(on);
        self.call(uapi::IOC_VQP_CREATE, &mut arg)?;
        Ok(arg.vqp)
    }

    /// Makes a VQP on rings that others use too.
    pub fn light_vqp(&self, on: &uapi::RingsCreate) -> Result<u32, Errno> {
        let mut arg = uapi::VqpCreate {
            rq: uapi::RINGS_NONE,
            ..vqp_on(on)
        };
        self.call(uapi::IOC_VQP_CREATE, &mut arg)?;
        Ok(arg.vqp)
    }

    /// Makes a VQP as it is described.
    pub fn make_vqp(&self, mut arg: uapi::VqpCreate) -> Result<u32, Errno> {
        self.call(uapi::IOC_VQP_CREATE, &mut arg)?;
        Ok(arg.vqp)
    }

    /// Makes rings for one VQP.
    pub fn create_rings(
        &self,
        max_send_wr: u32,
        max_recv_wr: u32,
    ) -> Result<uapi::RingsCreate, Errno> {
        let max_wc = max_send_wr.saturating_add(max_recv_wr);
        self.make_rings(max_send_wr, max_wc, max_recv_wr)
    }

    /// Makes rings of any size.
    pub fn make_rings(
        &self,
        max_send_wr: u32,
        max_wc: u32,
        max_recv_wr: u32,
    ) -> Result<uapi::RingsCreate, Errno> {
        let mut arg = uapi::RingsCreate {
            max_send_wr,
            max_wc,
            max_recv_wr,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_RINGS_CREATE, &mut arg)?;
        Ok(arg)
    }

    /// Opens a peer, for messages to a port too if that is not 0.
    pub fn open_peer(&self, gid: Gid, port: u32) -> Result<u32, Errno> {
        let mut arg = uapi::PeerOpen {
            gid,
            port,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_PEER_OPEN, &mut arg)?;
        Ok(arg.peer)
    }

    /// Closes a peer.
    pub fn close_peer(&self, peer: u32) -> Result<(), Errno> {
        self.call(
            uapi::IOC_PEER_CLOSE,
            &mut uapi::PeerHandle { peer, reserved: 0 },
        )
    }

    /// Has an eventfd signalled for completions in rings.
    pub fn notify(
        &self,
        rings: u32,
        eventfd: BorrowedFd<'_>,
        count: u32,
        period_us: u32,
    ) -> Result<(), Errno> {
        let mut arg = uapi::CqNotify {
            rings,
            eventfd: eventfd.as_raw_fd() as u32,
            count,
            period_us,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_CQ_NOTIFY, &mut arg)
    }

    /// Destroys rings.
    pub fn destroy_rings(&self, rings: u32) -> Result<(), Errno> {
        self.call(
            uapi::IOC_RINGS_DESTROY,
            &mut uapi::RingsHandle { rings, reserved: 0 },
        )
    }

    /// The rings of a VQP that this session has made with some of its own.
    ///
    /// # Errors
    ///
    /// `ENXIO`, which the module never says: there are none.
    pub fn rings_of(&self, vqp: u32) -> Result<u32, Errno> {
        self.known_rings().get(&vqp).copied().ok_or(Errno::ENXIO)
    }

    fn known_rings(&self) -> std::sync::MutexGuard<'_, HashMap<u32, u32>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a VQP and maps its rings.
    pub fn queue(&self, max_send_wr: u32, max_recv_wr: u32) -> Result<Queue, Errno> {
        Queue::map(self, &self.describe_vqp(max_send_wr, max_recv_wr)?)
    }

    /// Destroys a VQP, and the rings that it had alone.
    pub fn destroy_vqp(&self, vqp: u32) -> Result<(), Errno> {
        self.destroy_vqp_alone(vqp)?;
        self.destroy_rings_of(vqp)
    }

    /// Destroys a VQP, and not the rings that were made for it.
    pub fn destroy_vqp_alone(&self, vqp: u32) -> Result<(), Errno> {
        let mut request = uapi::VqpHandle { vqp, reserved: 0 };
        self.call(uapi::IOC_VQP_DESTROY, &mut request)
    }

    /// Destroys the rings that were made for a VQP, if there are any; may be tried again.
    pub fn destroy_rings_of(&self, vqp: u32) -> Result<(), Errno> {
        let Some(rings) = self.known_rings().get(&vqp).copied() else {
            return Ok(());
        };
        self.destroy_rings(rings)?;
        self.known_rings().remove(&vqp);
        Ok(())
    }

    /// Connects a VQP, for one-sided requests.
    pub fn qconnect(&self, vqp: u32, gid: Gid) -> Result<(), Errno> {
        self.qconnect_port(vqp, gid, 0)
    }

    /// Connects a VQP, for messages to a port too.
    pub fn qconnect_port(&self, vqp: u32, gid: Gid, port: u32) -> Result<(), Errno> {
        self.call(
            uapi::IOC_QCONNECT,
            &mut uapi::QConnect {
                vqp,
                port,
                gid,
                ..Pod::zeroed()
            },
        )
    }

    /// Binds a VQP.
    pub fn qbind(&self, vqp: u32, port: u32) -> Result<(), Errno> {
        self.call(
            uapi::IOC_QBIND,
            &mut uapi::QBind {
                vqp,
                port,
                reserved: 0,
            },
        )
    }

    /// Makes a VQP that is connected to a sender, with rings of its own.
    pub fn accept(&self, bound: u32, src: u32, capacity: u32) -> Result<Said, Errno> {
        let of_rings = self.create_rings(capacity, 0)?;
        self.on_rings(of_rings, |this| {
            let vqp = vqp_on(&of_rings);
            let mut arg = uapi::Accept { vqp, bound, src };
            this.call(uapi::IOC_ACCEPT, &mut arg)?;
            Ok(arg.vqp.vqp)
        })
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

    /// Binds a window to a part of a region, from byte `at` of it on.
    pub fn bind_window(
        &self,
        region: &uapi::MrReg,
        at: u64,
        len: u64,
        access: u32,
    ) -> Result<uapi::MwBind, Errno> {
        let mut arg = uapi::MwBind {
            addr: region.addr.wrapping_add(at),
            len,
            lkey: region.lkey,
            access,
            ..Pod::zeroed()
        };
        self.call(uapi::IOC_MW_BIND, &mut arg)?;
        Ok(arg)
    }

    /// Deregisters memory, or ends a window.
    pub fn deregister(&self, lkey: u32) -> Result<(), Errno> {
        self.call(uapi::IOC_MR_DEREG, &mut uapi::MrDereg { lkey, reserved: 0 })
    }

    /// Submits what is in the rings that the VQP has alone, and waits; answers how many
    /// were taken.
    pub fn enter(
        &self,
        vqp: u32,
        wr_count: u32,
        wc_min: u32,
        timeout_ns: u64,
    ) -> Result<usize, Errno> {
        self.enter_rings(self.rings_of(vqp)?, wr_count, wc_min, timeout_ns)
    }

    /// Submits what is in a set of rings, and waits for what comes there.
    pub fn enter_rings(
        &self,
        rings: u32,
        wr_count: u32,
        wc_min: u32,
        timeout_ns: u64,
    ) -> Result<usize, Errno> {
        self.enter_any(rings, wr_count, rings, wc_min, timeout_ns)
    }

    /// Submits what is in one set of rings, and waits for what comes to another one.
    pub fn enter_any(
        &self,
        sq: u32,
        wr_count: u32,
        cq: u32,
        wc_min: u32,
        timeout_ns: u64,
    ) -> Result<usize, Errno> {
        let mut arg = uapi::Enter {
            sq,
            wr_count,
            cq,
            wc_min,
            timeout_ns,
            ..Pod::zeroed()
        };
        self.answer(
            uapi::IOC_ENTER,
            std::ptr::from_mut(&mut arg).expose_provenance() as u64,
        )
    }

    /// How one request ends on a VQP of its own to a node.
    pub fn outcome(&self, to: Gid, wr: uapi::SendWr) -> Result<WcStatus, Errno> {
        let queue = self.queue(4, 0)?;
        self.qconnect(queue.vqp, to)?;
        let flags = wr.flags | uapi::SEND_SIGNALED;
        let status = queue.outcome(self, uapi::SendWr { flags, ..wr });
        self.destroy_vqp(queue.vqp)?;
        status
    }
}

/// A VQP on rings that are its own, of as much room as they have.
pub fn vqp_on(on: &uapi::RingsCreate) -> uapi::VqpCreate {
    uapi::VqpCreate {
        cq: on.rings,
        rq: match on.max_recv_wr {
            0 => uapi::RINGS_NONE,
            _ => on.rings,
        },
        max_send_wr: on.max_send_wr,
        ..Pod::zeroed()
    }
}
