// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong with a group, said so that the reader knows what to do.

use super::config::{MAX_NAME_BYTES, MAX_SUBGROUPS};
use crate::fabric::{FabricError, NodeSet, MAX_HELLO_BYTES};
use crate::predicates::TooManyPredicates;
use crate::smc::BadShape;
use std::time::Duration;

/// Settings that no group can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is nothing to send in.
    #[error("the group has no subgroup: add one with Builder::subgroup")]
    NoSubgroups,
    /// There are too many.
    #[error("{0} subgroups: a group has at most {MAX_SUBGROUPS}")]
    TooManySubgroups(usize),
    /// All settings together are too long to be told to others.
    #[error("the settings take {0} bytes, at most {MAX_HELLO_BYTES} can be compared: use fewer subgroups or shorter names")]
    TooLong(usize),
    /// The name cannot be one.
    #[error("the subgroup name {0:?}: it takes 1 to {MAX_NAME_BYTES} bytes")]
    BadName(String),
    /// Two have one name.
    #[error("two subgroups are named {0:?}: rename one")]
    NameTaken(String),
    /// Nobody is in it.
    #[error("subgroup {0:?} has no members: name at least one node")]
    NoMembers(String),
    /// Nobody sends.
    #[error("subgroup {0:?} has no senders: name at least one member")]
    NoSenders(String),
    /// A member is no node.
    #[error("subgroup {subgroup:?} names node {member}, but there are {nodes} nodes: ranks are below that")]
    UnknownMember {
        /// The subgroup.
        subgroup: String,
        /// The node that was named.
        member: usize,
        /// Nodes of the fabric.
        nodes: usize,
    },
    /// A node is named twice.
    #[error("subgroup {subgroup:?} names node {member} twice")]
    Twice {
        /// The subgroup.
        subgroup: String,
        /// The node that was named.
        member: usize,
    },
    /// A sender is no member.
    #[error("node {sender} sends in subgroup {subgroup:?} without being a member: add it to the members, or drop it from the senders")]
    SenderNotMember {
        /// The subgroup.
        subgroup: String,
        /// The sender.
        sender: usize,
    },
    /// The ring cannot be.
    #[error("subgroup {subgroup:?}: {shape}")]
    BadShape {
        /// The subgroup.
        subgroup: String,
        /// What was asked for.
        shape: BadShape,
    },
    /// All rings and states together are too long.
    #[error("the subgroups and states take {0} bytes at a node, which is more than a region can have: use shorter windows, messages or states")]
    TooLarge(usize),
    /// In a group with views all are members.
    #[error("subgroup {0:?} names its members: in a group with views all are, or it is a function of the view: use Builder::members_by_view instead of Subgroup::members")]
    PartialWithViews(String),
    /// In a group with views all deliver the same.
    #[error("subgroup {0:?} is unordered: a group with views has total order only")]
    UnorderedWithViews(String),
    /// A change of views delivers what counts of a view before the next one begins.
    #[error("subgroup {0:?} has no closure to deliver to, which a group with views needs: add Builder::deliver")]
    NoClosureWithViews(String),
    /// Nodes may come later, which a fixed group cannot deal with.
    #[error(
        "the fabric has seats for nodes that come later: make the group with Builder::with_views"
    )]
    SeatsWithoutViews,
    /// The time after which a member that hangs is suspected is none that makes sense.
    #[error("suspicion after {0:?}: take 10 ms to a day, and many times what a member may wait for a processor")]
    BadTerm(Duration),
    /// The builder was given a handle that is of another group.
    #[error("a handle of another group: use the one that this builder has given for the subgroup")]
    ForeignHandle,
}

/// A group could not be made or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The members' settings differ.
    #[error(
        "node {member} has other settings: here {ours}, there {theirs}; start all with the same"
    )]
    Mismatch {
        /// Who differs.
        member: usize,
        /// The subgroup here.
        ours: String,
        /// The subgroup there.
        theirs: String,
    },
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The polling thread takes no more.
    #[error(transparent)]
    Predicates(#[from] TooManyPredicates),
    /// No thread could be started.
    #[error("the polling thread could not be started: {0}")]
    Thread(String),
    /// The handle is of another group.
    #[error(
        "a handle of another group: use the one that this group's Builder::subgroup has given"
    )]
    ForeignHandle,
    /// This node is no member of the subgroup.
    #[error(
        "this node is no member of subgroup {0:?}: add its rank to Subgroup::members, everywhere"
    )]
    NotMember(String),
    /// The node does not send there.
    #[error(
        "this node is no sender of subgroup {0:?}: add its rank to Subgroup::senders, everywhere"
    )]
    NotSender(String),
    /// The subgroup delivers elsewhere.
    #[error("subgroup {0:?} has no deliveries to iterate over: this node is no member, or they go to a closure, or were taken before")]
    NoDeliveries(String),
    /// What was sent has not been delivered everywhere in time.
    #[error("not everybody has delivered what was sent, within the time (failed: {failed:?}): wait longer, or see whether all members take their deliveries")]
    Unflushed {
        /// Members that have failed, which may be why.
        failed: NodeSet,
    },
    /// A newcomer was not taken in.
    #[error("the group has not taken this node in ({ending:?}): see that a majority of its members runs and that one of them can give its state, then join again")]
    NotAdmitted {
        /// How it ended, if the others have gone on without it.
        ending: Option<super::Ending>,
    },
    /// The group is fixed: nobody can be put out of it.
    #[error("the group is fixed and nobody can be put out of it: make it with Builder::on_view")]
    NoViews,
    /// It is no other member of the view.
    #[error("{member} is no other member of view {view}: suspect one that Group::view names")]
    NotInView {
        /// The node that was named.
        member: usize,
        /// The view.
        view: u64,
    },
    /// [`super::Group::flush`] would wait for the delivery that it is called from.
    #[error("flush was called from within a delivery, which it would wait for: call it behind the delivery, or on another thread")]
    InDelivery,
}

/// A message could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The window is full. [`super::Sender::try_send`] answers so; the other calls wait,
    /// except on the group's polling thread and within a batch of the same subgroup, where
    /// they would wait for themselves, and in a group that is stepped, where nothing would
    /// go on meanwhile.
    #[error("the window is full: others have not delivered yet; send waits, but not within a delivery or in a group that is stepped")]
    Full,
    /// The message is longer than a slot.
    #[error("a message of {len} bytes, but slots take {room}: set Subgroup::max_message higher")]
    TooLong {
        /// Bytes of the message.
        len: usize,
        /// Bytes of a slot.
        room: usize,
    },
    /// A member has died, so that nothing more becomes stable.
    #[error("members {failed:?} have failed: the subgroup delivers no more, form a new group without them")]
    Wedged {
        /// Who has died.
        failed: NodeSet,
    },
    /// The others have gone on without this node, or too few are left to go on
    /// ([`super::Ending`]).
    #[error("this node is no member of the group any more ({ending:?}): the others have gone on without it, or too few are left")]
    Stopped {
        /// Why.
        ending: super::Ending,
    },
    /// This node is no sender of the subgroup in the view
    /// ([`super::Builder::members_by_view`]). What it had sent and was not delivered is sent
    /// again when it is a sender again.
    #[error("this node is no sender of the subgroup in this view: wait for a view in which it is")]
    NotSender,
    /// The group was left.
    #[error("the group was left")]
    Closed,
}
