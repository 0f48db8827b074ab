// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes that were posted and that the module does not have yet.

use crate::fabric::rdma::words::{goes_inline, has_whole_words, WORD};
use crate::fabric::{FabricError, Region, Write};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use weft_shim::{Error, Payload, MAX_INLINE};

/// Bytes of words that a request carries itself.
const INLINE_BYTES: usize = MAX_INLINE as usize / WORD * WORD;
const _: () = assert!(INLINE_BYTES >= crate::fabric::COPIED_BYTES);

/// A write to a peer. Few words are in it as they were when it was posted.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) peer: usize,
    pub(super) write: Write,
    words: Option<[u8; INLINE_BYTES]>,
}

impl Posted {
    /// Its words, if they are in it.
    pub(super) fn inline(&self) -> Option<Result<Payload<'static>, Error>> {
        let words = self.words.as_ref()?;
        Some(Payload::inline(&words[..self.write.len]))
    }
}

/// Makes requests of writes.
#[derive(Debug)]
pub(super) struct Payloads {
    pub(super) memory: Region,
    /// Whether words go one by one.
    pub(super) is_single: bool,
}

impl Payloads {
    /// The requests that a write becomes, as writes.
    pub(super) fn parts(&self, write: &Write) -> impl Iterator<Item = Write> + use<> {
        let write = *write;
        let step = match self.is_single && has_whole_words(&write) {
            true => WORD,
            false => write.len.max(1),
        };
        (0..write.len).step_by(step).map(move |at| Write {
            local: write.local + at,
            remote: write.remote + at,
            len: step,
        })
    }

    /// A write, with its words as they are now if they are few.
    pub(super) fn posted(&self, peer: usize, write: &Write) -> Result<Posted, FabricError> {
        let words = match goes_inline(write, INLINE_BYTES) {
            true => Some(self.words(write)?),
            false => None,
        };
        let write = *write;
        Ok(Posted { peer, write, words })
    }

    fn words(&self, write: &Write) -> Result<[u8; INLINE_BYTES], FabricError> {
        let mut bytes = [0; INLINE_BYTES];
        let places = (write.local..write.local + write.len).step_by(WORD);
        for (to, at) in bytes.chunks_exact_mut(WORD).zip(places) {
            let word = self.memory.word(at)?.load(Ordering::Acquire);
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}

/// What was posted, in order.
#[derive(Debug, Default)]
pub(super) struct Outgoing(VecDeque<Posted>);

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, posted: Posted) {
        self.0.push_back(posted);
    }

    /// The peer of the first.
    pub(super) fn first(&self) -> Option<usize> {
        self.0.front().map(|posted| posted.peer)
    }

    /// Of the first `count`, keeps those that `keep` says, which it is asked in order.
    pub(super) fn retain_first(&mut self, count: usize, mut keep: impl FnMut(&Posted) -> bool) {
        let mut at = 0;
        self.0.retain(|posted| {
            at += 1;
            at > count || keep(posted)
        });
    }

    /// Nothing more goes to a peer.
    pub(super) fn forget(&mut self, peer: usize) {
        self.0.retain(|posted| posted.peer != peer);
    }

    /// The module has taken the first `count`.
    pub(super) fn taken(&mut self, count: usize) {
        self.0.drain(..count.min(self.0.len()));
    }

    /// The first cannot go now: what goes to its peer lets the others pass. Answers whether
    /// there are any.
    pub(super) fn pass_by_first(&mut self) -> bool {
        let Some(peer) = self.first() else {
            return false;
        };
        let Some(other) = self.0.iter().position(|posted| posted.peer != peer) else {
            return false;
        };
        let (behind, mut before) = (self.0.split_off(other), std::mem::take(&mut self.0));
        let (same, others): (VecDeque<_>, VecDeque<_>) =
            behind.into_iter().partition(|posted| posted.peer == peer);
        before.extend(same);
        self.0 = others;
        self.0.extend(before);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(peer: usize, at: usize) -> Posted {
        let write = Write {
            local: at,
            remote: at,
            len: 1,
        };
        Posted {
            peer,
            write,
            words: None,
        }
    }

    fn outgoing(list: &[(usize, usize)]) -> Outgoing {
        let mut outgoing = Outgoing::default();
        for &(peer, at) in list {
            outgoing.push(posted(peer, at));
        }
        outgoing
    }

    fn left(outgoing: &Outgoing) -> Vec<(usize, usize)> {
        let all = outgoing.0.iter();
        all.map(|posted| (posted.peer, posted.write.local))
            .collect()
    }

    #[test]
    fn a_peer_that_is_full_lets_others_pass_and_keeps_its_order() {
        let mut some = outgoing(&[(1, 0), (1, 1), (2, 0), (1, 2), (3, 0), (2, 1)]);
        assert!(some.pass_by_first());
        let wanted = [(2, 0), (3, 0), (2, 1), (1, 0), (1, 1), (1, 2)];
        assert_eq!(left(&some), wanted);
        let mut alone = outgoing(&[(1, 0), (1, 1)]);
        assert!(!alone.pass_by_first());
        assert_eq!(left(&alone), [(1, 0), (1, 1)]);
    }

    #[test]
    fn only_the_first_are_looked_at() {
        let mut some = outgoing(&[(1, 0), (2, 0), (1, 1)]);
        some.retain_first(2, |posted| posted.peer != 1);
        assert_eq!(left(&some), [(2, 0), (1, 1)]);
        some.taken(1);
        assert_eq!(left(&some), [(1, 1)]);
    }
}
