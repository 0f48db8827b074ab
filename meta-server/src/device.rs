// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the server has on each RDMA device by which nodes come.

use std::sync::Arc;

use weft_core::meta::PUBLICATION_BYTES;
use weft_verbs::{
    Access, ConnectRequest, Context, EventCq, Mr, Pages, Pd, Result, ServerConnection, Srq,
};

use crate::peers::Class;

/// Publications of all nodes together that may wait to be applied, per device.
/// A node that finds no receive is told to retry by its NIC.
const NODE_RECEIVES: u32 = 1024;
/// What readers send: they have nothing to say, so these serve to notice it.
const READER_RECEIVES: u32 = 16;

/// The table as registered on one device, and the queues of its connections.
pub struct Device {
    pd: Pd,
    table: Mr,
    nodes: Intake,
    readers: Intake,
}

/// What connections of one class send: readers cannot fill the queues of nodes.
pub struct Intake {
    srq: Srq,
    /// Receives of `srq`.
    pub receives: u32,
    /// Completions of all its connections; never more than `srq` has receives.
    pub cq: EventCq,
}

impl Device {
    /// Registers the table for READs and posts the receives.
    pub fn open(context: &Context, table: &Arc<Pages>) -> Result<Self> {
        let pd = Pd::new(context)?;
        Ok(Self {
            table: Mr::register(&pd, table, Access::RemoteRead)?,
            nodes: Intake::new(context, &pd, NODE_RECEIVES)?,
            readers: Intake::new(context, &pd, READER_RECEIVES)?,
            pd,
        })
    }

    /// Whether a request came in by this device.
    pub fn is_for(&self, request: &ConnectRequest) -> bool {
        request.is_on(self.pd.context())
    }

    /// The device's name.
    pub fn name(&self) -> String {
        self.pd.context().name()
    }

    /// The key by which peers on this device READ the table.
    pub fn table_rkey(&self) -> u32 {
        self.table.rkey()
    }

    /// Accepts a request that came in by this device.
    pub fn accept(
        &self,
        request: ConnectRequest,
        class: Class,
        reply: &[u8],
    ) -> Result<ServerConnection> {
        let intake = self.intake(class);
        request.accept(&self.pd, intake.cq.cq(), &intake.srq, reply)
    }

    /// Both.
    pub fn intakes(&self) -> impl Iterator<Item = &Intake> {
        [&self.nodes, &self.readers].into_iter()
    }

    /// What connections of this class send.
    pub fn intake(&self, class: Class) -> &Intake {
        match class {
            Class::Node => &self.nodes,
            Class::Reader => &self.readers,
        }
    }
}

impl Intake {
    fn new(context: &Context, pd: &Pd, receives: u32) -> Result<Self> {
        let bytes = u32::try_from(PUBLICATION_BYTES).unwrap_or(u32::MAX);
        let cq = EventCq::new(context, receives)?;
        cq.arm()?;
        Ok(Self {
            srq: Srq::new(pd, receives, bytes)?,
            receives,
            cq,
        })
    }

    /// Copies a received message and gives its buffer back.
    pub fn take_message(&self, buffer: u64, len: u32) -> Result<Vec<u8>> {
        let message = self.srq.message(buffer, len);
        self.srq.post(buffer)?;
        Ok(message)
    }

    /// Gives a buffer back whose receive failed.
    pub fn give_back(&self, buffer: u64) -> Result<()> {
        self.srq.post(buffer)
    }
}
