// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Notices, which two nodes write to each other about a connection. When regions go, the
//! owner names their keys, and the peer answers once none of its requests uses them, and
//! until then that some do. Either end may ask to close the connection. What carries the
//! notices is not known here; they may get lost, be repeated, or come late.

/// Bytes of an encoded [`Notice`].
pub const NOTICE_BYTES: usize = 80;
/// Keys in one notice, at most.
pub const NOTICE_KEYS: usize = 14;
const MAGIC: u32 = u32::from_le_bytes(*b"WFTk");
const VERSION: u8 = 1;
const KEYS_AT: usize = NOTICE_BYTES - 4 * NOTICE_KEYS;

/// Some keys.
///
/// # Invariants
///
/// `len <= NOTICE_KEYS`; what is behind the first `len` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    keys: [u32; NOTICE_KEYS],
    len: usize,
}

impl Keys {
    /// None.
    pub const NONE: Self = Self {
        keys: [0; NOTICE_KEYS],
        len: 0,
    };

    /// Adds a key; `false`: there is no room.
    pub fn push(&mut self, key: u32) -> bool {
        match self.keys.get_mut(self.len) {
            Some(place) => {
                *place = key;
                // INVARIANT: there was a place.
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The keys.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        self.keys.get(..self.len).unwrap_or(&[])
    }
}

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The sender's regions of these keys go: use them no more.
    Gone(Keys),
    /// The sender uses none of the keys of the notice of this number any more: no
    /// request with them is on its way, or will be.
    Unused,
    /// Requests with keys of the notice of this number are still on their way.
    InUse,
    /// The sender wants to close the connection and has nothing under way on it
    /// ([`crate::transfer`]).
    Close,
    /// The sender has closed the connection, or does not know it.
    Closed,
    /// The sender was asked to close the connection, and still has requests under way on it.
    Busy,
}

/// A notice about regions that go, or about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The number of the connection ([`crate::rc::Hello`]), random: notices about
    /// one say nothing of the next.
    pub token: u64,
    /// The number of the last removal that it is about; the answer repeats it.
    pub seq: u64,
    /// What it is about.
    pub kind: NoticeKind,
}

impl Notice {
    /// The notice as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; NOTICE_BYTES] {
        let mut out = [0; NOTICE_BYTES];
        let (number, keys) = match &self.kind {
            NoticeKind::Gone(keys) => (1, keys.as_slice()),
            NoticeKind::Unused => (2, &[][..]),
            NoticeKind::InUse => (3, &[][..]),
            NoticeKind::Close => (4, &[][..]),
            NoticeKind::Closed => (5, &[][..]),
            NoticeKind::Busy => (6, &[][..]),
        };
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&[VERSION, number, keys.len() as u8, 0]);
        out[8..16].copy_from_slice(&self.token.to_le_bytes());
        out[16..24].copy_from_slice(&self.seq.to_le_bytes());
        for (place, key) in out[KEYS_AT..].chunks_exact_mut(4).zip(keys) {
            place.copy_from_slice(&key.to_le_bytes());
        }
        out
    }

    /// Reads a notice. `None`: it is none of this version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTICE_BYTES] = bytes.try_into().ok()?;
        let [m0, m1, m2, m3, version, number, count, zero, ..] = *bytes;
        let count = usize::from(count);
        let ours = u32::from_le_bytes([m0, m1, m2, m3]) == MAGIC && version == VERSION;
        if !ours || zero != 0 || count > NOTICE_KEYS {
            return None;
        }
        let mut keys = Keys::NONE;
        for key in bytes[KEYS_AT..].chunks_exact(4).take(count) {
            keys.push(u32::from_le_bytes(key.try_into().ok()?));
        }
        let kind = match number {
            1 => NoticeKind::Gone(keys),
            2 if count == 0 => NoticeKind::Unused,
            3 if count == 0 => NoticeKind::InUse,
            4 if count == 0 => NoticeKind::Close,
            5 if count == 0 => NoticeKind::Closed,
            6 if count == 0 => NoticeKind::Busy,
            _ => return None,
        };
        let rest = &bytes[KEYS_AT + 4 * count..];
        rest.iter().all(|byte| *byte == 0).then_some(Self {
            token: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            seq: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            kind,
        })
    }
}
