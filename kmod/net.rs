// SPDX-License-Identifier: GPL-2.0

//! What carries SoftDc's packets.

mod skb;
mod udp;

pub(crate) use skb::Skb;
pub(crate) use udp::{Handler, UdpBearer};

/// Where a bearer sends to and receives from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// IPv4 address in network byte order.
    pub(crate) addr: [u8; 4],
    /// UDP port.
    pub(crate) port: u16,
}

/// Carries packets between nodes, as a datagram network does: it may lose,
/// repeat and reorder them. UD queue pairs can be another one.
pub(crate) trait Bearer: Send + Sync + 'static {
    /// What it remembers of the way to a peer.
    type Path: Send + Unpin;

    /// Largest payload behind a header of SoftDc, in bytes.
    fn payload_max(&self) -> u32;

    /// A path to a peer; nothing is sent.
    fn path(&self, to: Endpoint) -> Self::Path;

    /// Sends `header` and `payload_len` bytes, all of which `fill` has to write or
    /// else fail: what was there before is other packets'. If `fill` fails nothing
    /// is sent. A packet that cannot be sent for want of memory or of a
    /// route counts as lost. Softirqs have to be disabled.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    fn send<E>(
        &self,
        path: &mut Self::Path,
        header: &[u8],
        payload_len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E>;
}
