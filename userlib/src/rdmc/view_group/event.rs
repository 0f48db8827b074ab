// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events of a group that goes on from view to view.

use super::super::event::{End, Message};
use super::super::memory::Buffer;

/// Something that happened in the group of a view.
#[derive(Debug)]
#[non_exhaustive]
pub enum ViewEvent {
    /// A message is here, whole, and relayed as far as that is this node's part. Each comes once.
    Received(Message),
    /// A message was given to all whom this node, the root, gives it to, and they have it. Others
    /// may still be getting it from them: if one fails they may not, and it is to be sent again.
    Sent(Message),
    /// The group of a view has ended at all its members that are left, because one has failed, or
    /// has gone. At most once for each view. If only the connection between two RDMC nodes was
    /// lost, the next view comes when an application asks for it:
    /// [`Group::suspect`](crate::multicast::Group::suspect).
    Ended {
        /// The view.
        view: u64,
        /// Whose doing it is.
        end: End,
        /// Messages of the root that all have who are left. It sends the others again, in the group
        /// of the next view, from the next number on: those who have one do not receive it twice.
        /// Only the root's count is whole: a member whose group ended before it had heard of the
        /// root may be told 0.
        received: u64,
    },
    /// Memory of a message that was not done when its group ended, as
    /// [`Event::Returned`](super::super::Event::Returned).
    Returned(Buffer),
}
