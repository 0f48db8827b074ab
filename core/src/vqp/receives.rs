// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A receive ring: its index, and which VQPs take buffers from it.

/// How a VQP takes receive buffers from a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveUse {
    /// The ring is its own. If the VQP is in error, what is posted comes back.
    Own,
    /// It shares the ring with others that have said so, too. The buffers are nobody's.
    Shared,
}

/// The VQPs that take buffers from a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receivers {
    None,
    One {
        /// Its handle, once it is in error.
        failed: Option<u32>,
    },
    /// So many that share it.
    Sharing(u32),
}

/// Knows which receive buffer is the next, whatever the user makes of its own index, and for
/// whom it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receives {
    entries: u32,
    head: u32,
    receivers: Receivers,
}

impl Receives {
    /// A ring of so many entries, of which none was taken.
    #[must_use]
    pub const fn new(entries: u32) -> Self {
        Self {
            entries,
            head: 0,
            receivers: Receivers::None,
        }
    }

    /// A VQP begins to take buffers. Answers whether it may: nobody else does, or all share
    /// the ring.
    #[must_use]
    pub fn begin(&mut self, how: ReceiveUse) -> bool {
        self.receivers = match (self.receivers, how) {
            (Receivers::None, ReceiveUse::Own) => Receivers::One { failed: None },
            (Receivers::None, ReceiveUse::Shared) => Receivers::Sharing(1),
            (Receivers::Sharing(count), ReceiveUse::Shared) => Receivers::Sharing(count + 1),
            (Receivers::One { .. }, _) | (Receivers::Sharing(_), ReceiveUse::Own) => return false,
        };
        true
    }

    /// A VQP that took buffers is gone. After the last one another may have the ring for its
    /// own.
    pub fn end(&mut self) {
        self.receivers = match self.receivers {
            Receivers::Sharing(count @ 2..) => Receivers::Sharing(count - 1),
            _ => Receivers::None,
        };
    }

    /// The VQP with this handle is in error. Answers whether the ring is its own, so that what
    /// is posted comes back.
    pub fn fail(&mut self, vqp: u32) -> bool {
        let Receivers::One { failed } = &mut self.receivers else {
            return false;
        };
        *failed = Some(vqp);
        true
    }

    /// The VQP in error whose own the ring is: what is posted comes back.
    #[inline]
    #[must_use]
    pub const fn failed(&self) -> Option<u32> {
        match self.receivers {
            Receivers::One { failed } => failed,
            _ => None,
        }
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
            head: u32::MAX,
            ..Receives::new(4)
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

    #[test]
    fn a_ring_is_one_vqps_own_or_shared() {
        let mut ring = Receives::new(4);
        assert!(ring.begin(ReceiveUse::Own));
        assert!(!ring.begin(ReceiveUse::Own) && !ring.begin(ReceiveUse::Shared));
        ring.end();
        assert!(ring.begin(ReceiveUse::Shared) && ring.begin(ReceiveUse::Shared));
        assert!(!ring.begin(ReceiveUse::Own));
        ring.end();
        assert!(!ring.begin(ReceiveUse::Own), "one is left");
        ring.end();
        assert!(ring.begin(ReceiveUse::Own), "all are gone");
    }

    #[test]
    fn a_failure_is_of_the_own_ring_and_ends_with_its_vqp() {
        let mut ring = Receives::new(4);
        assert!(!ring.fail(7), "of nobody");
        assert!(ring.begin(ReceiveUse::Shared));
        assert!(!ring.fail(7), "the buffers are others' too");
        assert_eq!(ring.failed(), None);
        ring.end();
        assert!(ring.begin(ReceiveUse::Own));
        assert!(ring.fail(7));
        assert_eq!(ring.failed(), Some(7));
        ring.end();
        assert_eq!(ring.failed(), None);
    }
}
