// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A receive ring's index.

/// Knows which receive buffer is the next, whatever the user makes of its own index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receives {
    entries: u32,
    head: u32,
}

impl Receives {
    /// A ring of so many entries, of which none was taken.
    #[must_use]
    pub const fn new(entries: u32) -> Self {
        Self { entries, head: 0 }
    }

    /// The index of the next receive buffer, if the user, who says that it has posted up
    /// to `rq_tail`, has one there.
    #[inline]
    #[must_use]
    pub fn next(&self, rq_tail: u32) -> Option<u32> {
        let posted = rq_tail.wrapping_sub(self.head);
        // More than the ring has is nonsense, and counts as nothing.
        (posted != 0 && posted <= self.entries).then_some(self.head)
    }

    /// The next one was copied. Answers the head, which frees its place.
    #[inline]
    pub fn take(&mut self) -> u32 {
        self.head = self.head.wrapping_add(1);
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_in_order_and_nonsense_is_none() {
        let mut ring = Receives {
            entries: 4,
            head: u32::MAX,
        };
        assert_eq!(ring.next(u32::MAX), None);
        assert_eq!(ring.next(4), None, "more than there is room for");
        assert_eq!(ring.next(u32::MAX - 1), None);
        assert_eq!(ring.next(1), Some(u32::MAX));
        assert_eq!(ring.take(), 0);
        assert_eq!(ring.next(1), Some(0));
        assert_eq!(ring.take(), 1);
        assert_eq!(ring.next(1), None);
    }
}
