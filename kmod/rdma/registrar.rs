// SPDX-License-Identifier: GPL-2.0

//! Makes the keys of memory regions valid: by requests, because that is the way for
//! consumers in the kernel, on a queue pair that is connected to itself and carries
//! nothing else. A key is valid for all queue pairs of the domain.
//!
//! On a queue pair to a peer they would wait for all requests before them. And soft-RoCE
//! breaks such a queue pair if it has to repeat a request that was not answered: it
//! carries registrations behind it out once more, and refuses them, because the region is
//! no longer free (`req_retry` in rxe_req.c, `rxe_reg_fast_mr` in rxe_mr.c).

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;

use crate::bindings;
use crate::random::random_u32;
use crate::rdma::{Capacity, EventCq, FastMr, Pd, Port, Qp, Ready, Remote, TableMr};

/// How long a registration may take: it stays on this host.
const REQUEST_NS: u64 = 20_000_000_000;
/// Completions: of a request at a time, and of the receive buffers that are never posted.
const ENTRIES: u32 = 4;
/// PSNs have 24 bits.
const PSN_MASK: u32 = 0x00ff_ffff;
/// READs at a time; there will be none.
const READS: u8 = 1;

/// The number of a request: there is one at a time.
const NUMBER: u64 = 0;

/// A queue pair for registrations, used by one thread at a time. It is dropped once one
/// has failed: no request of it is on its way after that. Fields are dropped in order.
pub(crate) struct Registrar {
    qp: Qp<Ready>,
    cq: EventCq,
}

impl Registrar {
    /// For the regions of a domain; `own` is the port's GID.
    ///
    /// # Errors
    ///
    /// `ENODEV` (the port is down, or has no such GID), and those of ib_core.
    pub(crate) fn new(port: Port, pd: Arc<Pd>, own: &Gid) -> Result<Self> {
        let cq = EventCq::new(port.device, ENTRIES)?;
        let capacity = Capacity {
            sends: 1,
            sges: 1,
            receives: 1,
            inline: 0,
            lets_access: false,
        };
        // SAFETY: the queue pair goes before `cq`, here and as a field.
        let qp = Qp::new(port, pd, unsafe { cq.share() }, &capacity)?;
        // It carries no packet, but takes those that fit: nobody is to know the number.
        let psn = random_u32() & PSN_MASK;
        let itself = Remote {
            gid: *own,
            qpn: qp.number(),
            psn,
            mtu: port.active_mtu().ok_or(ENODEV)?,
            read_depth: READS,
        };
        let qp = qp.connect(port, own, &itself, psn, (READS, READS))?;
        Ok(Self { qp, cq })
    }

    /// Makes a region's key valid, for what it may be used for.
    ///
    /// # Errors
    ///
    /// `EIO` (refused), `ETIMEDOUT`, and those of the driver.
    pub(crate) fn register(&mut self, mr: &FastMr) -> Result {
        self.run(&mr.request(NUMBER)?)
    }

    /// Makes a table's key valid for READs. Errors as for [`Registrar::register`].
    pub(crate) fn register_table(&mut self, table: &TableMr) -> Result {
        self.run(&table.request(NUMBER))
    }

    fn run(&mut self, wr: &bindings::ib_reg_wr) -> Result {
        // SAFETY: the request is copied. It has ended when this returns well; if not, the
        // caller drops the queue pair before the region goes.
        unsafe { self.qp.post(&wr.wr) }?;
        self.cq.wait_for(NUMBER, REQUEST_NS, false)
    }
}
