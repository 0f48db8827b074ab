// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The hash table that peers read with one-sided READs (krcore §4.2).
//!
//! It follows DrTM-KV's cluster chaining: a key hashes to a *main bucket* of
//! eight slots; a full bucket links to another from a shared *cluster area*.
//! Unlike DrTM-KV's, the value lies in the slot itself, so that the common
//! look-up is ONE READ of one bucket.
//!
//! A server changes its table with [`Table`] while peers read it with
//! [`Lookup`]; neither waits for the other. Three rules make that safe:
//!
//! 1. **No torn value.** A slot is six words of 48 bits of payload and 16 bits
//!    of version. Each write of a slot, be it insert, update or removal, gives
//!    all six the next version, also when the slot changes its key. A reader
//!    takes a slot only if its six versions agree, and then all six words come
//!    from one write. That asks of a READ only that an aligned 8-byte word is read
//!    whole, and nothing about the order. Neither IBTA nor PCI Express promises that;
//!    adapters whose DMA goes through the processors' caches do it. soft-RoCE does it by
//!    the kernel's `memcpy`, which no manual promises where that is `rep movsb`
//!    (ARCHITECTURE.md, "What is expected of a device").
//!    It holds as long as one slot is written fewer than 65,536 times between
//!    the first and the last word of one READ: with a microsecond for a write,
//!    65 ms, against the microseconds that a READ of one bucket takes.
//! 2. **No missed key.** An entry stays in its slot until it is removed, so a
//!    key that is present during the whole look-up is in every image of its
//!    bucket or the slot is torn; a torn slot is read again. *Absent* needs
//!    every slot of the chain to be whole.
//! 3. **No dangling link.** A link is one word. A cluster bucket holds its
//!    first entry before the link to it is stored, and it leaves a chain only
//!    from the end and only when empty. A reader that still comes by an old
//!    link reads a foreign bucket, where its key cannot be: had it been in the
//!    bucket, that would not have been empty.

mod layout;
mod lookup;
mod table;

#[cfg(all(test, not(loom)))]
mod tests;

pub use layout::{
    Geometry, Key, Value, BUCKET_BYTES, BUCKET_WORDS, KEY_BYTES, MAX_BUCKETS, MAX_CHAIN_BUCKETS,
    SLOTS_PER_BUCKET, SLOT_WORDS, VALUE_BYTES,
};
pub use lookup::{Lookup, ReadAt, Step, MAX_TORN_READS};
pub use table::{Full, Table};
