// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who has to be told what about sleep (spindle §II.D), when telling costs a
//! message.
//!
//! Ringing a node that is awake must cost nothing, so nodes say when they go to
//! sleep: once, until they have been rung. A ring that comes before the
//! announcement is remembered and answers it. So whichever of a ring and an
//! announcement comes first, the sleeper is rung; and it is rung over the
//! connection that carried the data, behind the data.
//!
//! | as the ringer knows the sleeper | it rings | it hears the announcement |
//! |---|---|---|
//! | [`AWAKE`] | no message: [`RUNG`] | [`ASLEEP`] |
//! | [`RUNG`] | no message | a message goes: [`AWAKE`] |
//! | [`ASLEEP`] | a message goes: [`AWAKE`] | (not before the message) |
//!
//! | what the sleeper has said | it goes to sleep | it is rung by message |
//! |---|---|---|
//! | [`UNTOLD`] | announces it: [`TOLD`] | |
//! | [`TOLD`] | says nothing | [`UNTOLD`] |
//! | [`SHUT`] | says nothing | (the door is opened: [`UNTOLD`]) |

use std::sync::atomic::{AtomicU8, Ordering};

/// As far as this node knows, the peer is awake, and was not rung since it
/// slept last.
const AWAKE: u8 = 0;
/// It is awake and was rung: its next announcement is answered at once.
const RUNG: u8 = 1;
/// It said that it sleeps.
const ASLEEP: u8 = 2;

/// The peer was not told that this node sleeps, since it has rung last.
const UNTOLD: u8 = 0;
/// It was told, and has not rung since.
const TOLD: u8 = 1;
/// It waits for another word of this node first.
const SHUT: u8 = 2;

/// What stands between this node and one peer.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// The peer, as this node knows it.
    peer: AtomicU8,
    /// How far the peer knows of this node's sleep.
    own: AtomicU8,
}

impl Door {
    /// Of a peer that waits for another word of this node first. Nothing is announced before
    /// [`Self::rang`].
    pub(super) fn shut() -> Self {
        Self {
            peer: AtomicU8::new(AWAKE),
            own: AtomicU8::new(SHUT),
        }
    }

    /// The peer is to be rung. Answers whether a message has to go.
    pub(super) fn ring(&self) -> bool {
        let next = |state| match state {
            AWAKE => Some(RUNG),
            ASLEEP => Some(AWAKE),
            _ => None,
        };
        let was = self
            .peer
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        was == Ok(ASLEEP)
    }

    /// The peer has announced its sleep. Answers whether it has to be rung.
    pub(super) fn fell_asleep(&self) -> bool {
        let next = |state| Some(if state == RUNG { AWAKE } else { ASLEEP });
        let was = self
            .peer
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        was == Ok(RUNG)
    }

    /// This node goes to sleep. Answers whether the peer has to be told.
    pub(super) fn announce(&self) -> bool {
        let told = self
            .own
            .compare_exchange(UNTOLD, TOLD, Ordering::AcqRel, Ordering::Acquire);
        told.is_ok()
    }

    /// The peer has rung, or a door that was shut is opened.
    pub(super) fn rang(&self) {
        self.own.store(UNTOLD, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_and_an_announcement_meet_in_either_order() {
        let door = Door::default();
        assert!(!door.fell_asleep());
        assert!(door.ring(), "it sleeps: a message goes");
        assert!(!door.ring(), "it was rung already");
        assert!(door.fell_asleep(), "the second ring answers");
        assert!(!door.fell_asleep(), "nobody has rung since");
        assert!(door.ring());
    }

    #[test]
    fn rings_at_one_who_is_awake_are_remembered_once() {
        let door = Door::default();
        for _ in 0..10 {
            assert!(!door.ring());
        }
        assert!(door.fell_asleep());
        assert!(!door.fell_asleep());
    }

    #[test]
    fn a_sleep_is_announced_again_only_after_a_ring() {
        let door = Door::default();
        assert!(door.announce());
        assert!(!door.announce());
        door.rang();
        assert!(door.announce());
    }

    #[test]
    fn at_a_shut_door_nothing_is_announced() {
        let door = Door::shut();
        assert!(!door.announce());
        door.rang();
        assert!(door.announce());
    }
}
