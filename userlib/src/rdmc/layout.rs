// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where everything is in each node's region: cells that peers write, cells
//! that are posted to them, and behind both the memory for messages.

use super::words::{CELL_BYTES, PAGE};
use super::Error;
use crate::fabric::MAX_REGION_BYTES;

/// The same at all nodes: it follows from the numbers of nodes and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) nodes: usize,
    /// Groups at a time.
    pub(super) groups: usize,
}

impl Layout {
    /// Where node `writer` writes to this node about the group at `place`.
    pub(super) fn heard(self, place: usize, writer: usize) -> usize {
        (place * self.nodes + writer) * CELL_BYTES
    }

    /// What this node writes to `reader` about the group at `place`.
    pub(super) fn told(self, place: usize, reader: usize) -> usize {
        self.cells() + self.heard(place, reader)
    }

    /// Where node `writer` says that it has taken this node in: a cell behind those of groups.
    pub(super) fn welcome_of(self, writer: usize) -> usize {
        self.heard(self.groups, writer)
    }

    /// The place of this node's word to `reader`, which it writes when it has taken it in.
    pub(super) fn welcome_to(self, reader: usize) -> usize {
        self.told(self.groups, reader)
    }

    /// Where messages begin.
    pub(super) fn memory(self) -> usize {
        (2 * self.cells()).next_multiple_of(PAGE)
    }

    /// Bytes of a region with so much for messages.
    pub(super) fn region_bytes(self, bytes: usize) -> Result<usize, Error> {
        let end = self.memory().checked_add(bytes);
        let fits = (1..=super::MAX_GROUPS).contains(&self.groups) && bytes >= PAGE;
        end.filter(|&end| fits && end <= MAX_REGION_BYTES)
            .ok_or(Error::BadNode {
                groups: self.groups,
                bytes,
            })
    }

    fn cells(self) -> usize {
        self.nodes * (self.groups + 1) * CELL_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cells_do_not_overlap() {
        let layout = Layout {
            nodes: 3,
            groups: 5,
        };
        let mut cells: Vec<_> = (0..5)
            .flat_map(|place| (0..3).map(move |node| (place, node)))
            .flat_map(|(place, node)| [layout.heard(place, node), layout.told(place, node)])
            .chain((0..3).flat_map(|node| [layout.welcome_of(node), layout.welcome_to(node)]))
            .collect();
        cells.sort_unstable();
        assert!(cells.windows(2).all(|pair| pair[0] + CELL_BYTES <= pair[1]));
        assert!(cells[cells.len() - 1] + CELL_BYTES <= layout.memory());
    }

    #[test]
    fn limits_are_kept() {
        let layout = |groups| Layout { nodes: 64, groups };
        assert!(layout(super::super::MAX_GROUPS).region_bytes(PAGE).is_ok());
        assert!(layout(0).region_bytes(PAGE).is_err());
        assert!(layout(super::super::MAX_GROUPS + 1)
            .region_bytes(PAGE)
            .is_err());
        assert!(layout(1).region_bytes(0).is_err());
        assert!(layout(1).region_bytes(MAX_REGION_BYTES).is_err());
        assert!(layout(1).region_bytes(usize::MAX).is_err());
    }
}
