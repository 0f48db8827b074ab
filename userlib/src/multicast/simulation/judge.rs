// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracles: what has to be true of what all members have seen.

use super::{Message, Seen};
use crate::fabric::NodeSet;
use crate::multicast::Ending;

/// What has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Oracle {
    /// Members that are left alone come to rest.
    Rest,
    /// Each sender's messages are delivered in its order, once, and none that it did not
    /// send.
    Fifo,
    /// Of what two members have delivered one is the beginning of the other.
    Order,
    /// Without a failure, members that stay deliver all that was sent by them.
    Complete,
    /// Members that survive together have delivered the same.
    Synchrony,
    /// What anybody has delivered, also one that died, has been delivered by those who
    /// survive together.
    Uniformity,
    /// Members that stay learn of each failure.
    Told,
    /// Nothing is delivered to a member behind the news of a failure; with views, behind
    /// the news that it is out.
    Silence,
    /// The view of a number is the same for all who install it.
    Agreement,
    /// A view keeps a majority of the one before, those who left by themselves counted.
    Majority,
    /// If a majority stays up and its links work, views go on: in the last one are those
    /// who are there, and all of them deliver all that they have sent.
    Liveness,
    /// Subgroups have the members and senders that follow from the view, and nobody else
    /// delivers or sends there.
    Membership,
    /// Those who enter a subgroup are given its state as it was when the view began.
    State,
    /// A newcomer's state is what a member had delivered when the newcomer's first view began.
    /// Nobody acts for another incarnation in the same seat.
    Newcomer,
}

/// How a run ended.
pub(super) struct Outcome {
    /// How much each member has sent in each subgroup.
    pub(super) sent: Vec<Vec<u64>>,
    /// Whether each member was told in the end that all was delivered that it had sent, if it
    /// was there.
    pub(super) flushed: Vec<Option<bool>>,
    /// Whether each member could send more in each subgroup.
    pub(super) accepts: Vec<Vec<bool>>,
    /// Where each member sits, or sat.
    pub(super) seats: Vec<usize>,
    /// And as which incarnation.
    pub(super) incarnations: Vec<u64>,
    pub(super) crashed: NodeSet,
    /// Those who have left, some of whom have crashed then.
    pub(super) left: NodeSet,
    /// What happened may have cost the group no majority.
    pub(super) must_go_on: bool,
    /// And nobody takes a newcomer for failed that is not.
    pub(super) must_admit: bool,
    /// What each member that is still there says of it.
    pub(super) endings: Vec<Option<Ending>>,
    /// Somebody may take somebody for failed.
    pub(super) failures: bool,
}

pub(super) type Verdict = Result<(), (Oracle, String)>;

pub(super) fn expect(holds: bool, oracle: Oracle, what: impl FnOnce() -> String) -> Verdict {
    match holds {
        true => Ok(()),
        false => Err((oracle, what())),
    }
}

/// What a member has delivered.
pub(super) fn delivered(seen: &[Seen]) -> Vec<Message> {
    let delivered = |seen: &Seen| match *seen {
        Seen::Delivered(message) | Seen::Restored(message) => Some(message),
        _ => None,
    };
    seen.iter().filter_map(delivered).collect()
}

/// All of them, of a fixed group, which has one subgroup.
pub(super) fn all(seen: &[Vec<Seen>], outcome: &Outcome) -> Verdict {
    let sent: Vec<u64> = outcome.sent.iter().map(|sent| sent.iter().sum()).collect();
    let delivered = one_sequence(seen, &sent)?;
    let members: NodeSet = (0..seen.len()).collect();
    let staying = members.minus(outcome.crashed).minus(outcome.left);
    if !outcome.failures {
        return complete(&delivered, staying, &sent);
    }
    after_failure(seen, &delivered, staying, outcome)
}

/// What each member has delivered, which is one sequence for all, as far as each got.
fn one_sequence(seen: &[Vec<Seen>], sent: &[u64]) -> Result<Vec<Vec<Message>>, (Oracle, String)> {
    let delivered: Vec<_> = seen.iter().map(|seen| delivered(seen)).collect();
    for (member, delivered) in delivered.iter().enumerate() {
        fifo(member, delivered, sent)?;
        let grows = delivered
            .windows(2)
            .all(|pair| pair[0].sequence < pair[1].sequence);
        expect(grows, Oracle::Order, || {
            format!("{member} counts backwards")
        })?;
    }
    for (a, first) in delivered.iter().enumerate() {
        for (b, second) in delivered.iter().enumerate().skip(a + 1) {
            let both = first.iter().zip(second).all(|(a, b)| a == b);
            expect(both, Oracle::Order, || format!("of {a} and {b}"))?;
        }
    }
    Ok(delivered)
}

fn fifo(member: usize, delivered: &[Message], sent: &[u64]) -> Verdict {
    let mut next = vec![0; sent.len()];
    for &Message { sender, number, .. } in delivered {
        let is_next = next.get(sender) == Some(&number) && number < sent[sender];
        expect(is_next, Oracle::Fifo, || {
            format!("{member} delivers message {number} of {sender}, where {next:?} are next")
        })?;
        next[sender] += 1;
    }
    Ok(())
}

fn complete(delivered: &[Vec<Message>], staying: NodeSet, sent: &[u64]) -> Verdict {
    for member in staying.iter() {
        for sender in staying.iter() {
            let count = delivered[member]
                .iter()
                .filter(|message| message.sender == sender);
            let (count, sent) = (count.count() as u64, sent[sender]);
            expect(count == sent, Oracle::Complete, || {
                format!("{member} has delivered {count} of {sent} messages of {sender}")
            })?;
        }
    }
    same(delivered, staying)
}

fn same(delivered: &[Vec<Message>], members: NodeSet) -> Verdict {
    let Some(first) = members.iter().next() else {
        return Ok(());
    };
    for member in members.iter() {
        let (a, b) = (delivered[first].len(), delivered[member].len());
        expect(a == b, Oracle::Synchrony, || {
            format!("{first} has delivered {a}, {member} {b}")
        })?;
    }
    Ok(())
}

fn after_failure(
    seen: &[Vec<Seen>],
    delivered: &[Vec<Message>],
    staying: NodeSet,
    outcome: &Outcome,
) -> Verdict {
    for member in staying.iter() {
        let failed = seen[member]
            .iter()
            .position(|seen| matches!(seen, Seen::Failed(_)));
        let behind = failed.map_or(&[][..], |at| &seen[member][at..]);
        let silent = !behind.iter().any(|seen| matches!(seen, Seen::Delivered(_)));
        expect(silent, Oracle::Silence, || format!("{member} goes on"))?;
    }
    for (member, gone) in staying
        .iter()
        .flat_map(|member| outcome.crashed.iter().map(move |gone| (member, gone)))
    {
        let told = [Seen::Failed(gone), Seen::Left(gone)];
        let is_told = seen[member].iter().any(|seen| told.contains(seen));
        expect(is_told, Oracle::Told, || {
            format!("{member} does not know of {gone}")
        })?;
    }
    let agreed = |&member: &usize| outcome.endings[member] == Some(Ending::Agreed);
    let together: NodeSet = staying.iter().filter(agreed).collect();
    if together.is_empty() {
        return Ok(());
    }
    same(delivered, together)?;
    let most = together.iter().map(|member| delivered[member].len()).max();
    let longest = delivered.iter().map(Vec::len).max();
    expect(most >= longest, Oracle::Uniformity, || {
        format!("somebody has delivered {longest:?}, who survive {most:?}")
    })
}
