// SPDX-License-Identifier: GPL-2.0

//! A session's objects by their handles.
//!
//! A handle is a place and its generation, so that one of an object that is gone names
//! nothing for as long as a place has not been used 4,095 times more. Zero is nobody's.
//! Places come in chunks, which are allocated without the session's lock.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;

/// Places of a chunk.
const CHUNK: usize = 64;
/// Bits of a handle that are the place; the others are the generation.
const PLACE_BITS: u32 = 20;
const GENERATIONS: u32 = 1 << (32 - PLACE_BITS);
/// No place.
const NONE: u32 = u32::MAX;
/// Room for chunks in the first directory.
const FIRST_CHUNKS: usize = 4;

struct Place<T> {
    object: Option<T>,
    /// Of the object that is there, or comes next; never zero.
    generation: u32,
    /// The next place that is free, if this one is.
    next_free: u32,
}

type Chunk<T> = KBox<[Place<T>; CHUNK]>;
type Directory<T> = KVec<Chunk<T>>;

/// Objects by handle.
///
/// # Invariants
///
/// The places without an object are those of the list that begins at `free`.
pub(crate) struct Handles<T> {
    chunks: Directory<T>,
    free: u32,
    count: usize,
}

/// Memory for the objects of one more chunk.
pub(crate) struct MorePlaces<T> {
    chunk: Chunk<T>,
    /// A larger directory, if there has to be one.
    directory: Option<Directory<T>>,
}

/// The number of chunks that there are, and whether the directory is full.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    chunks: usize,
    is_full: bool,
}

impl<T> MorePlaces<T> {
    /// Memory for a table of that size. May sleep.
    ///
    /// # Errors
    ///
    /// `EMFILE` (there are no more handles), `ENOMEM`.
    pub(crate) fn new(size: Size) -> Result<Self> {
        let first = size.chunks * CHUNK;
        if first + CHUNK >= 1 << PLACE_BITS {
            return Err(EMFILE);
        }
        let chunk = KBox::new(
            core::array::from_fn(|at| Place {
                object: None,
                generation: 1,
                next_free: match at + 1 < CHUNK {
                    true => (first + at + 1) as u32,
                    false => NONE,
                },
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let directory = match size.is_full {
            true => Some(KVec::with_capacity(
                (2 * size.chunks).max(FIRST_CHUNKS),
                GFP_KERNEL_ACCOUNT,
            )?),
            false => None,
        };
        Ok(Self { chunk, directory })
    }
}

impl<T> Handles<T> {
    /// None, and no room.
    pub(crate) const fn new() -> Self {
        // INVARIANT: there are no places.
        Self {
            chunks: KVec::new(),
            free: NONE,
            count: 0,
        }
    }

    /// The size of the table, if it has no room for another object.
    pub(crate) fn is_full(&self) -> Option<Size> {
        (self.free == NONE).then_some(Size {
            chunks: self.chunks.len(),
            is_full: self.chunks.len() == self.chunks.capacity(),
        })
    }

    /// Makes room, unless somebody has done so since its size was asked for. Answers what
    /// it did not need, to be freed without the lock.
    pub(crate) fn grow(&mut self, more: MorePlaces<T>) -> Option<MorePlaces<T>> {
        let MorePlaces { chunk, directory } = more;
        let wanted = self.chunks.len() * CHUNK + 1;
        let is_next = chunk
            .first()
            .is_some_and(|place| place.next_free as usize == wanted);
        if self.free != NONE || !is_next {
            return Some(MorePlaces { chunk, directory });
        }
        if let Some(mut larger) = directory {
            for chunk in core::mem::take(&mut self.chunks) {
                let _: Result<(), _> = larger.push_within_capacity(chunk);
            }
            self.chunks = larger;
        }
        let first = (self.chunks.len() * CHUNK) as u32;
        // INVARIANT: the chunk's places are free, and their list ends with it.
        if self.chunks.push_within_capacity(chunk).is_ok() {
            self.free = first;
        }
        None
    }

    /// Takes an object in. Answers its handle.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub(crate) fn insert(&mut self, object: T) -> Result<u32, T> {
        let at = self.free;
        let Some(place) = self.place_mut(at) else {
            return Err(object);
        };
        place.object = Some(object);
        let (handle, next) = (at | place.generation << PLACE_BITS, place.next_free);
        // INVARIANT: it is no longer free.
        self.free = next;
        self.count += 1;
        Ok(handle)
    }

    /// The object of a handle.
    #[inline]
    pub(crate) fn get(&self, handle: u32) -> Option<&T> {
        let at = handle % (1 << PLACE_BITS);
        let chunk = self.chunks.get(at as usize / CHUNK)?;
        let place = chunk.get(at as usize % CHUNK)?;
        let object = place.object.as_ref()?;
        (place.generation == handle >> PLACE_BITS).then_some(object)
    }

    /// Takes the object of a handle out.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<T> {
        self.get(handle)?;
        let at = handle % (1 << PLACE_BITS);
        let free = self.free;
        let place = self.place_mut(at)?;
        let object = place.object.take()?;
        place.generation = match place.generation + 1 {
            GENERATIONS => 1,
            next => next,
        };
        place.next_free = free;
        // INVARIANT: it is free.
        self.free = at;
        self.count -= 1;
        Some(object)
    }

    /// How many objects there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let places = self.chunks.iter().flat_map(|chunk| chunk.iter());
        places.filter_map(|place| place.object.as_ref())
    }

    fn place_mut(&mut self, at: u32) -> Option<&mut Place<T>> {
        let chunk = self.chunks.get_mut(at as usize / CHUNK)?;
        chunk.get_mut(at as usize % CHUNK)
    }
}
