// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reliable connected queue pairs, a type for each state that a program meets.
//!
//! An [`InitQp`] knows no peer and cannot post; connecting consumes it and gives
//! an [`RcQp`], which is in RTS:
//!
//! ```compile_fail
//! fn post(qp: &weft_verbs::InitQp, wr: &weft_verbs::WorkRequest) {
//!     qp.post(wr).unwrap();
//! }
//! ```

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use crate::cm::CmId;
use crate::endpoint::{Endpoint, PSN_MASK};
use crate::error::{done, made};
use crate::{sys, Cq, Error, LocalGid, PathMtu, Pd, Result, Srq, WorkRequest};

/// Incoming READs and atomics that a queue pair accepts at once, and outgoing
/// ones that it may have, unless told: what every NIC in use can do. One that cannot
/// (`max_qp_rd_atom`, `max_qp_init_rd_atom`) does not connect: `EINVAL`.
pub(crate) const MAX_READS_IN_FLIGHT: u8 = 16;
/// 4.096 µs × 2^14 = 67 ms until an unanswered packet is sent again; a device may take
/// four times as long (IBTA vol. 1, C9-140 to C9-142), or have a minimum of its own.
const ACK_TIMEOUT: u8 = 14;
/// How often it is. soft-RoCE takes this for "for ever", so who waits looks elsewhere
/// whether the peer is there.
const RETRIES: u8 = 7;
/// For ever, as far as a receiver with no buffer is concerned.
pub(crate) const RNR_RETRIES: u8 = 7;
/// 0.64 ms between those.
const RNR_TIMER: u8 = 12;

/// A queue pair in INIT, without a peer. It accepts READs and WRITEs later on.
#[derive(Debug)]
pub struct InitQp {
    qp: OwnedQp,
    extended: Option<Extended>,
    local: LocalGid,
    psn: u32,
    mtu: PathMtu,
    max_reads: u8,
}

/// What a queue pair is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpConfig {
    /// Requests that may be outstanding.
    pub max_send_wr: u32,
    /// Bytes that a request may carry itself instead of naming them.
    pub max_inline: u32,
    /// Whether it can do ATOMIC WRITEs; see [`Context::has_atomic_write`].
    ///
    /// [`Context::has_atomic_write`]: crate::Context::has_atomic_write
    pub atomic_write: bool,
    /// Whether the peer may do compare-and-swap and fetch-and-add.
    pub remote_atomic: bool,
    /// READs and atomic operations each way at once, at most
    /// [`Context::max_reads`](crate::Context::max_reads); none for 16, which needs
    /// no question to the device. The peer has to answer as many as this one asks.
    pub max_reads: Option<u8>,
}

impl InitQp {
    /// Makes a queue pair for `max_send_wr` requests at a time, which complete to
    /// `cq`, and takes it to INIT. (`ibv_create_qp`, `ibv_modify_qp`)
    ///
    /// # Errors
    ///
    /// `EINVAL` when the device cannot hold so many requests or `cq` is of
    /// another device, `ENOMEM` when it has no queue pair left.
    pub fn new(pd: &Pd, cq: &Cq, local: LocalGid, max_send_wr: u32) -> Result<Self> {
        let config = QpConfig {
            max_send_wr,
            ..QpConfig::default()
        };
        Self::with_config(pd, cq, local, &config)
    }

    /// As [`Self::new`], for more than plain requests. (`ibv_create_qp`,
    /// `ibv_create_qp_ex`, `ibv_modify_qp`)
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; `EINVAL`, `EOPNOTSUPP` when the device cannot do what the
    /// configuration wants.
    pub fn with_config(pd: &Pd, cq: &Cq, local: LocalGid, config: &QpConfig) -> Result<Self> {
        let mtu = pd.context().kept_mtu(local.port)?;
        let (raw, extended) = create(pd, cq, config)?;
        // SAFETY: the queue pair was just made.
        let qp_num = unsafe { raw.as_ref() }.qp_num;
        let this = Self {
            qp: OwnedQp {
                raw,
                _uses: (pd.clone(), cq.clone()),
            },
            extended,
            local,
            // Any start will do; this one differs from queue pair to queue pair.
            psn: qp_num.wrapping_mul(0x9e37_79b1) & PSN_MASK,
            mtu,
            max_reads: config.max_reads.unwrap_or(MAX_READS_IN_FLIGHT),
        };
        let mut access = sys::IBV_ACCESS_LOCAL_WRITE
            | sys::IBV_ACCESS_REMOTE_READ
            | sys::IBV_ACCESS_REMOTE_WRITE;
        if config.remote_atomic {
            access |= sys::IBV_ACCESS_REMOTE_ATOMIC;
        }
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            qp_access_flags: access,
            port_num: local.port,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_PKEY_INDEX
            | sys::IBV_QP_PORT
            | sys::IBV_QP_ACCESS_FLAGS;
        this.qp.modify(&mut attr, mask)?;
        Ok(this)
    }

    /// Its address, for the peer.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        // SAFETY: the queue pair exists.
        let qp_num = unsafe { self.qp.raw.as_ref() }.qp_num;
        Endpoint {
            gid: self.local.gid,
            qp_num,
            psn: self.psn,
            mtu: self.mtu,
        }
    }

    /// Connects to the peer's queue pair, through RTR to RTS. Packets are as large
    /// as both ports have active. (`ibv_modify_qp`)
    ///
    /// # Errors
    ///
    /// `EINVAL` when the peer's address has no route, `ETIMEDOUT` when it does
    /// not resolve.
    pub fn connect(self, peer: &Endpoint) -> Result<RcQp> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTR,
            path_mtu: self.mtu.min(peer.mtu).number().into(),
            dest_qp_num: peer.qp_num,
            rq_psn: peer.psn,
            max_dest_rd_atomic: self.max_reads,
            min_rnr_timer: RNR_TIMER,
            ah_attr: sys::ibv_ah_attr {
                grh: sys::ibv_global_route {
                    dgid: sys::ibv_gid { raw: peer.gid.0 },
                    sgid_index: self.local.index,
                    hop_limit: 64,
                    ..Default::default()
                },
                is_global: 1,
                port_num: self.local.port,
                ..Default::default()
            },
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        self.qp.modify(&mut attr, mask)?;

        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTS,
            sq_psn: self.psn,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            max_rd_atomic: self.max_reads,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY
            | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        self.qp.modify(&mut attr, mask)?;
        Ok(RcQp {
            raw: self.qp.raw,
            extended: self.extended,
            owner: Owner::Verbs(self.qp),
        })
    }
}

// SAFETY: nothing is done with the queue pair but moving it on, by `self`.
unsafe impl Send for InitQp {}
// SAFETY: as above.
unsafe impl Sync for InitQp {}

/// A connected queue pair, in RTS. Dropping it destroys it.
///
/// # Invariants
///
/// `raw` exists for as long as `owner`, and `extended`, if any, is the same
/// queue pair.
#[derive(Debug)]
pub struct RcQp {
    raw: NonNull<sys::ibv_qp>,
    extended: Option<Extended>,
    owner: Owner,
}

// SAFETY: libibverbs is thread safe; posting locks inside the provider, for
// extended requests from `ibv_wr_start` to `ibv_wr_complete`.
unsafe impl Send for RcQp {}
// SAFETY: as above.
unsafe impl Sync for RcQp {}

/// Who destroys a queue pair, together with what it was made from.
#[derive(Debug)]
enum Owner {
    Verbs(#[expect(dead_code, reason = "held to be dropped")] OwnedQp),
    Cm(
        CmId,
        #[expect(dead_code, reason = "held to be dropped")] (Pd, Cq, Option<Srq>),
    ),
}

impl RcQp {
    /// The queue pair that rdma_cm made for an id and connected.
    pub(crate) fn of_cm(
        raw: NonNull<sys::ibv_qp>,
        id: CmId,
        (pd, cq, srq): (&Pd, &Cq, Option<&Srq>),
    ) -> Self {
        // INVARIANT: the id destroys its queue pair when it is dropped.
        Self {
            raw,
            extended: None,
            owner: Owner::Cm(id, (pd.clone(), cq.clone(), srq.cloned())),
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_qp {
        self.raw.as_ptr()
    }

    /// The queue pair for extended requests, if it was made for them.
    pub(crate) fn extended(&self) -> Option<*mut sys::ibv_qp_ex> {
        self.extended.map(NonNull::as_ptr)
    }

    /// The rdma_cm id that it belongs to, if it belongs to one.
    pub(crate) fn cm_id(&self) -> Option<&CmId> {
        match &self.owner {
            Owner::Cm(id, _) => Some(id),
            Owner::Verbs(_) => None,
        }
    }

    /// The path MTU that it is connected with. (`ibv_query_qp`)
    ///
    /// # Errors
    ///
    /// What the device answers.
    pub fn path_mtu(&self) -> Result<PathMtu> {
        let mut attr = sys::ibv_qp_attr::default();
        let mut init = sys::ibv_qp_init_attr::default();
        let mask = c_int::try_from(sys::IBV_QP_PATH_MTU).unwrap_or(c_int::MAX);
        // SAFETY: the queue pair exists and both attributes are writable.
        let answer = unsafe { sys::ibv_query_qp(self.raw(), &mut attr, mask, &mut init) };
        done("ibv_query_qp", answer)?;
        PathMtu::from_number(attr.path_mtu).ok_or(Error::BadEndpoint)
    }

    /// Takes it to RESET, for good: what is posted is dropped without completions, what the
    /// peer has sent or sends yet is not carried out, and what is posted later is refused.
    /// (`ibv_modify_qp`)
    ///
    /// # Errors
    ///
    /// What the device answers.
    pub fn reset(&self) -> Result<()> {
        // SAFETY: the queue pair exists (invariant).
        unsafe { take_to(self.raw(), sys::IBV_QPS_RESET) }
    }

    /// Posts a request, which makes a completion. (`ibv_post_send`)
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the queue is full.
    pub fn post(&self, request: &WorkRequest) -> Result<()> {
        // SAFETY: the queue pair exists (invariant).
        unsafe { post_one(self.raw(), request, true) }
    }

    /// Posts a request that makes a completion only if it fails. What it takes of
    /// the queue becomes free with the next one that makes one.
    /// (`ibv_post_send`)
    ///
    /// # Errors
    ///
    /// As [`Self::post`].
    pub fn post_unsignaled(&self, request: &WorkRequest) -> Result<()> {
        // SAFETY: the queue pair exists (invariant).
        unsafe { post_one(self.raw(), request, false) }
    }
}

/// Takes a queue pair to a state that needs no other attributes.
///
/// # Safety
///
/// The queue pair exists.
pub(crate) unsafe fn take_to(qp: *mut sys::ibv_qp, state: sys::ibv_qp_state) -> Result<()> {
    let mut attr = sys::ibv_qp_attr {
        qp_state: state,
        ..Default::default()
    };
    let mask = c_int::try_from(sys::IBV_QP_STATE).unwrap_or(c_int::MAX);
    // SAFETY: the caller's promise; the attributes are whole.
    let answer = unsafe { sys::ibv_modify_qp(qp, &mut attr, mask) };
    done("ibv_modify_qp", answer)
}

/// Posts one request.
///
/// # Safety
///
/// The queue pair exists.
pub(crate) unsafe fn post_one(
    qp: *mut sys::ibv_qp,
    request: &WorkRequest,
    signaled: bool,
) -> Result<()> {
    let mut element = request.element();
    let mut wr = request.raw(&mut element, signaled);
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's promise; request and element live through the call,
    // which copies them.
    let answer = unsafe { sys::ibv_post_send(qp, &mut wr, &mut bad) };
    done("ibv_post_send", answer)
}

/// A queue pair as the extended post calls (`ibv_wr_start`, ...) know it.
type Extended = NonNull<sys::ibv_qp_ex>;

/// Makes a queue pair, which the caller then owns.
fn create(pd: &Pd, cq: &Cq, config: &QpConfig) -> Result<(NonNull<sys::ibv_qp>, Option<Extended>)> {
    let mut plain = init_attr(cq, config.max_send_wr);
    plain.cap.max_inline_data = config.max_inline;
    if !config.atomic_write {
        // SAFETY: domain and queue exist; the caller keeps them with the pair.
        let raw = unsafe { sys::ibv_create_qp(pd.raw(), &mut plain) };
        return Ok((made("ibv_create_qp", raw)?, None));
    }
    let mut init = sys::ibv_qp_init_attr_ex {
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        qp_type: plain.qp_type,
        cap: plain.cap,
        pd: pd.raw(),
        comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags: u64::from(
            sys::IBV_QP_EX_WITH_RDMA_WRITE
                | sys::IBV_QP_EX_WITH_RDMA_READ
                | sys::IBV_QP_EX_WITH_SEND
                | sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
                | sys::IBV_QP_EX_WITH_ATOMIC_WRITE,
        ),
        ..Default::default()
    };
    // SAFETY: as above; the context is the domain's.
    let raw = unsafe { sys::ibv_create_qp_ex(pd.context().raw(), &mut init) };
    let raw = made("ibv_create_qp_ex", raw)?;
    // SAFETY: the queue pair was made with extended requests.
    let extended = unsafe { sys::ibv_qp_to_qp_ex(raw.as_ptr()) };
    Ok((raw, NonNull::new(extended)))
}

/// What every queue pair that sends is made with.
pub(crate) fn init_attr(cq: &Cq, max_send_wr: u32) -> sys::ibv_qp_init_attr {
    sys::ibv_qp_init_attr {
        send_cq: cq.raw(),
        recv_cq: cq.raw(),
        qp_type: sys::IBV_QPT_RC,
        cap: sys::ibv_qp_cap {
            max_send_wr,
            max_send_sge: 1,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// A queue pair that `ibv_create_qp` made.
#[derive(Debug)]
struct OwnedQp {
    raw: NonNull<sys::ibv_qp>,
    _uses: (Pd, Cq),
}

// SAFETY: libibverbs is thread safe.
unsafe impl Send for OwnedQp {}
// SAFETY: as above.
unsafe impl Sync for OwnedQp {}

impl OwnedQp {
    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> Result<()> {
        let mask = c_int::try_from(mask).unwrap_or(c_int::MAX);
        // SAFETY: the queue pair exists; the attributes are whole.
        let answer = unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), attr, mask) };
        done("ibv_modify_qp", answer)
    }
}

impl Drop for OwnedQp {
    fn drop(&mut self) {
        // SAFETY: made in `InitQp::new`, destroyed here only; what it uses goes
        // after it.
        unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
    }
}
