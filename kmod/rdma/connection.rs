// SPDX-License-Identifier: GPL-2.0

//! A connected RC queue pair and its requests, one at a time.

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::bindings;
use crate::rdma::cm::{CmId, PRIVATE_BYTES};
use crate::rdma::{DmaBuffer, EventCq, Pd};

/// A connected RC queue pair, with its completion queue and one page of memory
/// for its requests.
///
/// Fields are dropped in order: the queue pair (by `Drop`), then the identifier,
/// the completion queue, the memory, the domain.
pub(crate) struct Connection {
    pub(super) id: CmId,
    pub(super) cq: EventCq,
    pub(super) buffer: DmaBuffer,
    pub(super) pd: Arc<Pd>,
    pub(super) private: [u8; PRIVATE_BYTES],
    pub(super) next_number: u64,
    /// The request that is on its way: a signal has ended the wait for it, or nobody waits
    /// yet.
    pub(super) unfinished: Option<u64>,
}

impl Connection {
    /// The private data of the peer's acceptance, padded with zeroes.
    pub(crate) fn private(&self) -> &[u8] {
        &self.private
    }

    /// Whether the peer is still connected, as far as rdma_cm knows.
    pub(crate) fn is_established(&self) -> bool {
        self.id.is_established()
    }

    /// READs `len` bytes, at most a page, of the peer's memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` (longer than a page), `ETIMEDOUT` (no completion in `timeout_ns`;
    /// the connection is unusable then), `EIO` (error completion; likewise), `EINTR` (a
    /// signal came; the connection goes on).
    pub(crate) fn read(
        &mut self,
        addr: u64,
        rkey: u32,
        len: u32,
        timeout_ns: u64,
    ) -> Result<&[u8]> {
        self.finish(timeout_ns)?;
        self.post(bindings::ib_wr_opcode_IB_WR_RDMA_READ, addr, rkey, len)?;
        self.finish_read(len, timeout_ns)
    }

    /// Posts a READ without waiting for it; `false`, if another request is on its way. The
    /// next request waits for it, or [`Connection::finish_read`] takes its bytes before that.
    ///
    /// # Errors
    ///
    /// `EINVAL` (longer than a page); another one, and the connection is unusable.
    pub(crate) fn begin_read(&mut self, addr: u64, rkey: u32, len: u32) -> Result<bool> {
        if let Some(number) = self.unfinished {
            let Some(outcome) = self.cq.outcome_of(number) else {
                return Ok(false);
            };
            self.unfinished = None;
            outcome?;
        }
        self.post(bindings::ib_wr_opcode_IB_WR_RDMA_READ, addr, rkey, len)?;
        Ok(true)
    }

    /// Waits for the READ that is the last request, and answers its `len` bytes. Errors as
    /// for [`Connection::read`].
    pub(crate) fn finish_read(&mut self, len: u32, timeout_ns: u64) -> Result<&[u8]> {
        self.finish(timeout_ns)?;
        Ok(self.buffer.received(len as usize))
    }

    /// SENDs a message of at most a page. Errors as for [`Connection::read`].
    pub(crate) fn send(&mut self, message: &[u8], timeout_ns: u64) -> Result {
        self.finish(timeout_ns)?;
        self.buffer.put(message);
        self.post(
            bindings::ib_wr_opcode_IB_WR_SEND,
            0,
            0,
            message.len() as u32,
        )?;
        self.finish(timeout_ns)
    }

    /// Posts a request. No other one is on its way.
    fn post(&mut self, opcode: bindings::ib_wr_opcode, addr: u64, rkey: u32, len: u32) -> Result {
        if len as usize > kernel::page::PAGE_SIZE {
            return Err(EINVAL);
        }
        let mut sge = bindings::ib_sge {
            addr: self.buffer.addr(),
            length: len,
            lkey: self.pd.lkey(),
        };
        let mut wr = bindings::ib_rdma_wr {
            remote_addr: addr,
            rkey,
            ..Default::default()
        };
        let number = self.next_number;
        self.next_number += 1;
        wr.wr.__bindgen_anon_1.wr_id = number;
        wr.wr.sg_list = &mut sge;
        wr.wr.num_sge = 1;
        wr.wr.opcode = opcode;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        // SAFETY: the identifier has a queue pair until `drop`; the request is
        // copied; its memory is ours and stays mapped until the queue pair is
        // gone.
        to_result(unsafe { bindings::weft_ib_post_send((*self.id.as_ptr()).qp, &wr.wr) })?;
        self.unfinished = Some(number);
        Ok(())
    }

    /// Waits for the request that is on its way, if there is one. Until it has ended, its
    /// memory is the device's.
    fn finish(&mut self, timeout_ns: u64) -> Result {
        let Some(number) = self.unfinished else {
            return Ok(());
        };
        self.cq.wait_for(number, timeout_ns, true)?;
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the identifier is valid and has a queue pair. After this no
        // request uses the buffer any more.
        unsafe {
            bindings::rdma_disconnect(self.id.as_ptr());
            bindings::rdma_destroy_qp(self.id.as_ptr());
        }
    }
}
