// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Structs that user and kernel hand to each other as bytes.

/// Marks a struct that user and kernel may hand to each other as bytes.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding and no pointer, and every bit pattern
/// is a valid value.
pub unsafe trait Pod: Copy + Sized + 'static {
    /// The value with every bit clear.
    #[must_use]
    fn zeroed() -> Self {
        // SAFETY: the trait promises that every bit pattern is a valid value.
        unsafe { core::mem::zeroed() }
    }

    /// The value as bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the trait promises that there is no padding, so that every
        // byte is initialised; the length is the type's own.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value as bytes that may be overwritten.
    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`; any bytes written are a valid value.
        unsafe {
            core::slice::from_raw_parts_mut(core::ptr::from_mut(self).cast(), size_of::<Self>())
        }
    }
}

macro_rules! pod {
    ($(#[$meta:meta])* pub struct $name:ident [$size:literal] { $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }

        const _: () = {
            // No padding: the size is the fields' sum, and it never changes.
            assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*);
            assert!(size_of::<$name>() == $size);
        };

        // SAFETY: `repr(C)`, the assertion above rules padding out, and every
        // field is an integer, an array of integers, or such a struct.
        unsafe impl Pod for $name {}
    };
}

pub(super) use pod;
