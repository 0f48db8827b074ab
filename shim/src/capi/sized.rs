// SPDX-License-Identifier: MIT OR Apache-2.0

//! Structs that may grow. Each begins with its size, which the program sets, so that
//! programs and libraries of different releases understand each other. The rules are those
//! of Linux's `copy_struct_from_user`: what an older program does not have is zero, and
//! what this library does not know has to be zero.

use nix::errno::Errno;
use std::mem::MaybeUninit;

/// More than any struct will ever have.
const MAX_SIZE: usize = 4096;

/// A struct of `weft.h` that begins with its size.
///
/// # Safety
///
/// It is `repr(C)`, its first field is a `usize`, and all of its bytes may be zero.
pub(super) unsafe trait Extensible {
    /// What every program has of it.
    const MIN_SIZE: usize;
}

/// Reads a struct of the program's. A size that is too small is `EINVAL`, and `E2BIG` one
/// with something in it that this library does not know.
///
/// # Safety
///
/// `from` is null, or points to as many bytes as the size in the first of them says.
pub(super) unsafe fn read<T: Extensible>(from: *const T) -> Result<T, Errno> {
    // SAFETY: the caller promises it.
    let size = unsafe { size(from) }?;
    let known = size.min(size_of::<T>());
    for at in known..size {
        // SAFETY: within the size that the caller promises.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` is within both.
    unsafe {
        value
            .as_mut_ptr()
            .cast::<u8>()
            .copy_from_nonoverlapping(from.cast(), known)
    };
    // SAFETY: the program's fields and zeroes, which `Extensible` allows.
    Ok(unsafe { value.assume_init() })
}

/// Writes a struct of the program's, as much of it as it has, and zero where it has more.
/// Its size stays as it is.
///
/// # Safety
///
/// As [`read`], and nobody else uses what `to` points to.
pub(super) unsafe fn write<T: Extensible>(to: *mut T, value: &T) -> Result<(), Errno> {
    // SAFETY: the caller promises it.
    let size = unsafe { size(to) }?;
    let known = size.min(size_of::<T>());
    let (from, bytes) = (std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>());
    // SAFETY: within both.
    unsafe { bytes.copy_from_nonoverlapping(from, known) };
    // SAFETY: within the size that the caller promises.
    unsafe { bytes.add(known).write_bytes(0, size - known) };
    // SAFETY: the first field is the size.
    unsafe { to.cast::<usize>().write(size) };
    Ok(())
}

/// The size that a program says. `EINVAL`: it has too little of the struct.
///
/// # Safety
///
/// `at` is null, or points to a `T` as far as its program knows it.
pub(super) unsafe fn size<T: Extensible>(at: *const T) -> Result<usize, Errno> {
    // SAFETY: the caller promises it, and the first field is the size.
    let size = *unsafe { at.cast::<usize>().as_ref() }.ok_or(Errno::EINVAL)?;
    if size < T::MIN_SIZE {
        return Err(Errno::EINVAL);
    }
    if size > MAX_SIZE {
        return Err(Errno::E2BIG);
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C)]
    struct Now {
        size: usize,
        old: u64,
        new: u64,
    }

    // SAFETY: as it looks.
    unsafe impl Extensible for Now {
        const MIN_SIZE: usize = 16;
    }

    /// As a program of a later release has it.
    #[repr(C)]
    struct Later {
        now: Now,
        later: u64,
    }

    const fn later(size: usize, later: u64) -> Later {
        let now = Now {
            size,
            old: 1,
            new: 2,
        };
        Later { now, later }
    }

    fn read_of(value: &Later) -> Result<(u64, u64), Errno> {
        // SAFETY: there are as many bytes as the tests say, or more.
        let read = unsafe { read(std::ptr::from_ref(value).cast::<Now>()) };
        read.map(|now| (now.old, now.new))
    }

    #[test]
    fn what_an_older_program_does_not_have_is_zero() {
        assert_eq!(read_of(&later(16, 9)), Ok((1, 0)));
        assert_eq!(read_of(&later(24, 9)), Ok((1, 2)));
    }

    #[test]
    fn what_a_later_program_has_more_must_be_zero() {
        assert_eq!(read_of(&later(32, 0)), Ok((1, 2)));
        assert_eq!(read_of(&later(32, 9)), Err(Errno::E2BIG));
        assert_eq!(read_of(&later(usize::MAX, 0)), Err(Errno::E2BIG));
    }

    #[test]
    fn a_size_that_was_not_set_is_refused() {
        assert_eq!(read_of(&later(0, 0)), Err(Errno::EINVAL));
        assert_eq!(read_of(&later(15, 0)), Err(Errno::EINVAL));
        // SAFETY: null is looked at by nobody.
        assert_eq!(unsafe { read::<Now>(std::ptr::null()) }, Err(Errno::EINVAL));
    }

    #[test]
    fn no_more_is_written_than_the_program_has() {
        let answer = Now {
            size: 0,
            old: 7,
            new: 8,
        };
        for (size, wanted) in [(16, (7, 2, 9)), (24, (7, 8, 9)), (32, (7, 8, 0))] {
            let mut to = later(size, 9);
            // SAFETY: there are as many bytes.
            let written = unsafe { write(std::ptr::from_mut(&mut to).cast(), &answer) };
            assert_eq!(written, Ok(()));
            assert_eq!((to.now.old, to.now.new, to.later), wanted);
            assert_eq!(to.now.size, size);
        }
    }
}
