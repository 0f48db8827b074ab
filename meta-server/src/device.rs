// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the server has on each RDMA device by which nodes come.

use std::sync::Arc;

use weft_core::meta::PUBLICATION_BYTES;
use weft_verbs::{
    Access, ConnectRequest, Context, EventCq, Mr, Pages, Pd, Result, ServerConnection, Srq,
};

/// Publications of all nodes together that may wait to be applied, per device.
/// A node that finds no receive is told to retry by its NIC.
const RECEIVES: u32 = 1024;

/// The table as registered on one device, and the queues of its connections.
pub struct Device {
    pd: Pd,
    table: Mr,
    srq: Srq,
    /// Completions of all its connections; never more than [`RECEIVES`].
    pub cq: EventCq,
}

impl Device {
    /// Registers the table for READs and posts the receives.
    pub fn open(context: &Context, table: &Arc<Pages>) -> Result<Self> {
        let pd = Pd::new(context)?;
        let cq = EventCq::new(context, RECEIVES)?;
        cq.arm()?;
        Ok(Self {
            table: Mr::register(&pd, table, Access::RemoteRead)?,
            srq: Srq::new(
                &pd,
                RECEIVES,
                u32::try_from(PUBLICATION_BYTES).unwrap_or(u32::MAX),
            )?,
            pd,
            cq,
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
    pub fn accept(&self, request: ConnectRequest, reply: &[u8]) -> Result<ServerConnection> {
        request.accept(&self.pd, self.cq.cq(), &self.srq, reply)
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
