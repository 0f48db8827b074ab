// SPDX-License-Identifier: GPL-2.0

//! Frames to one peer, in as few packets as they fit into. A packet costs several
//! microseconds on its way, a small frame next to nothing: the requests of a batch
//! travel together, and so do their answers. Long frames go in pairs where the
//! network's packets are long enough.

use crate::net::{Bearer, Skb};
use crate::sync::BhDisabled;

/// Bytes of a packet that takes several small frames: what an Ethernet frame carries.
const TRAIN_BYTES: u32 = 1472;

/// Frames that were not sent yet. [`Train::flush`] has to be called in the end.
pub(crate) struct Train<'a, B: Bearer> {
    bearer: &'a B,
    bh: &'a BhDisabled,
    packet: Option<Skb>,
    left: u32,
}

impl<'a, B: Bearer> Train<'a, B> {
    /// No frames.
    pub(crate) fn new(bearer: &'a B, bh: &'a BhDisabled) -> Self {
        Self {
            bearer,
            bh,
            packet: None,
            left: 0,
        }
    }

    /// Adds a frame of `header` and `payload_len` bytes, all of which `fill` has to
    /// write or else fail: what was there before is other packets'. If `fill` fails
    /// there is no frame. `more` says that others will follow. A frame that finds no
    /// memory counts as lost.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    pub(crate) fn append<E>(
        &mut self,
        path: &mut B::Path,
        header: &[u8],
        payload_len: u32,
        more: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let frame_bytes = header.len() as u32 + payload_len;
        if self.left < frame_bytes {
            self.flush(path);
            self.left = if more {
                self.room_for_several(frame_bytes)
            } else {
                frame_bytes
            };
            self.packet = Skb::with_room(self.left, self.bh);
        }
        let Some(packet) = &mut self.packet else {
            self.left = 0;
            return Ok(());
        };
        let before = packet.len();
        packet.append(header.len() as u32).copy_from_slice(header);
        if payload_len != 0 {
            fill(packet.append(payload_len)).inspect_err(|_| packet.trim(before))?;
        }
        self.left -= frame_bytes;
        Ok(())
    }

    /// Bytes of a packet that begins with such a frame and is to take more.
    fn room_for_several(&self, frame_bytes: u32) -> u32 {
        let longest = self.bearer.packet_max();
        let pair = frame_bytes.saturating_mul(2);
        if pair > TRAIN_BYTES && pair <= longest {
            pair
        } else {
            frame_bytes.max(TRAIN_BYTES.min(longest))
        }
    }

    /// Sends what is there.
    pub(crate) fn flush(&mut self, path: &mut B::Path) {
        self.left = 0;
        if let Some(packet) = self.packet.take().filter(|packet| packet.len() != 0) {
            self.bearer.send(path, packet);
        }
    }
}
