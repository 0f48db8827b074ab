// SPDX-License-Identifier: GPL-2.0

//! Packets over RC: a queue pair that carries the packets of SoftDc to one peer and back
//! (krcore §4.4: messages of all virtual queue pairs arrive in buffers of the kernel). What
//! is in them, for whom they are, and what has to be repeated is SoftDc's matter, as with
//! packets that go by UDP; so a stream may change from one to the other with any packet.
//!
//! It is not the queue pair that carries one-sided requests: those would wait whenever
//! the peer has no buffer, and softirqs would need their lock.
//!
//! Lock order: a link's `state` is inside of those of streams and contexts, and of `ending`. No
//! packet is handled while it is held.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::CONTEXT_IDLE_NS;
use weft_core::gid::Gid;
use weft_core::rc::PacketEnd;

use crate::bindings::{
    self, ib_recv_wr, ib_send_flags_IB_SEND_SIGNALED, ib_send_wr, ib_sge,
    ib_wc_status_IB_WC_SUCCESS, ib_wr_opcode_IB_WR_SEND,
};
use crate::clock::coarse_ns;
use crate::counters::COUNTERS;
use crate::net::{Endpoint, Handler, Skb};
use crate::random::random_u32;
use crate::rdma::{
    Capacity, Device, DmaBuffer, EndOf, Entry, Hears, Init, Pd, Port, Qp, Ready, Remote, SoftirqCq,
};
use crate::sync::{new_lock, BhDisabled, BhLock};

/// Packets that may be on their way at a time. More than the peer has buffers for: it gives
/// the device a buffer back as soon as its packet was copied.
const SENDS: usize = 256;
/// Buffers for packets that come.
const BUFFERS: usize = 64;
const ENTRIES: usize = SENDS + BUFFERS;
/// How long a packet may be on its way before the link is given up, which is looked for once
/// a second. One must not come so late that its context is gone
/// ([`weft_core::dc::CONTEXT_IDLE_NS`]): it would open another, and be carried out twice.
const PATIENCE_NS: u64 = 3_000_000_000;
const _: () = assert!(2 * PATIENCE_NS < CONTEXT_IDLE_NS);
/// PSNs have 24 bits.
const PSN_MASK: u32 = 0x00ff_ffff;
/// READs at a time; there will be none.
const READS: u8 = 1;

/// The bytes of a packet, for the device to read.
///
/// # Invariants
///
/// `dma` is the device's mapping of them.
struct Mapping {
    device: Device,
    dma: u64,
    len: usize,
}

impl Mapping {
    /// Maps a packet, which has to live longer.
    fn new(device: Device, packet: &Skb) -> Result<Self> {
        let bytes = packet.start(packet.len());
        let len = bytes.len();
        if len != packet.len() as usize {
            return Err(EINVAL);
        }
        // SAFETY: the device is valid, and the bytes are the packet's.
        let dma = unsafe {
            bindings::weft_ib_dma_map(device.as_ptr(), bytes.as_ptr().cast_mut().cast(), len)
        };
        // SAFETY: the device is valid.
        if unsafe { bindings::weft_ib_dma_failed(device.as_ptr(), dma) } {
            return Err(ENOMEM);
        }
        // INVARIANT: mapped just above.
        Ok(Self { device, dma, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: device and mapping are valid by the invariant.
        unsafe { bindings::weft_ib_dma_unmap(self.device.as_ptr(), self.dma, self.len) };
    }
}

/// A packet on its way. Fields are dropped in order.
struct Outgoing {
    _mapping: Mapping,
    _packet: Skb,
    since_ns: u64,
}

/// Takes what comes, from there.
struct Up {
    link: Arc<PacketLink>,
    handler: Arc<dyn Handler>,
    from: Endpoint,
}

struct State {
    device: Device,
    /// `None` before it is connected, and once it was shut down.
    qp: Option<Qp<Ready, SoftirqCq>>,
    /// Likewise; it holds the link in turn, until that is shut down.
    up: Option<Arc<Up>>,
    /// Packets on their way, by the number of their entry.
    sent: KVec<Option<Outgoing>>,
    /// The numbers of entries without one.
    free: KVec<u32>,
    buffers: KVec<DmaBuffer>,
}

/// A queue pair to a peer, for packets.
#[pin_data]
pub(crate) struct PacketLink {
    /// Those of packets on their way, then those of buffers.
    entries: KVec<Entry<Self>>,
    /// Bytes of the longest packet that the peer takes.
    longest: AtomicU32,
    is_open: AtomicBool,
    /// Held by who shuts it down: another one waits for the end of that.
    #[pin]
    ending: Mutex<()>,
    #[pin]
    state: BhLock<State>,
}

/// One that does not know its other half yet. Fields are dropped in order.
pub(crate) struct PacketOpening {
    qp: Qp<Init, SoftirqCq>,
    link: Arc<PacketLink>,
    psn: u32,
    bytes: u32,
}

/// The peer of a packet link.
pub(crate) struct PacketPeer {
    pub(crate) gid: Gid,
    /// Where its packets come from by UDP: they are of the same streams.
    pub(crate) endpoint: Endpoint,
    /// A number of `ib_mtu`, that both ends take.
    pub(crate) mtu: u8,
    pub(crate) end: PacketEnd,
}

impl PacketOpening {
    /// A queue pair of the port for packets of up to `bytes`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of ib_core.
    pub(crate) fn new(port: Port, pd: Arc<Pd>, bytes: u32) -> Result<Self> {
        let link = PacketLink::new(port.device, bytes as usize)?;
        // SAFETY: the link is pinned and counted, and has the entries. It outlives the
        // queue: here by the order of fields, later by `PacketLink::shut_down`.
        let cq = unsafe { SoftirqCq::new(port.device, ENTRIES as u32, &raw const *link) }?;
        let capacity = Capacity {
            sends: SENDS as u32,
            sges: 1,
            receives: BUFFERS as u32,
            inline: 0,
            lets_access: false,
        };
        let qp = Qp::new(port, pd, Arc::new(cq, GFP_KERNEL)?, &capacity)?;
        Ok(Self {
            qp,
            link,
            psn: random_u32() & PSN_MASK,
            bytes,
        })
    }

    /// For the peer.
    pub(crate) fn end(&self) -> PacketEnd {
        PacketEnd {
            qpn: self.qp.number(),
            psn: self.psn,
            bytes: self.bytes,
        }
    }

    /// Connects it to the other half, `own` being the port's own GID. What comes goes to
    /// `handler`, until [`PacketLink::shut_down`], which has to be called. May sleep.
    ///
    /// # Errors
    ///
    /// Those of the driver and of [`Qp::connect`].
    pub(crate) fn connect(
        self,
        port: Port,
        own: &Gid,
        peer: &PacketPeer,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<PacketLink>> {
        // The queue pair, which is named behind the link, is dropped first: it uses the entries.
        let Self { link, qp, psn, .. } = self;
        for index in 0..BUFFERS {
            link.post_buffer(&link.state.lock(), &qp, index)?;
        }
        let to = Remote {
            gid: peer.gid,
            qpn: peer.end.qpn,
            psn: peer.end.psn,
            mtu: peer.mtu,
            read_depth: READS,
        };
        let qp = qp.connect(port, own, &to, psn, (READS, READS))?;
        link.longest.store(peer.end.bytes, Ordering::Relaxed);
        let up = Up {
            link: link.clone(),
            handler,
            from: peer.endpoint,
        };
        let up = Arc::new(up, GFP_KERNEL)?;
        {
            let mut state = link.state.lock();
            state.qp = Some(qp);
            state.up = Some(up);
        }
        link.is_open.store(true, Ordering::Release);
        Ok(link)
    }
}

impl PacketLink {
    fn new(device: Device, bytes: usize) -> Result<Arc<Self>> {
        let mut entries = KVec::with_capacity(ENTRIES, GFP_KERNEL)?;
        for number in 0..ENTRIES as u32 {
            entries.push(Entry::new(number), GFP_KERNEL)?;
        }
        let mut sent = KVec::with_capacity(SENDS, GFP_KERNEL)?;
        let mut free = KVec::with_capacity(SENDS, GFP_KERNEL)?;
        for number in 0..SENDS as u32 {
            sent.push(None, GFP_KERNEL)?;
            free.push(number, GFP_KERNEL)?;
        }
        let mut buffers = KVec::with_capacity(BUFFERS, GFP_KERNEL)?;
        for _ in 0..BUFFERS {
            buffers.push(DmaBuffer::new(device, bytes)?, GFP_KERNEL)?;
        }
        let state = State {
            device,
            qp: None,
            up: None,
            sent,
            free,
            buffers,
        };
        Arc::pin_init(
            pin_init!(Self {
                entries,
                longest: AtomicU32::new(0),
                is_open: AtomicBool::new(false),
                ending <- kernel::new_mutex!((), "weft_packet_link_ending"),
                state <- new_lock!(state, "weft_packet_link"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sends a packet; gives it back if it is not open, or has no room, or the peer takes
    /// none so long. Softirqs may be enabled or not.
    pub(crate) fn send(&self, packet: Skb) -> Result<(), Skb> {
        let fits = packet.len() <= self.longest.load(Ordering::Relaxed);
        if !fits || !self.is_open.load(Ordering::Acquire) {
            return Err(packet);
        }
        self.post(&mut self.state.lock(), packet)
    }

    fn post(&self, state: &mut State, packet: Skb) -> Result<(), Skb> {
        let Some(number) = state.free.pop() else {
            COUNTERS.rc_packets_turned_away.bump();
            return Err(packet);
        };
        let posted = Mapping::new(state.device, &packet).and_then(|mapping| {
            self.post_mapped(state, number, &mapping)
                .inspect_err(|_| self.close())?;
            Ok(mapping)
        });
        let Ok(mapping) = posted else {
            state.set_free(number);
            return Err(packet);
        };
        if let Some(place) = state.sent.get_mut(number as usize) {
            *place = Some(Outgoing {
                _mapping: mapping,
                _packet: packet,
                since_ns: coarse_ns(),
            });
        }
        COUNTERS.rc_packets.bump();
        Ok(())
    }

    fn post_mapped(&self, state: &State, number: u32, mapping: &Mapping) -> Result {
        let qp = state.qp.as_ref().ok_or(ENODEV)?;
        let entry = self.entries.get(number as usize).ok_or(EINVAL)?;
        let mut sge = ib_sge {
            addr: mapping.dma,
            length: mapping.len as u32,
            lkey: qp.lkey(),
        };
        let mut wr = ib_send_wr::default();
        wr.__bindgen_anon_1.wr_cqe = entry.as_ptr();
        wr.sg_list = &mut sge;
        wr.num_sge = 1;
        wr.opcode = ib_wr_opcode_IB_WR_SEND;
        wr.send_flags = ib_send_flags_IB_SEND_SIGNALED;
        // SAFETY: request and list are valid during the call. The packet stays mapped until
        // its completion has come, or until the queue pair is gone.
        unsafe { qp.post(&wr) }
    }

    /// Gives the device a buffer; the caller holds `state`'s lock.
    fn post_buffer<S>(&self, state: &State, qp: &Qp<S, SoftirqCq>, index: usize) -> Result {
        let buffer = state.buffers.get(index).ok_or(EINVAL)?;
        let entry = self.entries.get(SENDS + index).ok_or(EINVAL)?;
        let mut sge = ib_sge {
            addr: buffer.addr(),
            length: buffer.len() as u32,
            lkey: qp.lkey(),
        };
        let mut wr = ib_recv_wr::default();
        wr.__bindgen_anon_1.wr_cqe = entry.as_ptr();
        wr.sg_list = &mut sge;
        wr.num_sge = 1;
        // SAFETY: the list is valid during the call. The buffer is looked at only after
        // its completion, and goes after the queue pair.
        unsafe { qp.post_receive(&wr) }
    }

    /// A packet is in a buffer.
    fn received(&self, index: usize, len: u32) {
        let (packet, up) = {
            let mut state = self.state.lock();
            let packet = state.take(index, len);
            let is_posted = match &state.qp {
                Some(qp) => self.post_buffer(&state, qp, index).is_ok(),
                None => true,
            };
            if !is_posted {
                self.close();
            }
            (packet, state.up.clone())
        };
        // Without memory for it, it counts as lost.
        if let (Some(packet), Some(up)) = (packet, up) {
            up.handler.receive(packet, up.from, Some(&up.link));
        }
    }

    /// Whether packets are sent over it.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Sends nothing any more.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Gives it up if a packet has been on its way for too long; then all go by UDP. To be
    /// called once a second. May sleep.
    pub(crate) fn maintain(&self) {
        let now_ns = coarse_ns();
        let is_late = |sent: &Outgoing| now_ns.saturating_sub(sent.since_ns) > PATIENCE_NS;
        let has_late = self.state.lock().sent.iter().flatten().any(is_late);
        if has_late {
            pr_debug!("packets take too long by RC\n");
            self.shut_down();
        }
    }

    /// Ends it: no packet is being sent or received when this returns, and none will be.
    /// May sleep; may be called again.
    pub(crate) fn shut_down(&self) {
        self.close();
        let ending = self.ending.lock();
        let (qp, up) = {
            let mut state = self.state.lock();
            (state.qp.take(), state.up.take())
        };
        // The queue pair goes, and the completion queue once nobody handles its completions.
        drop(qp);
        let (sent, buffers) = {
            let mut state = self.state.lock();
            (
                core::mem::take(&mut state.sent),
                core::mem::take(&mut state.buffers),
            )
        };
        drop((sent, buffers));
        drop(ending);
        // Last: it may hold the last reference to the link.
        drop(up);
    }
}

impl State {
    /// The entry has no packet any more.
    fn set_free(&mut self, number: u32) {
        // There is room for all.
        let _ = self.free.push_within_capacity(number);
    }

    /// Copies a packet out of a buffer.
    fn take(&mut self, index: usize, len: u32) -> Option<Skb> {
        let bytes = self.buffers.get_mut(index)?.received(len as usize);
        let len = bytes.len() as u32;
        let mut packet = Skb::with_room(len, &BhDisabled::new())?;
        packet.append(len).copy_from_slice(bytes);
        Some(packet)
    }
}

impl Hears for PacketLink {
    fn ended(&self, end: EndOf) {
        let is_ok = end.status == ib_wc_status_IB_WC_SUCCESS;
        if !is_ok {
            // It broke. What was on its way SoftDc repeats, by UDP.
            self.close();
        }
        match (end.number as usize).checked_sub(SENDS) {
            Some(index) if is_ok => self.received(index, end.len),
            Some(_) => {}
            None => {
                let sent = {
                    let mut state = self.state.lock();
                    let place = state.sent.get_mut(end.number as usize);
                    let sent = place.and_then(Option::take);
                    state.set_free(end.number);
                    sent
                };
                drop(sent);
            }
        }
    }
}
