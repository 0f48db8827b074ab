// SPDX-License-Identifier: GPL-2.0

//! Socket buffers: packets on their way out and in.

use core::ptr::NonNull;

use crate::bindings;
use crate::net::Endpoint;
use crate::sync::BhDisabled;

/// A packet that we own.
///
/// # Invariants
///
/// `raw` is a valid `sk_buff` and this is its only user.
pub(crate) struct Skb {
    raw: NonNull<bindings::sk_buff>,
}

// SAFETY: a packet may be used and freed on any CPU.
unsafe impl Send for Skb {}

impl Skb {
    /// An empty packet with room for `len` bytes behind the network headers.
    pub(crate) fn with_room(len: u32, _bh: &BhDisabled) -> Option<Self> {
        // SAFETY: softirqs are disabled; NULL means no memory.
        let raw = unsafe { bindings::weft_skb_alloc(len) };
        // INVARIANT: a new packet.
        NonNull::new(raw).map(|raw| Self { raw })
    }

    /// Takes over a received packet.
    ///
    /// # Safety
    ///
    /// `raw` is a valid packet that the caller owns and gives away.
    pub(crate) unsafe fn from_raw(raw: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: the caller promises it.
        Self { raw }
    }

    /// Gives the packet away.
    pub(crate) fn into_raw(self) -> *mut bindings::sk_buff {
        let raw = self.raw.as_ptr();
        core::mem::forget(self);
        raw
    }

    /// The next `len` bytes of the packet, to be written. Until then they are
    /// whatever the memory held: a packet that was not written to its end must
    /// not be sent.
    ///
    /// `len` summed over all calls must not exceed the room that was asked for:
    /// the kernel stops at an overrun.
    pub(crate) fn append(&mut self, len: u32) -> &mut [u8] {
        // SAFETY: the packet is ours by the invariant; the callers stay within
        // its room.
        let start = unsafe { bindings::weft_skb_put(self.raw.as_ptr(), len) }.cast::<u8>();
        // SAFETY: `len` bytes at `start` are the packet's, which is ours. They
        // come from C, so that whatever they hold is initialised.
        unsafe { core::slice::from_raw_parts_mut(start, len as usize) }
    }

    /// Drops the first `len` bytes; `false` if there are not so many.
    pub(crate) fn skip(&mut self, len: u32) -> bool {
        // SAFETY: the packet is ours.
        unsafe { bindings::weft_skb_pull_header(self.raw.as_ptr(), len) }
    }

    /// Makes the first `len` bytes contiguous; `false`: there are fewer, or there is
    /// no memory.
    pub(crate) fn make_contiguous(&mut self, len: u32) -> bool {
        // SAFETY: the packet is ours.
        unsafe { bindings::weft_skb_has(self.raw.as_ptr(), len) }
    }

    /// The first `len` bytes, as far as they are contiguous.
    pub(crate) fn start(&self, len: u32) -> &[u8] {
        // SAFETY: the packet is ours.
        let len = len.min(unsafe { bindings::weft_skb_contiguous(self.raw.as_ptr()) });
        // SAFETY: so many bytes are contiguous, and ours.
        unsafe {
            core::slice::from_raw_parts(bindings::weft_skb_data(self.raw.as_ptr()), len as usize)
        }
    }

    /// Copies bytes out, wherever they lie; `false` if there are not so many.
    pub(crate) fn copy_out(&self, at: u32, to: &mut [u8]) -> bool {
        // SAFETY: the packet is ours, and the callee checks its length.
        unsafe {
            bindings::weft_skb_copy(
                self.raw.as_ptr(),
                at,
                to.as_mut_ptr().cast(),
                to.len() as u32,
            )
        }
    }

    /// Drops what is behind the first `len` bytes.
    pub(crate) fn trim(&mut self, len: u32) {
        // SAFETY: the packet is ours.
        unsafe { bindings::weft_skb_trim(self.raw.as_ptr(), len) };
    }

    /// Bytes in the packet.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: the packet is ours.
        unsafe { bindings::weft_skb_len(self.raw.as_ptr()) }
    }

    /// The source address and port of a packet that a UDP socket has received.
    pub(crate) fn source(&self) -> Endpoint {
        // SAFETY: the packet is ours and its IP header is where UDP left it.
        let addr = unsafe { bindings::weft_skb_source_addr(self.raw.as_ptr()) };
        // SAFETY: as above for the UDP header.
        let port = unsafe { bindings::weft_skb_source_port(self.raw.as_ptr()) };
        Endpoint {
            addr: addr.to_ne_bytes(),
            port: u16::from_be(port),
        }
    }

    /// The packet for C to read.
    pub(crate) fn as_ptr(&self) -> *const bindings::sk_buff {
        self.raw.as_ptr()
    }
}

impl Drop for Skb {
    fn drop(&mut self) {
        // SAFETY: the packet is ours and not used after this.
        unsafe { bindings::weft_skb_free(self.raw.as_ptr()) };
    }
}
