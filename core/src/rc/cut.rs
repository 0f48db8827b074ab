// SPDX-License-Identifier: GPL-2.0 OR MIT

//! READs and WRITEs that are cut into pieces: long ones, and those that go across a
//! block's end.
//!
//! A queue pair carries its requests out in their order. One of a gigabyte would
//! hold up those of all other virtual queue pairs until it is done. So it is posted
//! piece by piece, in turns with others', and ends once, with its last piece or
//! with the first that fails.

use super::PIECE_BYTES;
use crate::mr::BlockSize;
use crate::uapi::Sge;

/// The size of the blocks in which both sides' memory is registered. One of the
/// device's requests stays within one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// This node's.
    pub local: BlockSize,
    /// The peer's.
    pub remote: BlockSize,
}

impl Blocks {
    /// Whether a request is posted as it is: it is short, and in one block of the peer's
    /// and for each piece of local memory in one of this node's.
    #[inline]
    pub fn hold(self, mut sges: impl Iterator<Item = Sge>, remote_addr: u64, len: u32) -> bool {
        len <= PIECE_BYTES
            && self.remote.holds(remote_addr, len)
            && sges.all(|sge| self.local.holds(sge.addr, sge.len))
    }

    /// Bytes of a request, from `offset` on, that may be posted together.
    fn piece(self, sges: &[Sge], remote_addr: u64, offset: u32) -> u32 {
        let remote = self
            .remote
            .left(remote_addr.wrapping_add(u64::from(offset)));
        let mut piece = u64::from(PIECE_BYTES).min(remote);
        // Where each element begins, counted from `offset`.
        let mut start = -i64::from(offset);
        for sge in sges {
            let skip = (-start).clamp(0, i64::from(sge.len)) as u64;
            let first = (start + skip as i64).max(0) as u64;
            if skip < u64::from(sge.len) && first < piece {
                let left = self.local.left(sge.addr.wrapping_add(skip));
                if left < u64::from(sge.len) - skip {
                    piece = piece.min(first + left);
                }
            }
            start += i64::from(sge.len);
        }
        piece as u32
    }
}

/// How far a request is cut.
///
/// # Invariants
///
/// `at < len`, until all pieces were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    len: u32,
    at: u32,
}

/// A piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPiece {
    /// Where it begins, in bytes from the request's start.
    pub offset: u32,
    /// Its bytes: at most [`PIECE_BYTES`].
    pub len: u32,
    /// None follows.
    pub is_last: bool,
}

impl Cut {
    /// A request of `len` bytes, of which there are some.
    #[inline]
    #[must_use]
    pub const fn new(len: u32) -> Option<Self> {
        // INVARIANT: `len` is not zero.
        if len != 0 {
            Some(Self { len, at: 0 })
        } else {
            None
        }
    }

    /// The next piece, which [`Cut::advance`] takes.
    #[must_use]
    pub fn next(&self, blocks: Blocks, sges: &[Sge], remote_addr: u64) -> CutPiece {
        let left = self.len - self.at;
        let len = left.min(blocks.piece(sges, remote_addr, self.at));
        CutPiece {
            offset: self.at,
            len,
            is_last: len == left,
        }
    }

    /// This piece, the next one, was posted.
    pub fn advance(&mut self, piece: CutPiece) {
        // INVARIANT: of the last piece `at` becomes `len`, and all were taken.
        self.at += piece.len.min(self.len - self.at);
    }
}

/// Lists the memory of `len` bytes from `offset` on in `list`, which lies in
/// `sges`. Answers how many elements that takes. No element is empty.
pub fn cut_sges(sges: &[Sge], offset: u32, len: u32, list: &mut [Sge]) -> usize {
    let (mut skip, mut left, mut count) = (offset, len, 0);
    for sge in sges {
        let from = skip.min(sge.len);
        skip -= from;
        let taken = (sge.len - from).min(left);
        if taken == 0 {
            continue;
        }
        let Some(place) = list.get_mut(count) else {
            break;
        };
        *place = Sge {
            addr: sge.addr.wrapping_add(u64::from(from)),
            len: taken,
            lkey: sge.lkey,
        };
        left -= taken;
        count += 1;
    }
    count
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Poster, Window, BUDGET_BYTES, DEPTH, PIECES_BYTES, SIGNAL_INTERVAL};
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// So large that requests are cut for their length alone.
    const LARGE_BLOCKS: Blocks = {
        let Some(size) = BlockSize::new(BlockSize::MOST) else {
            panic!()
        };
        Blocks {
            local: size,
            remote: size,
        }
    };

    fn bytes_of(sges: &[Sge]) -> Vec<(u32, u64)> {
        let bytes = |sge: Sge| (0..u64::from(sge.len)).map(move |at| (sge.lkey, sge.addr + at));
        sges.iter().copied().flat_map(bytes).collect()
    }

    fn any_sges() -> impl Strategy<Value = Vec<Sge>> {
        let sge = (0u64..1 << 40, 0u32..300, any::<u32>());
        let sge = sge.prop_map(|(addr, len, lkey)| Sge { addr, len, lkey });
        prop::collection::vec(sge, 0..6)
    }

    proptest! {
        /// Each piece is in one block of either side's, and as long as it may be.
        #[test]
        fn the_pieces_are_the_request(
            sges in prop::collection::vec((0u64..1 << 24, 0u32..1 << 21), 0..5),
            remote_addr in 0u64..1 << 24,
            shifts in (16u8..=22, 16u8..=22),
        ) {
            let blocks = Blocks {
                local: BlockSize::new(shifts.0).unwrap(),
                remote: BlockSize::new(shifts.1).unwrap(),
            };
            let sge = |(addr, len)| Sge { addr, len, lkey: 0 };
            let sges: Vec<_> = sges.into_iter().map(sge).collect();
            let len = sges.iter().map(|sge| sge.len).sum();
            let Some(mut cut) = Cut::new(len) else {
                prop_assert_eq!(len, 0);
                return Ok(());
            };
            let mut at = 0;
            loop {
                let piece = cut.next(blocks, &sges, remote_addr);
                prop_assert_eq!(piece.offset, at);
                prop_assert!((1..=PIECE_BYTES).contains(&piece.len));
                let memory = |len| {
                    let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; 5];
                    let count = cut_sges(&sges, at, len, &mut list);
                    list.into_iter().take(count)
                };
                let there = remote_addr + u64::from(at);
                prop_assert!(blocks.hold(memory(piece.len), there, piece.len));
                prop_assert_eq!(piece.is_last, at + piece.len == len);
                if !piece.is_last {
                    let more = piece.len + 1;
                    prop_assert!(!blocks.hold(memory(more), there, more));
                }
                at += piece.len;
                if piece.is_last {
                    break;
                }
                cut.advance(piece);
            }
            let is_one = blocks.hold(sges.iter().copied(), remote_addr, len);
            prop_assert_eq!(is_one, Cut::new(len).unwrap().next(blocks, &sges, remote_addr).is_last);
        }

        /// Cut anywhere, the memory of the parts is that of the whole, byte by byte.
        #[test]
        fn the_memory_of_the_parts_is_that_of_the_whole(sges in any_sges(), step in 1u32..400) {
            let whole = bytes_of(&sges);
            let (mut parts, mut at) = (Vec::new(), 0);
            while (at as usize) < whole.len() {
                let len = step.min(whole.len() as u32 - at);
                let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; 5];
                let count = cut_sges(&sges, at, len, &mut list);
                prop_assert!(list[..count].iter().all(|sge| sge.len != 0));
                parts.extend(bytes_of(&list[..count]));
                at += len;
            }
            prop_assert_eq!(parts, whole);
        }

        #[test]
        fn a_shorter_list_is_filled_and_no_more(sges in any_sges()) {
            let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; 1];
            prop_assert!(cut_sges(&sges, 0, u32::MAX, &mut list) <= 1);
            prop_assert_eq!(cut_sges(&sges, 0, u32::MAX, &mut []), 0);
        }
    }

    /// What the driver does: requests that are cut, in turns, and the queue pair,
    /// which carries out in order.
    struct Link {
        window: Window,
        poster: Poster,
        longs: VecDeque<(usize, Cut)>,
        /// Outstanding: whose, bytes, whether a piece, whether it ends the request.
        queue: VecDeque<(usize, u32, bool, bool)>,
        ended: Vec<usize>,
    }

    impl Link {
        fn new() -> Self {
            let (window, poster) = Window::new(DEPTH, SIGNAL_INTERVAL, BUDGET_BYTES).unwrap();
            Self {
                window,
                poster,
                longs: VecDeque::new(),
                queue: VecDeque::new(),
                ended: Vec::new(),
            }
        }

        /// Whether `who` may post a request of `len` bytes now; it does.
        fn post(&mut self, who: usize, len: u32) -> bool {
            if self.longs.iter().any(|(other, _)| *other == who) {
                return false;
            }
            if len > PIECE_BYTES {
                let cut = Cut::new(len).unwrap();
                self.longs.push_back((who, cut));
                self.advance();
                return true;
            }
            let claimed = self.window.claim(&mut self.poster, len).is_some();
            if claimed {
                self.window.publish(&self.poster);
                self.queue.push_back((who, len, false, true));
            }
            claimed
        }

        fn advance(&mut self) {
            while let Some((who, mut cut)) = self.longs.pop_front() {
                let piece = cut.next(LARGE_BLOCKS, &[], 0);
                let claim = self
                    .window
                    .claim_piece(&mut self.poster, piece.len, PIECES_BYTES);
                if claim.is_none() {
                    return self.longs.push_front((who, cut));
                }
                self.window.publish(&self.poster);
                self.queue.push_back((who, piece.len, true, piece.is_last));
                if !piece.is_last {
                    cut.advance(piece);
                    self.longs.push_back((who, cut));
                }
            }
        }

        fn carry_out(&mut self) {
            let Some((who, len, is_piece, ends)) = self.queue.pop_front() else {
                return;
            };
            if is_piece {
                self.window.retire_piece(len);
            } else {
                self.window.retire(len);
            }
            if ends {
                self.ended.push(who);
            }
            self.advance();
        }

        fn bytes_ahead(&self) -> u64 {
            self.queue.iter().map(|entry| u64::from(entry.1)).sum()
        }
    }

    proptest! {
        /// However many long requests there are: a short one is posted at once, with
        /// a bounded number of bytes before it; each ends once; and a requester's
        /// next one waits until all pieces of its long one are posted.
        #[test]
        fn short_requests_pass_between_the_pieces_of_long_ones(
            lens in prop::collection::vec(PIECE_BYTES + 1..=1 << 30, 1..20),
            steps in prop::collection::vec(0usize..40, 1..60),
        ) {
            const SHORT: usize = 1000;
            let mut link = Link::new();
            for (who, len) in lens.iter().enumerate() {
                prop_assert!(link.post(who, *len));
            }
            for carried_out in &steps {
                for _ in 0..*carried_out {
                    link.carry_out();
                }
                prop_assert!(link.bytes_ahead() <= PIECES_BYTES + 8 * steps.len() as u64);
                prop_assert!(link.post(SHORT, 8), "it waits for long ones");
                let being_cut: Vec<usize> = link.longs.iter().map(|long| long.0).collect();
                for who in being_cut {
                    prop_assert!(!link.post(who, 8), "it overtakes its own");
                }
            }
            while !link.queue.is_empty() {
                link.carry_out();
            }
            let mut ended = link.ended.clone();
            ended.retain(|who| *who != SHORT);
            ended.sort_unstable();
            prop_assert_eq!(ended, (0..lens.len()).collect::<Vec<_>>());
            prop_assert_eq!(link.window.bytes(), 0);
            // and the accounts of the pieces are even
            prop_assert!(link.window.claim_piece(&mut link.poster, PIECE_BYTES, 1).is_some());
        }

        /// Each of those that are cut gets as many pieces as the others.
        #[test]
        fn long_requests_take_turns(count in 2usize..10, rounds in 1usize..50) {
            let mut link = Link::new();
            for who in 0..count {
                prop_assert!(link.post(who, 1 << 30));
            }
            let mut pieces = vec![0usize; count];
            for _ in 0..rounds * count {
                pieces[link.queue[0].0] += 1;
                link.carry_out();
            }
            let (least, most) = (pieces.iter().min().unwrap(), pieces.iter().max().unwrap());
            // The first one was alone when it began.
            let alone = PIECES_BYTES as usize / PIECE_BYTES as usize;
            prop_assert!(most - least <= alone + 1, "{:?}", pieces);
        }
    }
}
