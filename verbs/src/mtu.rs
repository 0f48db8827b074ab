// SPDX-License-Identifier: MIT OR Apache-2.0

//! Path MTUs: how much of a message one packet carries.

use crate::sys;

/// The largest payload of a packet, one of the five that InfiniBand has.
///
/// # Invariants
///
/// The number is a valid `ibv_mtu`: 1 for 256 bytes to 5 for 4,096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathMtu(u8);

impl PathMtu {
    /// The MTU with this number of `ibv_mtu`, if there is one.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let valid = (sys::IBV_MTU_256..=sys::IBV_MTU_4096).contains(&number);
        // INVARIANT: checked just above.
        valid.then_some(Self(u8::try_from(number).ok()?))
    }

    /// Its number as an `ibv_mtu`.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Bytes of payload.
    #[must_use]
    pub fn bytes(self) -> u32 {
        128 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_those_of_the_verbs() {
        let bytes = (1..=5).map(|number| PathMtu::from_number(number).unwrap().bytes());
        assert!(bytes.eq([256, 512, 1024, 2048, 4096]));
        assert_eq!(PathMtu::from_number(0), None);
        assert_eq!(PathMtu::from_number(6), None);
        assert!(PathMtu::from_number(3) < PathMtu::from_number(5));
    }
}
