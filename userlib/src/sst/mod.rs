// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shared state table (spindle §II.B): each node owns a row, writes it,
//! and pushes columns of it to others, who have a copy.
//!
//! Rows are types, made by [`crate::sst_row!`]; nobody computes an offset. All
//! state is monotonic (counters grow, flags rise, lists are appended and
//! truncated at the front), so that a push may carry newer values than those
//! it was meant for, and no lock is needed.
//!
//! ```
//! use weft::fabric::{shm::Shm, Fabric, NodeSet};
//! use weft::sst::{Counter, Flag, List, Table};
//!
//! weft::sst_row! {
//!     /// What each node tells the others.
//!     pub struct Progress {
//!         /// Jobs done.
//!         pub done: Counter,
//!         /// Set at the end.
//!         pub finished: Flag,
//!         /// Who was suspected.
//!         pub suspects: List<16>,
//!     }
//! }
//!
//! # fn main() -> Result<(), weft::fabric::FabricError> {
//! # let timeout = std::time::Duration::from_secs(5);
//! let node = Shm::threads(1)?.remove(0);
//! let bytes = Table::<Progress>::bytes(1);
//! // SAFETY: all of the region is the table, which consists of words.
//! let endpoint = unsafe { node.connect(bytes, &[], timeout) }?.endpoint;
//! let table = Table::<Progress>::new(endpoint, 0)?;
//! table.own().done.advance(7);
//! table.push(Progress::done().through(Progress::finished()), NodeSet::EMPTY)?;
//! assert_eq!(table.row(0).done.get(), 7);
//! # Ok(())
//! # }
//! ```

mod cells;
mod list;
#[cfg(all(test, loom))]
mod loom_tests;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

pub use cells::{Counter, Flag};
pub use list::{List, ListFull};
pub use table::{Columns, Row, Table};

/// What a row may be made of.
///
/// # Safety
///
/// All bytes are atomics, zeros are a valid value, the alignment is 8, and the
/// type has no destructor.
pub unsafe trait Cell {}

// SAFETY: an array adds nothing.
unsafe impl<C: Cell, const N: usize> Cell for [C; N] {}

/// Makes a row type of the table out of a struct of cells ([`Counter`],
/// [`Flag`], [`List`], and arrays of them). For each field there is an
/// associated function of the same name: its [`Columns`].
#[macro_export]
macro_rules! sst_row {
    ($(#[$meta:meta])* $vis:vis struct $row:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $cell:ty),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        #[repr(C, align(64))]
        $vis struct $row {
            $($(#[$field_meta])* $field_vis $field: $cell,)+
        }

        #[allow(dead_code, reason = "not every column is pushed on its own")]
        impl $row {
            $(
                /// The columns of the field of this name.
                $field_vis const fn $field() -> $crate::sst::Columns<Self> {
                    $crate::sst::Columns::new(
                        ::core::mem::offset_of!(Self, $field),
                        ::core::mem::size_of::<$cell>(),
                    )
                }
            )+
        }

        const _: () = {
            const fn is_cell<C: $crate::sst::Cell>() {}
            $(is_cell::<$cell>();)+
        };

        // SAFETY: `repr(C)`, and each field is a cell, as checked above; the
        // padding behind them is never looked at.
        unsafe impl $crate::sst::Row for $row {}
    };
}
