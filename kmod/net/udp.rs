// SPDX-License-Identifier: GPL-2.0

//! The UDP bearer: a kernel tunnel socket on the port's network device, as
//! soft-RoCE itself uses (`drivers/infiniband/sw/rxe/rxe_net.c`).
//!
//! Packets arrive in the receive softirq and are handled there.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use kernel::error::to_result;
use kernel::prelude::*;
use weft_core::dc::wire::{MESSAGE_BYTES, REQUEST_BYTES};

use crate::bindings;
use crate::net::{Endpoint, Handler, Netns, Skb};

/// Bytes of UDP and IPv4 headers.
const IP_UDP_BYTES: u32 = 28;
const IP_TTL: u8 = 64;
/// `encap_type` has to be set for `encap_rcv` to be called; rxe uses 1 as well.
const ENCAP_TYPE: u8 = 1;

/// A bearer on one address and port.
///
/// # Invariants
///
/// - `sock` is a UDP socket on which we hold a reference.
/// - `socket` is its owner until [`UdpBearer::stop`] takes it.
/// - `net` is the socket's namespace, valid until [`UdpBearer::stop`] has returned;
///   who uses it has seen `running` set with softirqs disabled, and leaves them
///   disabled until it has done.
pub(crate) struct UdpBearer {
    socket: AtomicPtr<bindings::socket>,
    sock: NonNull<bindings::sock>,
    net: NonNull<bindings::net>,
    local: Endpoint,
    payload_max: u32,
    packet_max: u32,
    running: AtomicBool,
}

// SAFETY: sockets are made for use from any context; the rest is atomic or never
// changes.
unsafe impl Send for UdpBearer {}
// SAFETY: as above.
unsafe impl Sync for UdpBearer {}

/// A route to a peer, looked up again when the kernel says that it is outdated.
///
/// # Invariants
///
/// `route` is NULL or a route on which we hold a reference.
pub(crate) struct UdpPath {
    to: Endpoint,
    route: *mut bindings::rtable,
}

// SAFETY: a counted reference may be used and dropped by any thread.
unsafe impl Send for UdpPath {}

impl UdpBearer {
    /// Binds a socket. Nothing is received before [`UdpBearer::start`].
    ///
    /// # Safety
    ///
    /// The namespace stays valid until [`UdpBearer::stop`] has returned, without the
    /// reference that is passed in.
    pub(crate) unsafe fn open(
        netns: &Netns,
        local: Endpoint,
        mtu: u32,
        chunk_max: u32,
    ) -> Result<Self> {
        let mut config = bindings::udp_port_cfg {
            family: 2,
            ..Default::default()
        };
        config.__bindgen_anon_1.local_ip.s_addr = u32::from_ne_bytes(local.addr);
        config.local_udp_port = local.port.to_be();
        config.set_use_udp_checksums(1);
        let mut socket = ptr::null_mut();
        // SAFETY: the namespace is valid and referenced; the rest is local.
        to_result(unsafe {
            bindings::udp_sock_create4(netns.raw().as_ptr(), &mut config, &mut socket)
        })?;
        // SAFETY: the call succeeded, so that `socket` is a valid socket.
        let sock = NonNull::new(unsafe { (*socket).sk }).ok_or(EINVAL)?;
        // SAFETY: `sock` is valid as long as the socket is.
        unsafe { bindings::weft_sock_hold(sock.as_ptr()) };
        let packet_max = mtu.saturating_sub(IP_UDP_BYTES);
        let room = packet_max.saturating_sub((REQUEST_BYTES + MESSAGE_BYTES) as u32);
        // Powers of two keep chunks within pages of the target.
        let payload_max = if room >= chunk_max {
            chunk_max
        } else {
            (room / 2 + 1).next_power_of_two().max(256)
        };
        // INVARIANT: the reference was taken above; the namespace as the caller promises.
        Ok(Self {
            socket: AtomicPtr::new(socket),
            sock,
            net: netns.raw(),
            local,
            payload_max,
            packet_max,
            running: AtomicBool::new(false),
        })
    }

    /// Lets packets in.
    ///
    /// # Safety
    ///
    /// `handler` is valid until [`UdpBearer::stop`] has returned.
    pub(crate) unsafe fn start<H: Handler>(&self, handler: *const H) {
        let mut config = bindings::udp_tunnel_sock_cfg {
            sk_user_data: handler.cast_mut().cast(),
            encap_type: ENCAP_TYPE,
            encap_rcv: Some(receive::<H>),
            ..Default::default()
        };
        self.running.store(true, Ordering::Release);
        // SAFETY: namespace and socket are valid by the invariants; the config is
        // copied.
        unsafe {
            bindings::setup_udp_tunnel_sock(self.net.as_ptr(), self.sock.as_ptr(), &mut config)
        };
    }

    /// Closes the socket. When this returns no packet is being received or sent,
    /// and none will be. May sleep.
    pub(crate) fn stop(&self) {
        self.running.store(false, Ordering::Release);
        let socket = self.socket.swap(ptr::null_mut(), Ordering::AcqRel);
        if !socket.is_null() {
            // SAFETY: the socket was ours and nobody else took it.
            unsafe { bindings::udp_tunnel_sock_release((*socket).sk) };
            // The release waits for nobody. A receiver may have found the handler
            // before it was cleared, and a sender may have seen `running` before:
            // the one is in an RCU read-side section of the network stack, the
            // other has softirqs disabled, which counts as one.
            // SAFETY: may sleep, and is in no such section.
            unsafe { bindings::synchronize_net() };
        }
    }

    /// The route of `path`, with a reference for the packet that will use it.
    fn route(&self, path: &mut UdpPath) -> Option<NonNull<bindings::rtable>> {
        // SAFETY: a route that is not NULL is valid by the path's invariant.
        if path.route.is_null() || !unsafe { bindings::weft_route_is_current(path.route) } {
            path.forget();
            let (from, to) = (
                u32::from_ne_bytes(self.local.addr),
                u32::from_ne_bytes(path.to.addr),
            );
            // SAFETY: the namespace is valid by the bearer's invariant: `send` has
            // seen `running` with softirqs disabled, as they still are, and `stop`
            // clears it and then waits for a grace period.
            // INVARIANT: the look-up gives us the reference.
            path.route = unsafe { bindings::weft_route(self.net.as_ptr(), from, to) };
        }
        let route = NonNull::new(path.route)?;
        // SAFETY: valid by the invariant; the new reference is the packet's.
        unsafe { bindings::weft_route_hold(route.as_ptr()) };
        Some(route)
    }

    /// Largest chunk that fits into a packet with its headers, in bytes.
    pub(crate) fn payload_max(&self) -> u32 {
        self.payload_max
    }

    /// Largest packet, in bytes.
    pub(crate) fn packet_max(&self) -> u32 {
        self.packet_max
    }

    /// A path to a peer; nothing is sent.
    pub(crate) fn path(&self, to: Endpoint) -> UdpPath {
        // INVARIANT: NULL is fine.
        UdpPath {
            to,
            route: ptr::null_mut(),
        }
    }

    /// Sends a packet. One that cannot be sent for want of a route counts as lost.
    /// Softirqs have to be disabled.
    pub(crate) fn send(&self, path: &mut UdpPath, packet: Skb) {
        if !self.running.load(Ordering::Acquire) {
            return;
        }
        let Some(route) = self.route(path) else {
            return;
        };
        // SAFETY: the socket is valid by the invariant; route and packet are
        // given away, as the callee expects.
        unsafe {
            bindings::udp_tunnel_xmit_skb(
                route.as_ptr(),
                self.sock.as_ptr(),
                packet.into_raw(),
                u32::from_ne_bytes(self.local.addr),
                u32::from_ne_bytes(path.to.addr),
                0,
                IP_TTL,
                0,
                self.local.port.to_be(),
                path.to.port.to_be(),
                false,
                false,
                0,
            );
        }
    }
}

impl Drop for UdpBearer {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: gives back the reference that the invariant says we hold.
        unsafe { bindings::weft_sock_put(self.sock.as_ptr()) };
    }
}

impl UdpPath {
    fn forget(&mut self) {
        let route = core::mem::replace(&mut self.route, ptr::null_mut());
        if !route.is_null() {
            // SAFETY: gives back the reference that the invariant says we hold.
            unsafe { bindings::weft_route_put(route) };
        }
    }
}

impl Drop for UdpPath {
    fn drop(&mut self) {
        self.forget();
    }
}

/// `encap_rcv`: 0 says that we have taken the packet.
///
/// # Safety
///
/// Called by C, for a socket that [`UdpBearer::start`] has set up with an `H`.
unsafe extern "C" fn receive<H: Handler>(
    sock: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
) -> i32 {
    const UDP_BYTES: u32 = 8;
    let Some(skb) = NonNull::new(skb) else {
        return 0;
    };
    // SAFETY: the stack gives the packet away when we answer 0, as we do.
    let mut packet = unsafe { Skb::from_raw(skb) };
    // SAFETY: `sock` is the valid socket that received the packet.
    let handler = unsafe { bindings::weft_sock_user_data(sock) }.cast::<H>();
    // SAFETY: `start` put the handler there, valid until `stop` has returned. `stop`
    // clears it and then waits for a grace period, and the network stack calls this
    // function in an RCU read-side section. NULL: stopped in between.
    if let Some(handler) = unsafe { handler.as_ref() } {
        let from = packet.source();
        if packet.skip(UDP_BYTES) {
            handler.receive(packet, from, None);
        }
    }
    0
}
