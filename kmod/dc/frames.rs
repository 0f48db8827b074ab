// SPDX-License-Identifier: GPL-2.0

//! The frames of a packet: requests of one stream, or responses to one, one behind
//! the other.

use core::mem::MaybeUninit;

use kernel::sync::Arc;
use weft_core::dc::wire::{
    self, Message, Operands, Packet, Request, Response, MESSAGE_BYTES, REQUEST_BYTES,
    RESPONSE_BYTES,
};
use weft_core::dc::WINDOW;

use crate::dc::inbox::ControlMessage;
use crate::net::{Endpoint, PacketLink, Skb};

/// Bytes at the start of a frame that are looked at, at most: what stands between a
/// request and its bytes is a message's header, or shorter.
const HEAD_BYTES: usize = REQUEST_BYTES + MESSAGE_BYTES;

type Head = [u8; HEAD_BYTES];

/// Frames of a packet that are looked at. A stream has no more chunks outstanding, so
/// that no initiator or target sends more; and a packet of 64 KiB that was made of
/// headers alone would otherwise ask for megabytes in one softirq.
const MAX_FRAMES: usize = WINDOW;

/// A received packet.
pub(crate) struct Arrived<'a> {
    packet: &'a Skb,
    /// Its first bytes, as many as lie in one place.
    start: &'a [u8],
    /// Its sender.
    pub(crate) from: Endpoint,
    /// The link that it came over; `None`: it came by UDP.
    pub(crate) via: Option<&'a Arc<PacketLink>>,
}

/// A request and what comes with it.
pub(crate) struct Frame<'a> {
    /// The packet that it is in.
    pub(crate) packet: &'a Skb,
    /// Where in the packet the bytes are that it carries.
    pub(crate) bytes_at: u32,
    /// Its sender.
    pub(crate) from: Endpoint,
    /// The header.
    pub(crate) request: Request,
    /// The operands of an atomic operation.
    pub(crate) operands: Option<Operands>,
    /// The message's header.
    pub(crate) message: Option<Message>,
    /// Others follow.
    pub(crate) more: bool,
}

impl<'a> Arrived<'a> {
    /// Looks into a packet. `None`: there is nothing of ours in it, or no memory to
    /// look.
    pub(crate) fn open(
        packet: &'a mut Skb,
        from: Endpoint,
        via: Option<&'a Arc<PacketLink>>,
    ) -> Option<(Self, Packet)> {
        if !packet.make_contiguous(packet.len().min(HEAD_BYTES as u32)) {
            return None;
        }
        let packet = &*packet;
        let start = packet.start(packet.len());
        let first = wire::decode(start)?;
        Some((
            Self {
                packet,
                start,
                from,
                via,
            },
            first,
        ))
    }

    /// The packet.
    pub(crate) fn packet(&self) -> &'a Skb {
        self.packet
    }

    /// The first bytes of a frame: in place, or copied if they lie in pieces. `None`:
    /// the packet ends before it.
    fn head<'b>(&'b self, at: usize, copy: &'b mut MaybeUninit<Head>) -> Option<&'b [u8]> {
        let len = (self.packet.len() as usize)
            .checked_sub(at)?
            .min(HEAD_BYTES);
        if let Some(here) = self.start.get(at..at + len) {
            return Some(here);
        }
        let copy = copy.write([0; HEAD_BYTES]).get_mut(..len)?;
        self.packet.copy_out(at as u32, copy).then_some(copy)
    }

    /// The requests in it. What is not of the first one's stream ends them.
    pub(crate) fn requests(&self, first: Request) -> impl Iterator<Item = Frame<'a>> + '_ {
        let (mut at, mut decoded) = (0, Some(first));
        core::iter::from_fn(move || {
            let frame = self.frame(at, decoded.take())?;
            at += frame_bytes(&frame.request);
            let same = frame.request.stream == first.stream
                && frame.request.token == first.token
                && frame.request.destination == first.destination;
            same.then_some(frame)
        })
        .take(MAX_FRAMES)
    }

    /// The responses in it, each with the place of its bytes in the packet. What is
    /// not of the first one's stream ends them.
    pub(crate) fn responses(&self, first: Response) -> impl Iterator<Item = (Response, u32)> + '_ {
        let (mut at, mut decoded) = (0, Some(first));
        core::iter::from_fn(move || {
            let response = decoded.take().or_else(|| self.response(at))?;
            let bytes_at = at + RESPONSE_BYTES;
            at = bytes_at.checked_add(response.len as usize)?;
            let same = response.stream == first.stream && response.token == first.token;
            (same && at <= self.packet.len() as usize).then_some((response, bytes_at as u32))
        })
        .take(MAX_FRAMES)
    }

    fn response(&self, at: usize) -> Option<Response> {
        let mut copy = MaybeUninit::uninit();
        match wire::decode(self.head(at, &mut copy)?)? {
            Packet::Response(response) => Some(response),
            Packet::Request(_) => None,
        }
    }

    /// The request at a place, which may have been decoded already, with what comes
    /// with it.
    fn frame(&self, at: usize, decoded: Option<Request>) -> Option<Frame<'a>> {
        let mut copy = MaybeUninit::uninit();
        let start = self.head(at, &mut copy)?;
        let request = match decoded {
            Some(request) => request,
            None => match wire::decode(start)? {
                Packet::Request(request) => request,
                Packet::Response(_) => return None,
            },
        };
        let end = at.checked_add(frame_bytes(&request))?;
        let len = self.packet.len() as usize;
        let rest = start.get(REQUEST_BYTES..)?;
        let message = Message::decode(rest).filter(|_| request.kind.has_message());
        let before = if message.is_some() { MESSAGE_BYTES } else { 0 };
        (end <= len).then_some(Frame {
            packet: self.packet,
            bytes_at: (at + REQUEST_BYTES + before) as u32,
            from: self.from,
            request,
            operands: Operands::decode(rest),
            message,
            more: end < len,
        })
    }
}

impl Frame<'_> {
    /// Its message, if that is short enough for a control message.
    pub(crate) fn control_message(&self) -> Option<ControlMessage> {
        let sender = self.message?.sender;
        ControlMessage::read(self.from, sender, self.request.len, |text| {
            self.packet.copy_out(self.bytes_at, text)
        })
    }
}

/// Bytes of a request and all that comes with it; too many if its length is absurd.
fn frame_bytes(request: &Request) -> usize {
    REQUEST_BYTES.saturating_add(request.payload_bytes())
}
