// SPDX-License-Identifier: GPL-2.0

//! A network namespace that does not go while somebody works in it.

use core::ptr::NonNull;

use crate::bindings;

/// A reference to a network namespace.
///
/// It is held for the time of a call only: a namespace that is kept from going keeps
/// its devices and addresses too.
///
/// # Invariants
///
/// The namespace is valid and one of its references is ours.
pub(crate) struct Netns(NonNull<bindings::net>);

impl Netns {
    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// The namespace is valid, and one of its references is the caller's to give away.
    pub(crate) unsafe fn from_raw(net: NonNull<bindings::net>) -> Self {
        // INVARIANT: as the caller promises.
        Self(net)
    }

    /// The kernel's object, valid as long as this reference is held.
    pub(crate) fn raw(&self) -> NonNull<bindings::net> {
        self.0
    }

    /// The inode number that names the namespace.
    pub(crate) fn inum(&self) -> u64 {
        // SAFETY: valid by the invariant.
        unsafe { bindings::weft_net_inum(self.0.as_ptr()) }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // SAFETY: the reference is ours by the invariant.
        unsafe { bindings::weft_net_put(self.0.as_ptr()) };
    }
}
