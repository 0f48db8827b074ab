// SPDX-License-Identifier: GPL-2.0

//! Frames to one peer, in as few packets as they fit into. A packet costs several
//! microseconds on its way, a small frame next to nothing: the requests of a batch
//! travel together, and so do their answers.

use crate::net::{Bearer, Skb};

/// Bytes of a packet that takes several frames: what an Ethernet frame carries. The
/// receiver looks for more than one in packets up to this.
pub(crate) const TRAIN_BYTES: u32 = 1472;

/// Frames that were not sent yet. [`Train::flush`] has to be called in the end.
pub(crate) struct Train<'a, B: Bearer> {
    bearer: &'a B,
    packet: Option<Skb>,
    left: u32,
}

impl<'a, B: Bearer> Train<'a, B> {
    /// No frames.
    pub(crate) fn new(bearer: &'a B) -> Self {
        Self {
            bearer,
            packet: None,
            left: 0,
        }
    }

    /// Adds a frame of `header` and `payload_len` bytes, all of which `fill` has to
    /// write or else fail: what was there before is other packets'. If `fill` fails
    /// there is no frame. `more` says that others will follow. A frame that finds no
    /// memory counts as lost. Softirqs have to be disabled.
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
            let shared = TRAIN_BYTES.min(self.bearer.packet_max());
            self.left = if more {
                frame_bytes.max(shared)
            } else {
                frame_bytes
            };
            self.packet = Skb::with_room(self.left);
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

    /// Sends what is there.
    pub(crate) fn flush(&mut self, path: &mut B::Path) {
        self.left = 0;
        if let Some(packet) = self.packet.take().filter(|packet| packet.len() != 0) {
            self.bearer.send(path, packet);
        }
    }
}
