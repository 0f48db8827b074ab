// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a subgroup is, checked before anything is allocated, and compared
//! among members before anything is sent.

use super::error::{ConfigError, Error};
use super::Options;
use crate::fabric::{NodeSet, MAX_HELLO_BYTES};
use crate::smc::Shape;
use std::time::Duration;

/// Most subgroups of a group.
pub const MAX_SUBGROUPS: usize = 256;
/// Longest name of a subgroup.
pub const MAX_NAME_BYTES: usize = 64;

/// In which order a subgroup delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The same order everywhere, after everybody has received the message:
    /// atomic multicast.
    Total,
    /// Each sender's order, as soon as it arrives: the paper's unordered QoS
    /// (§IV.F).
    PerSender,
}

/// A subgroup: who is in it, who sends, and what.
///
/// By default every node is a member and a sender, the window is 100 messages
/// (the paper's best, §IV.A) of up to 1024 bytes, in total order with all
/// optimisations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subgroup {
    name: String,
    members: Option<Vec<usize>>,
    senders: Option<Vec<usize>>,
    window: usize,
    max_message_bytes: usize,
    order: Order,
    options: Options,
}

impl Subgroup {
    /// A subgroup of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            members: None,
            senders: None,
            window: 100,
            max_message_bytes: 1024,
            order: Order::Total,
            options: Options::FULL,
        }
    }

    /// The nodes that deliver. The order does not matter.
    #[must_use]
    pub fn members(mut self, members: impl IntoIterator<Item = usize>) -> Self {
        self.members = Some(members.into_iter().collect());
        self
    }

    /// The members that send. In total order, messages of one round are
    /// delivered in the order of this list. All members, if not given.
    #[must_use]
    pub fn senders(mut self, senders: impl IntoIterator<Item = usize>) -> Self {
        self.senders = Some(senders.into_iter().collect());
        self
    }

    /// Messages that a sender may have under way.
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages;
        self
    }

    /// Longest message.
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message_bytes = bytes;
        self
    }

    /// Delivers in each sender's order only, without waiting for stability.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.order = Order::PerSender;
        self
    }

    /// Chooses the optimisations, for measurements.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn check(self, nodes: usize) -> Result<Spec, ConfigError> {
        let name = self.name;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(ConfigError::BadName(name));
        }
        let mut members = self.members.unwrap_or_else(|| (0..nodes).collect());
        let senders = self.senders.unwrap_or_else(|| members.clone());
        members.sort_unstable();
        if members.is_empty() {
            return Err(ConfigError::NoMembers(name));
        }
        if senders.is_empty() {
            return Err(ConfigError::NoSenders(name));
        }
        for list in [&members, &senders] {
            if let Some(&member) = list.iter().find(|&&member| member >= nodes) {
                return Err(ConfigError::UnknownMember {
                    subgroup: name,
                    member,
                    nodes,
                });
            }
            if let Some(&twice) = list
                .iter()
                .find(|&&member| list.iter().filter(|&&other| other == member).count() > 1)
            {
                return Err(ConfigError::Twice {
                    subgroup: name,
                    member: twice,
                });
            }
        }
        if let Some(&sender) = senders.iter().find(|sender| !members.contains(sender)) {
            return Err(ConfigError::SenderNotMember {
                subgroup: name,
                sender,
            });
        }
        let shape = Shape::new(self.window, self.max_message_bytes);
        let shape = shape.map_err(|shape| ConfigError::BadShape {
            subgroup: name.clone(),
            shape,
        })?;
        Ok(Spec {
            name,
            members,
            senders,
            shape,
            order: self.order,
            options: self.options,
            by_view: false,
            state_bytes: None,
        })
    }
}

/// A subgroup that was checked.
///
/// # Invariants
///
/// Members and senders are distinct nodes, neither list is empty, all senders
/// are members, members are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) members: Vec<usize>,
    pub(super) senders: Vec<usize>,
    pub(super) shape: Shape,
    pub(super) order: Order,
    pub(super) options: Options,
    /// Members and senders follow from the view: these are those that there can be.
    pub(super) by_view: bool,
    /// Most bytes of its state, if those who enter it are given it.
    pub(super) state_bytes: Option<usize>,
}

impl Spec {
    /// A line that is equal for equal subgroups.
    fn line(&self) -> String {
        format!("{self:?}")
    }
}

/// Checks all subgroups of a group.
pub(super) fn check(subgroups: Vec<Subgroup>, nodes: usize) -> Result<Vec<Spec>, ConfigError> {
    if subgroups.is_empty() {
        return Err(ConfigError::NoSubgroups);
    }
    if subgroups.len() > MAX_SUBGROUPS {
        return Err(ConfigError::TooManySubgroups(subgroups.len()));
    }
    let mut specs: Vec<Spec> = Vec::with_capacity(subgroups.len());
    for subgroup in subgroups {
        let spec = subgroup.check(nodes)?;
        if specs.iter().any(|other| other.name == spec.name) {
            return Err(ConfigError::NameTaken(spec.name));
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// Checks that a group with these subgroups can have views. `delivers` says which of them
/// deliver to a closure.
pub(super) fn check_views(
    specs: &[Spec],
    nodes: usize,
    delivers: impl Fn(usize) -> bool,
) -> Result<(), ConfigError> {
    for (index, spec) in specs.iter().enumerate() {
        let name = || spec.name.clone();
        if spec.members.len() != nodes {
            return Err(ConfigError::PartialWithViews(name()));
        }
        if spec.order != Order::Total {
            return Err(ConfigError::UnorderedWithViews(name()));
        }
        if !delivers(index) {
            return Err(ConfigError::NoClosureWithViews(name()));
        }
    }
    Ok(())
}

/// Whether members may come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No.
    Fixed,
    /// They may.
    Views {
        /// Most bytes of the application's state, if newcomers are given it.
        state_bytes: Option<usize>,
        /// How long a member may hang, if one that does is suspected.
        term: Option<Duration>,
    },
}

impl Kind {
    pub(super) fn has_views(self) -> bool {
        self != Self::Fixed
    }

    /// A line that is equal for equal groups; none for a fixed one.
    fn line(self) -> Option<String> {
        match self {
            Self::Fixed => None,
            Self::Views { state_bytes, term } => {
                let state = state_bytes.map(|bytes| format!(", state of up to {bytes} bytes"));
                let term = term.map(|term| format!(", suspicion after {} us", term.as_micros()));
                let (state, term) = (state.unwrap_or_default(), term.unwrap_or_default());
                Some(format!("with views{state}{term}"))
            }
        }
    }
}

/// What members tell one another of their settings: a line a subgroup, and one if there
/// are views.
pub(super) fn hello(specs: &[Spec], kind: Kind) -> Result<Vec<u8>, ConfigError> {
    let views = kind.line();
    let lines: Vec<String> = specs.iter().map(Spec::line).chain(views).collect();
    let hello = lines.join("\n").into_bytes();
    if hello.len() > MAX_HELLO_BYTES {
        return Err(ConfigError::TooLong(hello.len()));
    }
    Ok(hello)
}

/// Whether all who were met have said the same; else the first line that differs.
pub(super) fn agree(hellos: &[Vec<u8>], met: NodeSet, own: usize) -> Result<(), Error> {
    let Some(ours) = hellos.get(own) else {
        return Ok(());
    };
    let Some(member) = met.iter().find(|&node| hellos.get(node) != Some(ours)) else {
        return Ok(());
    };
    let (ours, theirs) = (
        String::from_utf8_lossy(ours).into_owned(),
        String::from_utf8_lossy(&hellos[member]).into_owned(),
    );
    let lines = ours.lines().count().max(theirs.lines().count());
    let line = |text: &str, at| {
        text.lines()
            .nth(at)
            .unwrap_or("no such subgroup")
            .to_owned()
    };
    let differing = (0..lines).find(|&at| line(&ours, at) != line(&theirs, at));
    let at = differing.unwrap_or(0);
    Err(Error::Mismatch {
        member,
        ours: line(&ours, at),
        theirs: line(&theirs, at),
    })
}
