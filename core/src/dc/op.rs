// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Operations as an initiator takes them, and how they end.

use super::wire::{Kind, Operands, Receiver};
use crate::uapi::{Sge, WcStatus, MAX_INLINE, MAX_SGE};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Bytes come from the target.
    Read,
    /// Bytes go to the target; with an immediate, a receiver hears of it.
    Write,
    /// A message goes to a receiver.
    Send,
    /// A word of the target is compared, and swapped if it is equal.
    CompareSwap,
    /// A word of the target is added to.
    FetchAdd,
}

impl OpKind {
    /// Whether it changes a word and fetches what the word was.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether bytes come back from the target.
    #[must_use]
    pub const fn fetches(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }
}

/// The bytes of an operation on the initiator's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Pieces of registered memory, one after the other; unused ones are empty.
    Sges([Sge; MAX_SGE]),
    /// The bytes themselves, from the first on.
    Inline([u64; MAX_INLINE as usize / 8]),
}

impl Local {
    /// No bytes.
    pub const NONE: Self = Self::Sges(
        [Sge {
            addr: 0,
            len: 0,
            lkey: 0,
        }; MAX_SGE],
    );

    /// These bytes; `None`: they are more than fit.
    #[must_use]
    pub fn inline_of(bytes: &[u8]) -> Option<Self> {
        let mut words = [0; MAX_INLINE as usize / 8];
        if bytes.len() > MAX_INLINE as usize {
            return None;
        }
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        Some(Self::Inline(words))
    }

    /// The pieces of memory that hold `len` bytes from `offset` on, in order.
    /// None if the bytes are inline.
    pub fn pieces(&self, offset: u32, len: u32) -> impl Iterator<Item = Sge> + '_ {
        let sges: &[Sge] = match self {
            Self::Sges(sges) => sges,
            Self::Inline(_) => &[],
        };
        cut(sges, offset, len)
    }

    /// The inline bytes in that range; `None` if they are in memory, or fewer.
    #[must_use]
    pub fn inline(&self, offset: u32, len: u32) -> Option<&[u8]> {
        let Self::Inline(words) = self else {
            return None;
        };
        // SAFETY: words are bytes, and there are eight to each.
        let bytes =
            unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
        let end = offset.checked_add(len)?;
        bytes.get(offset as usize..end as usize)
    }
}

/// The parts of `sges`, in order, that hold `len` bytes from `offset` on.
pub fn cut(sges: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Sge> + '_ {
    let (mut skip, mut left) = (offset, len);
    let mut sges = sges.iter();
    core::iter::from_fn(move || {
        while left != 0 {
            let sge = sges.next()?;
            let start = skip.min(sge.len);
            skip -= start;
            let bytes = (sge.len - start).min(left);
            left -= bytes;
            if bytes != 0 {
                return Some(Sge {
                    addr: sge.addr.wrapping_add(u64::from(start)),
                    len: bytes,
                    lkey: sge.lkey,
                });
            }
        }
        None
    })
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The caller's name for it; comes back in the [`Completion`].
    pub cookie: u64,
    /// The virtual queue pair that it belongs to; not 0.
    pub flow: u32,
    /// Whose local memory it uses.
    pub owner: u64,
    /// What it does.
    pub kind: OpKind,
    /// The immediate, of a WRITE or a message.
    pub imm: Option<u32>,
    /// Who hears of a message or an immediate.
    pub to: Receiver,
    /// Key of the target's memory.
    pub rkey: u32,
    /// Bytes, as many as `local` has.
    pub len: u32,
    /// First byte of the target's memory.
    pub remote_addr: u64,
    /// Of an atomic operation, which has 8 bytes.
    pub operands: Operands,
    /// The bytes on this side.
    pub local: Local,
}

impl Op {
    /// Does nothing; to fill arrays with.
    pub const EMPTY: Self = Self {
        cookie: 0,
        flow: 0,
        owner: 0,
        kind: OpKind::Read,
        imm: None,
        to: Receiver::Port(0),
        rkey: 0,
        len: 0,
        remote_addr: 0,
        operands: Operands::NONE,
        local: Local::NONE,
    };

    /// The request that the chunk of `len` bytes at `offset` takes: the last one
    /// of a WRITE carries the immediate.
    pub(super) const fn request(&self, offset: u32, len: u32) -> Kind {
        match self.kind {
            OpKind::Read => Kind::Read,
            OpKind::Write if self.imm.is_some() && offset + len == self.len => Kind::WriteImm,
            OpKind::Write => Kind::Write,
            OpKind::Send => Kind::Send,
            OpKind::CompareSwap => Kind::CompareSwap,
            OpKind::FetchAdd => Kind::FetchAdd,
        }
    }
}

/// An operation's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation's place among the [`super::MAX_OPS`] of its stream.
    pub slot: usize,
    /// From [`Op::cookie`].
    pub cookie: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub kind: OpKind,
    /// Whether it had an immediate.
    pub with_imm: bool,
    /// Its length in bytes.
    pub len: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sges(lens: &[u32]) -> [Sge; MAX_SGE] {
        core::array::from_fn(|i| Sge {
            addr: 0x1000 * (i as u64 + 1),
            len: lens.get(i).copied().unwrap_or(0),
            lkey: i as u32,
        })
    }

    proptest! {
        /// Against the list of all byte addresses.
        #[test]
        fn pieces_are_the_bytes_of_the_range(
            lens in prop::collection::vec(0u32..50, 0..=MAX_SGE),
            offset in 0u32..300,
            len in 0u32..300,
        ) {
            let local = Local::Sges(sges(&lens));
            let bytes = |sges: &mut dyn Iterator<Item = Sge>| -> Vec<(u64, u32)> {
                sges.flat_map(|sge| (0..sge.len).map(move |i| (sge.addr + u64::from(i), sge.lkey)))
                    .collect()
            };
            let all = bytes(&mut sges(&lens).into_iter());
            let expected: Vec<_> =
                all.into_iter().skip(offset as usize).take(len as usize).collect();
            prop_assert_eq!(bytes(&mut local.pieces(offset, len)), expected);
        }
    }

    #[test]
    fn inline_bytes_are_found_by_their_place() {
        let all: Vec<u8> = (0..80).collect();
        let local = Local::inline_of(&all).unwrap();
        assert_eq!(Local::inline_of(&[0; 81]), None);
        assert_eq!(local.inline(3, 4), Some(&[3, 4, 5, 6][..]));
        assert_eq!(local.inline(78, 2), Some(&[78, 79][..]));
        assert_eq!(local.inline(78, 3), None);
        assert_eq!(local.inline(u32::MAX, 2), None);
        assert_eq!(local.pieces(0, 80).count(), 0);
        assert_eq!(Local::NONE.inline(0, 0), None);
    }
}
