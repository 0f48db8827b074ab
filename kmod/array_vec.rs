// SPDX-License-Identifier: GPL-2.0

//! A few values on the stack. Room that is cleared first costs as much as a small
//! request; so the room is made apart, where nothing else makes the compiler clear
//! it, and [`ArrayVec`] counts what is in it.

use core::mem::MaybeUninit;

/// Room for `N` values.
pub(crate) type Room<T, const N: usize> = [MaybeUninit<T>; N];

/// Room, not cleared.
#[inline(always)]
pub(crate) const fn room<T, const N: usize>() -> Room<T, N> {
    [const { MaybeUninit::uninit() }; N]
}

/// The values in some room.
///
/// # Invariants
///
/// The first `len` places of `room` are initialised, and theirs are the values.
pub(crate) struct ArrayVec<'a, T> {
    room: &'a mut [MaybeUninit<T>],
    len: usize,
}

impl<'a, T> ArrayVec<'a, T> {
    /// None yet.
    #[inline]
    pub(crate) fn new(room: &'a mut [MaybeUninit<T>]) -> Self {
        // INVARIANT: none.
        Self { room, len: 0 }
    }

    /// Adds a value; what does not fit goes.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if let Some(place) = self.room.get_mut(self.len) {
            place.write(value);
            // INVARIANT: written just above.
            self.len += 1;
        }
    }

    /// Takes the last value back out.
    #[inline]
    pub(crate) fn pop(&mut self) {
        let Some(last) = self.len.checked_sub(1) else {
            return;
        };
        // INVARIANT: the place no longer counts.
        self.len = last;
        if let Some(place) = self.room.get_mut(last) {
            // SAFETY: it was initialised, by the invariant, and is no longer ours.
            unsafe { place.assume_init_drop() };
        }
    }

    /// The values.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: initialised, by the invariant.
        unsafe { core::slice::from_raw_parts(self.room.as_ptr().cast(), self.len) }
    }

    /// The values.
    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: initialised, by the invariant.
        unsafe { core::slice::from_raw_parts_mut(self.room.as_mut_ptr().cast(), self.len) }
    }

    /// Drops all.
    #[inline]
    pub(crate) fn clear(&mut self) {
        let values: *mut [T] = self.as_mut_slice();
        // INVARIANT: none.
        self.len = 0;
        // SAFETY: they were initialised, and are no longer ours.
        unsafe { core::ptr::drop_in_place(values) };
    }
}

impl<T> Drop for ArrayVec<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}
