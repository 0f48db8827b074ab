// SPDX-License-Identifier: MIT OR Apache-2.0

//! All that a worker needs before it can connect, made by one system call and mapped by
//! another: a session, queues, and registered memory. A worker that lives for milliseconds
//! would otherwise spend most of them on making these one by one.

use crate::device::Device;
use crate::error::Error;
use crate::mr::{Access, MemoryRegion};
use crate::queues::{Queues, QueuesConfig};
use weft_core::gid::Gid;

/// A description of the session, the queues and the memory that a worker starts with.
#[derive(Clone, Copy, Debug)]
pub struct StartConfig {
    /// The node's index; `None`: the first of the caller's network namespace.
    pub node: Option<u32>,
    /// Its queues.
    pub queues: QueuesConfig,
    /// Bytes of registered memory, 1 to [`crate::MAX_RING_MEMORY`].
    pub memory: usize,
    /// Who may do what to them.
    pub access: Access,
    /// The peer that it will connect to first. If the node does not know that one, it is looked
    /// up while the rest is made.
    pub peer: Option<Gid>,
}

impl Default for StartConfig {
    /// The usual queues, and 64 KiB that peers may read and write.
    fn default() -> Self {
        Self {
            node: None,
            queues: QueuesConfig::default(),
            memory: 64 << 10,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
            peer: None,
        }
    }
}

/// A worker's session, queues and memory.
///
/// ```no_run
/// # fn main() -> Result<(), weft_shim::Error> {
/// # let (gid, remote): (weft_shim::Gid, weft_shim::Remote) = todo!();
/// use std::time::Duration;
/// use weft_shim::{QpConfig, SendWr, Start, StartConfig, Wc};
///
/// let Start { device: _device, mut queues, memory } =
///     Start::new(&StartConfig { peer: Some(gid), ..StartConfig::default() })?;
/// let qp = queues.connect(gid, 0, &QpConfig::default())?;
/// memory.store_u64(0, 42)?;
/// let write = SendWr::write(memory.slice(0..8)?, remote).on(&qp).signaled();
/// let mut wc = [Wc::default()];
/// queues.enter(&[write], &mut wc, 1, Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Start {
    /// The session.
    pub device: Device,
    /// Queues.
    pub queues: Queues,
    /// Zeroed memory. It is in the queues' mapping, so a child that is forked does not have
    /// it mapped; requests name it from address 0 on ([`MemoryRegion::addr`]).
    pub memory: MemoryRegion,
}

impl Start {
    /// Opens a session with queues and memory.
    ///
    /// # Errors
    ///
    /// Those of [`Device::open`] and [`Queues::create`], of which [`Error::BadQueues`] is also for
    /// memory and its access; [`Error::TooManyRegions`].
    pub fn new(config: &StartConfig) -> Result<Self, Error> {
        let (device, said) = Device::open_with(config)?;
        let (queues, memory) = Queues::with_memory(&device, &said, config.access)?;
        Ok(Self {
            device,
            queues,
            memory,
        })
    }
}
