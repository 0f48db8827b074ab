// SPDX-License-Identifier: GPL-2.0

//! RC queue pairs that are connected without rdma_cm. Only one that is ready to
//! send has operations to post: `Qp<Init>` becomes `Qp<Ready>` when it learns of
//! its other half.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::rc::{ACK_TIMEOUT, RETRIES};

use crate::bindings::*;
use crate::rdma::{Completes, Cq, Pd, Port};

/// The first P_Key, which all ports have.
const PKEY_INDEX: u16 = 0;
/// How often a request is repeated for want of a receive buffer: until it works. 7 means
/// that in the field of three bits (IBTA vol. 1, Modify Queue Pair; `rxe_completer`).
const RNR_RETRIES: u8 = 7;
/// Asks senders for 0.64 ms of patience then.
const RNR_TIMER: u8 = 12;
/// Hops that a packet may take.
const HOP_LIMIT: u8 = 64;

/// A queue pair's state: not connected.
pub(crate) struct Init;
/// A queue pair's state: ready to send.
pub(crate) struct Ready;

/// The other half of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) gid: Gid,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    /// A number of `ib_mtu`, that both ends take.
    pub(crate) mtu: u8,
    /// READs that the other end answers at a time.
    pub(crate) read_depth: u8,
}

/// Sizes of a queue pair, and what its peer may do.
pub(crate) struct Capacity {
    pub(crate) sends: u32,
    pub(crate) sges: u32,
    pub(crate) receives: u32,
    /// Bytes that a request may have in itself.
    pub(crate) inline: u32,
    /// The peer may access memory, as the regions allow. Else it sends messages alone.
    pub(crate) lets_access: bool,
}

/// # Invariants
///
/// `raw` is valid, of the domain `pd`, and completes on `_cq`. It is in the state
/// that `S` says, or in error.
pub(crate) struct Qp<S, C: Completes = Cq> {
    raw: NonNull<ib_qp>,
    pd: Arc<Pd>,
    _cq: Arc<C>,
    _state: PhantomData<S>,
}

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl<S, C: Completes> Send for Qp<S, C> {}
// SAFETY: as above.
unsafe impl<S, C: Completes> Sync for Qp<S, C> {}

impl<S, C: Completes> Qp<S, C> {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: valid by the invariant; the number does not change.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    fn modify(&self, attr: &mut ib_qp_attr, mask: ib_qp_attr_mask) -> Result {
        // SAFETY: valid by the invariant; the attributes are local.
        to_result(unsafe { ib_modify_qp(self.raw.as_ptr(), attr, mask as i32) })
    }

    /// Breaks it: what is outstanding is flushed, and nothing is sent any more.
    pub(crate) fn fail(&self) {
        let mut attr = ib_qp_attr {
            qp_state: ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        // It fails only if the queue pair is in error already.
        let _ = self.modify(&mut attr, ib_qp_attr_mask_IB_QP_STATE);
    }
}

impl<C: Completes> Qp<Init, C> {
    /// A queue pair of the port, not connected, whose peer may access memory as the
    /// regions of `pd` allow.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` (requests cannot have as many bytes of their own), and those of ib_core.
    pub(crate) fn new(port: Port, pd: Arc<Pd>, cq: Arc<C>, capacity: &Capacity) -> Result<Self> {
        let mut init = ib_qp_init_attr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            sq_sig_type: ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        init.cap.max_send_wr = capacity.sends;
        init.cap.max_send_sge = capacity.sges;
        init.cap.max_inline_data = capacity.inline;
        init.cap.max_recv_wr = capacity.receives;
        init.cap.max_recv_sge = 1;
        // SAFETY: domain and queue are valid, and owned by the result.
        let raw = from_err_ptr(unsafe {
            ib_create_qp_kernel(pd.as_ptr(), &mut init, c"weft".as_char_ptr())
        })?;
        // INVARIANT: made so; in the state below, or dropped.
        let this = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            pd,
            _cq: cq,
            _state: PhantomData,
        };
        // The driver says what it has made, which is to be at least what was asked for. mlx4
        // and vmw_pvrdma say 0 here, and would take bytes of the request for an address.
        if init.cap.max_inline_data < capacity.inline {
            return Err(crate::errno::not_supported());
        }
        let mut access = 0;
        if capacity.lets_access {
            access |=
                ib_access_flags_IB_ACCESS_REMOTE_READ | ib_access_flags_IB_ACCESS_REMOTE_WRITE;
            // Others are done by DC, and not every driver knows the flag.
            if port.device.has_global_atomics() {
                access |= ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
            }
        }
        let mut attr = ib_qp_attr {
            qp_state: ib_qp_state_IB_QPS_INIT,
            pkey_index: PKEY_INDEX,
            port_num: port.number,
            qp_access_flags: access as i32,
            ..Default::default()
        };
        let mask = ib_qp_attr_mask_IB_QP_STATE
            | ib_qp_attr_mask_IB_QP_PKEY_INDEX
            | ib_qp_attr_mask_IB_QP_PORT
            | ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
        this.modify(&mut attr, mask)?;
        Ok(this)
    }

    /// Posts a receive buffer of no bytes.
    pub(crate) fn post_empty_receive(&self, wr_id: u64) -> Result {
        let mut wr = ib_recv_wr::default();
        wr.__bindgen_anon_1.wr_id = wr_id;
        // SAFETY: it names no memory.
        unsafe { self.post_receive(&wr) }
    }

    /// Connects it to the other half. `from` is the port's own GID, `psn` the first that
    /// it sends, and `read_depth` what this end sends and answers at a time. May sleep:
    /// the peer's link address is looked up.
    pub(crate) fn connect(
        self,
        port: Port,
        from: &Gid,
        to: &Remote,
        psn: u32,
        read_depth: (u8, u8),
    ) -> Result<Qp<Ready, C>> {
        let mut attr = ib_qp_attr {
            qp_state: ib_qp_state_IB_QPS_RTR,
            path_mtu: ib_mtu::from(to.mtu),
            dest_qp_num: to.qpn,
            rq_psn: to.psn,
            max_dest_rd_atomic: read_depth.0,
            min_rnr_timer: RNR_TIMER,
            ah_attr: self.address(port, from, to.gid)?,
            ..Default::default()
        };
        let mask = ib_qp_attr_mask_IB_QP_STATE
            | ib_qp_attr_mask_IB_QP_AV
            | ib_qp_attr_mask_IB_QP_PATH_MTU
            | ib_qp_attr_mask_IB_QP_DEST_QPN
            | ib_qp_attr_mask_IB_QP_RQ_PSN
            | ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
            | ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask)?;
        let mut attr = ib_qp_attr {
            qp_state: ib_qp_state_IB_QPS_RTS,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            sq_psn: psn,
            max_rd_atomic: read_depth.1.min(to.read_depth),
            ..Default::default()
        };
        let mask = ib_qp_attr_mask_IB_QP_STATE
            | ib_qp_attr_mask_IB_QP_TIMEOUT
            | ib_qp_attr_mask_IB_QP_RETRY_CNT
            | ib_qp_attr_mask_IB_QP_RNR_RETRY
            | ib_qp_attr_mask_IB_QP_SQ_PSN
            | ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask)?;
        let this = core::mem::ManuallyDrop::new(self);
        // INVARIANT: it is ready to send.
        Ok(Qp {
            raw: this.raw,
            // SAFETY: `this` is not used or dropped after this.
            pd: unsafe { core::ptr::read(&this.pd) },
            // SAFETY: as above.
            _cq: unsafe { core::ptr::read(&this._cq) },
            _state: PhantomData,
        })
    }

    /// The way to a peer. ib_core expects kernel users to know the link address
    /// (`_ib_modify_qp` in drivers/infiniband/core/verbs.c); the one exported call that
    /// looks it up makes an address handle, which is not kept. A peer that gets another
    /// link address later is out of reach for this queue pair, which then breaks.
    fn address(&self, port: Port, from: &Gid, to: Gid) -> Result<rdma_ah_attr> {
        let index = port.index_of(from).ok_or(ENODEV)?;
        let mut attr = rdma_ah_attr {
            port_num: port.number,
            type_: rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE,
            ah_flags: ib_ah_flags_IB_AH_GRH as u8,
            ..Default::default()
        };
        attr.grh.dgid.raw = to.0;
        attr.grh.sgid_index = u8::try_from(index).map_err(|_| EINVAL)?;
        attr.grh.hop_limit = HOP_LIMIT;
        // SAFETY: the domain is valid, the attributes are local; there is no user
        // to answer.
        let handle = from_err_ptr(unsafe {
            rdma_create_user_ah(self.pd.as_ptr(), &mut attr, core::ptr::null_mut())
        })?;
        // SAFETY: made just above, and used by nobody. Sleeping is allowed.
        unsafe { rdma_destroy_ah_user(handle, 0, core::ptr::null_mut()) };
        Ok(attr)
    }
}

impl<S, C: Completes> Qp<S, C> {
    /// The key for DMA buffers of the kernel.
    pub(crate) fn lkey(&self) -> u32 {
        self.pd.lkey()
    }

    /// Posts a receive buffer.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    ///
    /// # Safety
    ///
    /// The list of memory is valid during the call; what it names stays mapped, and nobody
    /// else's, until the completion or until the queue pair is gone.
    pub(crate) unsafe fn post_receive(&self, wr: &ib_recv_wr) -> Result {
        // SAFETY: valid by the invariant; the rest is the caller's promise.
        to_result(unsafe { weft_ib_post_recv(self.raw.as_ptr(), wr) })
    }
}

impl<C: Completes> Qp<Ready, C> {
    /// Posts a chain of requests.
    ///
    /// # Errors
    ///
    /// Those of the driver; part of the chain may have been posted.
    ///
    /// # Safety
    ///
    /// Requests and their lists of memory are valid during the call; the memory
    /// that they name stays registered until they have ended.
    pub(crate) unsafe fn post(&self, first: *const ib_send_wr) -> Result {
        // SAFETY: valid by the invariant; the rest is the caller's promise.
        to_result(unsafe { weft_ib_post_send(self.raw.as_ptr(), first) })
    }
}

impl<S, C: Completes> Drop for Qp<S, C> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this. No request of it touches memory
        // any more when this returns: that is what the verb means (IBTA vol. 1, Destroy
        // Queue Pair), and what ib_core's other users free their buffers on. It is not
        // to fail for a queue pair of the kernel's.
        let err = unsafe { ib_destroy_qp_user(self.raw.as_ptr(), core::ptr::null_mut()) };
        if err != 0 {
            pr_err!("a queue pair could not be destroyed: {err}\n");
        }
    }
}
