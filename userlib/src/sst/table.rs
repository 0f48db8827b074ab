// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table: a row for each node, at the same place in every region.

use super::{Cell, List};
use crate::fabric::{Endpoint, FabricError, NodeSet, Write, COPIED_BYTES, WORD_ATOMIC_BYTES};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// A type of row, made by [`crate::sst_row!`].
///
/// # Safety
///
/// `repr(C, align(64))`, all fields are [`Cell`]s.
pub unsafe trait Row: Sized + Sync {}

/// A range of columns of a row.
pub struct Columns<R> {
    offset: usize,
    len: usize,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for Columns<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Columns<R> {}

impl<R> fmt::Debug for Columns<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Columns({}..{})", self.offset, self.offset + self.len)
    }
}

impl<R> Columns<R> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(offset: usize, len: usize) -> Self {
        let row_bytes = size_of::<R>();
        assert!(
            len <= row_bytes && offset <= row_bytes - len,
            "columns are within their row"
        );
        Self {
            offset,
            len,
            row: PhantomData,
        }
    }

    /// One word of these columns: an element of an array of counters.
    #[must_use]
    pub fn word(self, index: usize) -> Self {
        let at = (index * 8).min(self.len.saturating_sub(8));
        Self::new(self.offset + at, 8)
    }

    /// From the first of these columns to the last of those, and all between.
    #[must_use]
    pub fn through(self, other: Self) -> Self {
        let offset = self.offset.min(other.offset);
        let end = (self.offset + self.len).max(other.offset + other.len);
        Self::new(offset, end - offset)
    }
}

/// The rows of all nodes, as this one sees them.
///
/// # Invariants
///
/// `base` is a multiple of 64, and `nodes` rows from there on, the first of them
/// at `rows`, are within the own region, which `endpoint` keeps mapped.
pub struct Table<R> {
    endpoint: Arc<dyn Endpoint>,
    base: usize,
    rank: usize,
    nodes: usize,
    rows: NonNull<R>,
}

// SAFETY: rows are atomics, wherever they are looked at from, and are mapped
// while the endpoint lives.
unsafe impl<R: Row> Send for Table<R> {}
// SAFETY: as for `Send`.
unsafe impl<R: Row> Sync for Table<R> {}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("endpoint", &self.endpoint)
            .field("base", &self.base)
            .finish()
    }
}

impl<R: Row> Table<R> {
    /// Bytes of a table for so many nodes.
    #[must_use]
    pub const fn bytes(nodes: usize) -> usize {
        size_of::<R>() * nodes
    }

    /// The table at an offset of the region, the same at every node. The bytes
    /// belong to it alone.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRange`], [`FabricError::Misaligned`].
    pub fn new(endpoint: Arc<dyn Endpoint>, base: usize) -> Result<Self, FabricError> {
        let nodes = endpoint.nodes();
        let rows = endpoint.region().range(base, Self::bytes(nodes))?;
        if base % align_of::<R>() != 0 {
            return Err(FabricError::Misaligned(base));
        }
        // INVARIANT: just checked.
        Ok(Self {
            base,
            rank: endpoint.rank(),
            nodes,
            rows: rows.cast(),
            endpoint,
        })
    }

    /// A node's row. For others than the own one it is a copy, as old as their
    /// last push.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    #[must_use]
    pub fn row(&self, node: usize) -> &R {
        assert!(node < self.nodes, "no node {node}");
        // SAFETY: one of the table's rows, by the check and the invariant.
        let row = unsafe { self.rows.add(node) };
        // SAFETY: mapped while the endpoint lives, aligned by the invariant
        // (regions are aligned to 64); zeros are valid and all access, of
        // peers too, is to atomic words, since `R` is a `Row`.
        unsafe { row.as_ref() }
    }

    /// The row that this node owns.
    #[must_use]
    pub fn own(&self) -> &R {
        self.row(self.rank)
    }

    /// The write that pushes these columns of the own row.
    #[must_use]
    pub fn write(&self, columns: Columns<R>) -> Write {
        let offset = self.base + self.rank * size_of::<R>() + columns.offset;
        Write {
            local: offset,
            remote: offset,
            len: columns.len,
        }
    }

    /// Pushes columns of the own row to these nodes. The own node among them
    /// is left out. Many columns go in several writes, so that the words of each are whole
    /// ([`WORD_ATOMIC_BYTES`]).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`], after all others were posted to.
    pub fn push(&self, columns: Columns<R>, to: NodeSet) -> Result<(), FabricError> {
        if columns.len <= WORD_ATOMIC_BYTES {
            return self.post(&[self.write(columns)], to);
        }
        let pieces = (0..columns.len).step_by(WORD_ATOMIC_BYTES).map(|at| {
            let len = WORD_ATOMIC_BYTES.min(columns.len - at);
            self.write(Columns::new(columns.offset + at, len))
        });
        self.post(&pieces.collect::<Vec<_>>(), to)
    }

    /// Pushes a list of the own row: its words first, its guard behind them. Words go in
    /// writes so short that the fabric reads them at once: the owner may append and truncate
    /// as soon as this returns.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    pub fn push_list<const N: usize>(
        &self,
        columns: Columns<R>,
        to: NodeSet,
    ) -> Result<(), FabricError>
    where
        List<N>: Cell,
    {
        let guard_bytes = List::<N>::GUARD_BYTES;
        let guard_at = columns.offset + columns.len - guard_bytes;
        let pieces = (columns.offset..guard_at).step_by(COPIED_BYTES);
        let words = pieces.map(|at| Columns::new(at, COPIED_BYTES.min(guard_at - at)));
        let guard = Columns::new(guard_at, guard_bytes);
        let writes: Vec<Write> = words.chain([guard]).map(|part| self.write(part)).collect();
        self.post(&writes, to)
    }

    fn post(&self, writes: &[Write], to: NodeSet) -> Result<(), FabricError> {
        let mut outcome = Ok(());
        for peer in to.iter().filter(|&peer| peer != self.rank) {
            outcome = outcome.and(self.endpoint.post(peer, writes));
        }
        outcome
    }
}
