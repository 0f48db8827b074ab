// SPDX-License-Identifier: MIT OR Apache-2.0

//! A link carries the writes from one node to another, one behind the other.

use super::memory::{copy, words, WORD};
use crate::fabric::{Region, Write, COPIED_BYTES, WORD_ATOMIC_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Parts of a long write that arrive at different times, at most.
const PARTS: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Link(VecDeque<UnderWay>);

/// A write that has not arrived, or not all of it.
#[derive(Debug)]
struct UnderWay {
    write: Write,
    /// The memory that it is read from: of the node that has posted it, which may have gone.
    source: Region,
    /// Its words, if the source was read when it was posted.
    copied: Option<Vec<u64>>,
    /// Ranges of it that have not arrived, in the order in which they will.
    left: Vec<Range<usize>>,
}

/// A part of a write is about to arrive.
pub(super) struct Arrival<'a> {
    pub(super) write: &'a Write,
    pub(super) part: &'a Range<usize>,
    /// Its source is read only now, and is in this region.
    pub(super) reads: Option<&'a Region>,
}

impl Link {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn post(&mut self, source: &Region, write: Write, rng: &mut fastrand::Rng) {
        if write.len == 0 {
            return;
        }
        let own = words(source, write.local, write.len).filter(|_| write.remote % WORD == 0);
        let must_copy = write.len <= COPIED_BYTES;
        let are_words = own.is_some() && write.len <= WORD_ATOMIC_BYTES;
        let mut left = match are_words {
            true => ranges(write.len, write.len / WORD),
            false => ranges(write.len, rng.usize(1..=PARTS)),
        };
        rng.shuffle(&mut left);
        self.0.push_back(UnderWay {
            write,
            source: source.clone(),
            copied: own.filter(|_| must_copy || rng.bool()),
            left,
        });
    }

    /// Lets some of the first write arrive.
    pub(super) fn advance(
        &mut self,
        target: &Region,
        rng: &mut fastrand::Rng,
        touch: &mut dyn FnMut(&Arrival<'_>),
    ) {
        let Some(first) = self.0.front_mut() else {
            return;
        };
        let count = match rng.bool() {
            true => first.left.len(),
            false => 1,
        };
        for _ in 0..count {
            if let Some(part) = first.left.pop() {
                touch(&Arrival {
                    write: &first.write,
                    part: &part,
                    reads: Some(&first.source).filter(|_| first.copied.is_none()),
                });
                first.arrive(&part, target);
            }
        }
        if first.left.is_empty() {
            self.0.pop_front();
        }
    }

    /// Lets all of the first write arrive.
    #[cfg(test)]
    pub(super) fn arrive_first(&mut self, target: &Region) {
        if let Some(first) = self.0.pop_front() {
            for part in &first.left {
                first.arrive(part, target);
            }
        }
    }

    /// Loses all.
    pub(super) fn lose_all(&mut self) {
        self.0.clear();
    }

    /// Loses what is behind a random point, which may be within a write.
    pub(super) fn lose(&mut self, rng: &mut fastrand::Rng) {
        self.0.truncate(rng.usize(0..=self.0.len()));
        if let Some(last) = self.0.back_mut() {
            let lost = rng.usize(0..=last.left.len());
            last.left.drain(..lost);
            if last.left.is_empty() {
                self.0.pop_back();
            }
        }
    }
}

/// All that is under way, for models. Whose memory it is read from goes without saying.
#[cfg(test)]
impl std::hash::Hash for Link {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for UnderWay {
            write,
            copied,
            left,
            ..
        } in &self.0
        {
            (write, copied, left).hash(state);
        }
    }
}

impl UnderWay {
    fn arrive(&self, part: &Range<usize>, target: &Region) {
        let Write { local, remote, .. } = self.write;
        let Some(copied) = &self.copied else {
            copy(
                &self.source,
                local + part.start,
                target,
                remote + part.start,
                part.len(),
            );
            return;
        };
        for at in part.clone().step_by(WORD) {
            if let Ok(word) = target.word(remote + at) {
                word.store(copied[at / WORD], Ordering::Release);
            }
        }
    }
}

/// So many ranges of about the same length, of whole words.
fn ranges(len: usize, count: usize) -> Vec<Range<usize>> {
    let step = len.div_ceil(count.max(1)).next_multiple_of(WORD);
    let begins = (0..len).step_by(step);
    begins.map(|begin| begin..(begin + step).min(len)).collect()
}
