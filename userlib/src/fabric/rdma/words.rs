// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the words of small writes get there whole.
//!
//! Devices that write memory by DMA move aligned words of 8 bytes whole, though no
//! specification says so: PCI Express leaves it to the platform. (What comes closest is
//! `ibv_query_qp_data_in_order(3)`, for aligned 128 bytes, which few providers answer.) What
//! writes by software, soft-RoCE and Weft's own transport, copies with the
//! kernel's `memcpy`: by words on processors without fast short string moves,
//! else with `rep movsb`. No manual says that this moves words whole. Processors
//! do in practice (none was torn in 140 million copies on one); an emulated one
//! does not (most were). Both have a request that stores one word by
//! construction (soft-RoCE's is ATOMIC WRITE: IBTA vol. 1, A19), so where it matters a write
//! becomes one such request a word.

use crate::fabric::{Write, WORD_ATOMIC_BYTES};

pub(in crate::fabric) const WORD: usize = size_of::<u64>();

/// How the words of small writes get to a peer whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// One by one if they are copied by software and the processor has fast short
    /// string moves, else together. All hosts are taken to be alike.
    #[default]
    Auto,
    /// Together: one request for up to 32 words.
    Together,
    /// One by one: a request for each, which stores it at once.
    Single,
}

impl Words {
    /// Whether words go one by one, if the transport copies in software.
    pub(in crate::fabric) fn are_single(self, is_software: bool) -> bool {
        match self {
            Self::Auto => is_software && moves_strings(),
            Self::Together => false,
            Self::Single => true,
        }
    }
}

/// Whether the kernel's `memcpy` is `rep movsb` here: it asks the same flag.
fn moves_strings() -> bool {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "fsrm")
}

/// Whether a write is one whose words are promised to be seen whole.
pub(in crate::fabric) fn has_whole_words(write: &Write) -> bool {
    (write.local | write.remote | write.len) % WORD == 0 && write.len <= WORD_ATOMIC_BYTES
}

/// Whether a write is of words that travel in its request, which carries so
/// many bytes at most.
pub(in crate::fabric) fn goes_inline(write: &Write, most: usize) -> bool {
    has_whole_words(write) && write.len <= most
}
