// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracles of subgroups, whose members may be others in each view.

use super::judge::{expect, Oracle, Outcome, Verdict};
use super::shape::Shape;
use super::views::History;
use super::Message;
use crate::fabric::NodeSet;
use crate::multicast::{Membership, SubgroupView, View};
use std::collections::BTreeMap;

/// A member's deliveries in a subgroup in a view.
struct Share {
    member: usize,
    delivered: Vec<Message>,
    /// It has waited for the subgroup's state all the time.
    lacked: bool,
    /// It has installed the next view too.
    goes_on: bool,
}

/// The membership by the function, which does not see those who are about to leave.
fn named(shape: Shape, view: &View) -> Membership {
    match shape.has_function() {
        true => shape.of(&view.of_those_who_stay()),
        false => shape.of(view),
    }
}

/// The members and senders that follow from the view: if nobody of them has the state, those
/// who have it too.
fn expected(shape: Shape, subgroup: SubgroupView, view: &View) -> Membership {
    let mut expected = named(shape, view);
    if shape.state
        && !expected
            .members
            .iter()
            .any(|seat| subgroup.before.contains(seat))
    {
        expected.members = expected.members.union(subgroup.before);
    }
    expected
}

/// All that was delivered in a subgroup, as far as that is known.
#[derive(Default)]
pub(super) struct Sequence {
    pub(super) messages: Vec<Message>,
    /// Places in it where more was delivered by members that had all and crashed before they
    /// could say so. Others that go on wait for a state, and count that as delivered too.
    pub(super) gaps: Vec<usize>,
}

/// Judges a subgroup, and answers with all that was delivered in it.
pub(super) fn one(
    index: usize,
    shape: Shape,
    histories: &[History],
    views: &BTreeMap<u64, View>,
    outcome: &Outcome,
) -> Result<Sequence, (Oracle, String)> {
    let mut all = Sequence::default();
    for (&number, view) in views {
        let subgroup = view.subgroups.at(index);
        let membership = expected(shape, subgroup, view);
        let is_it =
            (subgroup.members, subgroup.senders) == (membership.members, membership.senders);
        expect(is_it, Oracle::Membership, || {
            format!("{subgroup:?} instead of {membership:?} in {view:?}")
        })?;
        let shares = histories.iter().enumerate();
        let shares: Vec<Share> = shares
            .filter_map(|(member, history)| {
                let mut share = share(member, history, number, (index, outcome.seats[member]))?;
                share.lacked &= shape.state;
                Some(share)
            })
            .collect();
        let longest = in_view(&shares, subgroup, view, outcome)?;
        let counted = all.messages.len();
        all.messages.extend(longest.iter().copied());
        fifo(index, &all, outcome)?;
        if let Some(next) = views.get(&(number + 1)) {
            follows((index, shape), (view, next), &shares, &longest, outcome)?;
            late(index, (view, next), histories, outcome)?;
            if next.subgroups.at(index).sequence == subgroup.sequence {
                // Nobody goes on who has delivered something: it is sent again.
                all.messages.truncate(counted);
            } else if !of_members(&shares, subgroup, outcome)
                .iter()
                .any(|share| share.goes_on)
            {
                all.gaps.push(all.messages.len());
            }
        }
    }
    Ok(all)
}

fn share(
    member: usize,
    history: &History,
    number: u64,
    (index, seat): (usize, usize),
) -> Option<Share> {
    let at = history.iter().position(|stay| stay.view.number == number)?;
    Some(Share {
        member,
        delivered: history[at].of(index),
        lacked: history[at].has_lacked(index, seat),
        goes_on: history.len() > at + 1,
    })
}

/// Deliveries in a view: by members only, from the view's beginning on, in one
/// order, and by those who go on together all that anybody has delivered.
fn in_view(
    shares: &[Share],
    subgroup: SubgroupView,
    view: &View,
    outcome: &Outcome,
) -> Result<Vec<Message>, (Oracle, String)> {
    let number = view.number;
    let longest = shares.iter().map(|share| &share.delivered);
    let longest = longest.max_by_key(|delivered| delivered.len());
    let longest = longest.cloned().unwrap_or_default();
    for Share {
        member, delivered, ..
    } in shares
    {
        let is_member = subgroup.members.contains(outcome.seats[*member]);
        expect(
            is_member || delivered.is_empty(),
            Oracle::Membership,
            || format!("{member} delivers in view {number}, in which it is no member"),
        )?;
        expect(longest.starts_with(delivered), Oracle::Order, || {
            format!("{member} has delivered {delivered:?} in view {number}, somebody {longest:?}")
        })?;
    }
    let sends = |message: &Message| subgroup.senders.contains(outcome.seats[message.sender]);
    expect(longest.iter().all(sends), Oracle::Membership, || {
        format!("not all are senders of {longest:?} in view {number}")
    })?;
    let first = longest.first().map(|message| message.sequence);
    let grows = longest
        .windows(2)
        .all(|pair| pair[0].sequence < pair[1].sequence);
    let begins = first.is_none_or(|first| first >= subgroup.sequence);
    expect(grows && begins, Oracle::Order, || {
        format!("view {number} begins at {}: {longest:?}", subgroup.sequence)
    })?;
    together(
        number,
        &of_members(shares, subgroup, outcome),
        longest.len(),
    )?;
    Ok(longest)
}

fn of_members<'a>(
    shares: &'a [Share],
    subgroup: SubgroupView,
    outcome: &Outcome,
) -> Vec<&'a Share> {
    let is_member =
        |share: &&Share| subgroup.members.contains(outcome.seats[share.member]) && !share.lacked;
    shares.iter().filter(is_member).collect()
}

/// Members that go on have delivered the same, and no less than anybody.
fn together(number: u64, shares: &[&Share], longest: usize) -> Verdict {
    let go_on: Vec<_> = shares.iter().filter(|share| share.goes_on).collect();
    let counts = || go_on.iter().map(|share| share.delivered.len());
    let (least, most) = (counts().min(), counts().max());
    expect(least == most, Oracle::Synchrony, || {
        format!("at the end of view {number} one has delivered {least:?}, another one {most:?}")
    })?;
    expect(
        least.is_none_or(|least| least == longest),
        Oracle::Uniformity,
        || format!("in view {number} somebody has delivered {longest}, who go on {least:?}"),
    )
}

/// Where the next view of a subgroup begins, and who has delivered all that was before.
fn follows(
    (index, shape): (usize, Shape),
    (view, next): (&View, &View),
    shares: &[Share],
    longest: &[Message],
    outcome: &Outcome,
) -> Verdict {
    let (number, begins) = (view.number, next.subgroups.at(index));
    let ended = view.subgroups.at(index);
    let lacked = shares.iter().filter(|share| share.lacked);
    let lacked: NodeSet = lacked.map(|share| outcome.seats[share.member]).collect();
    // Those of whom the leader knew what they have received.
    let joined = next.joined.iter().map(|new| new.seat).collect();
    let stay = ended.members.and(next.members.minus(joined));
    let stay = stay.minus(lacked);
    let survivors = stay.union(ended.members.and(next.left).minus(lacked));
    let goes_on = shares.iter().any(|share| {
        share.goes_on && !share.lacked && ended.members.contains(outcome.seats[share.member])
    });
    let last = longest.last().filter(|_| goes_on);
    let gone = ended.members.and(next.left);
    let holds = match survivors.is_empty() || begins.before.union(gone).is_empty() {
        true => begins.sequence == ended.sequence,
        false => begins.sequence >= last.map_or(ended.sequence, |last| last.sequence + 1),
    };
    expect(holds, Oracle::Order, || {
        format!("{ended:?} in view {number} with {last:?} is followed by {begins:?}")
    })?;
    let waits = shares.iter().any(|share| share.lacked && share.goes_on)
        || shape.state && !named(shape, next).members.is_empty();
    let heard = shares.iter().map(|share| outcome.seats[share.member]);
    let had = ended.before.union(heard.collect()).minus(lacked);
    let left = ended.members.and(next.left).and(had);
    expect(
        !waits || !stay.is_empty() || left.is_empty(),
        Oracle::State,
        || format!("{left:?} leave with what others wait for, in {next:?} behind {ended:?}"),
    )?;
    // A member that has not been given the group's state has not heard of the view.
    let has_heard = |&seat: &usize| {
        let mut theirs = shares.iter().filter(|share| share.goes_on);
        theirs.any(|share| outcome.seats[share.member] == seat)
    };
    let without = stay.minus(begins.before);
    let forgotten: NodeSet = without.iter().filter(has_heard).collect();
    let invented = begins.before.minus(stay);
    expect(
        forgotten.is_empty() && invented.is_empty(),
        Oracle::Membership,
        || format!("{begins:?} behind {ended:?} in view {number}: {forgotten:?}, {invented:?}"),
    )
}

/// A member that heard of its first view behind this one has delivered nothing in it.
fn late(
    index: usize,
    (view, next): (&View, &View),
    histories: &[History],
    outcome: &Outcome,
) -> Verdict {
    let before = next.subgroups.at(index).before;
    for (member, history) in histories.iter().enumerate() {
        let (seat, own) = (outcome.seats[member], outcome.incarnations[member]);
        let is_late = history
            .first()
            .is_some_and(|stay| stay.view.number > view.number)
            && view.incarnation(seat) == Some(own);
        expect(
            !is_late || !before.contains(seat),
            Oracle::Membership,
            || format!("{member} is said to have delivered what was before {next:?}"),
        )?;
    }
    Ok(())
}

/// Each sender's messages are delivered in its order, once, and none that it did not send.
fn fifo(index: usize, all: &Sequence, outcome: &Outcome) -> Verdict {
    let mut next = vec![0; outcome.sent.len()];
    let mut gaps = vec![0; outcome.sent.len()];
    for (at, message) in all.messages.iter().enumerate() {
        let Message { sender, number, .. } = *message;
        // Of its messages some may have been in a gap since its last one.
        let passed = all.gaps.iter().filter(|&&gap| gap <= at).count();
        if std::mem::replace(&mut gaps[sender], passed) < passed {
            next[sender] = number.max(next[sender]);
        }
        let is_next = next.get(sender) == Some(&number) && number < outcome.sent[sender][index];
        expect(is_next, Oracle::Fifo, || {
            format!("{message:?} is delivered, where {next:?} are next")
        })?;
        next[sender] += 1;
    }
    Ok(())
}

/// In the last view all members have delivered the same, all that its senders have sent;
/// who has sent more and is no sender is told so.
pub(super) fn complete(
    (index, shape): (usize, Shape),
    there: NodeSet,
    histories: &[History],
    all: &Sequence,
    outcome: &Outcome,
) -> Verdict {
    let last = |member: usize| histories[member].last();
    let Some(subgroup) = there
        .iter()
        .find_map(|member| Some(last(member)?.view.subgroups.at(index)))
    else {
        return Ok(());
    };
    let is_member = |&member: &usize| subgroup.members.contains(outcome.seats[member]);
    let members: NodeSet = there.iter().filter(is_member).collect();
    for member in members.iter().filter(|_| shape.state) {
        let seat = outcome.seats[member];
        let lacks = last(member).is_some_and(|stay| stay.has_lacked(index, seat));
        expect(!lacks, Oracle::Liveness, || {
            format!("{member} is not given the state of {index}")
        })?;
    }
    let delivered = members.iter().filter_map(last).map(|stay| stay.of(index));
    let delivered: Vec<_> = delivered.collect();
    let same = delivered.windows(2).all(|pair| pair[0] == pair[1]);
    expect(same, Oracle::Synchrony, || {
        format!("in the last view members have delivered {delivered:?}")
    })?;
    for member in there.iter() {
        let own = |message: &&Message| message.sender == member;
        let count = all.messages.iter().filter(own);
        let (count, sent) = (count.count() as u64, outcome.sent[member][index]);
        let is_sender = subgroup.senders.contains(outcome.seats[member]);
        let is_known = all.gaps.is_empty();
        expect(
            count == sent || !is_sender || !is_known,
            Oracle::Complete,
            || format!("{count} of {sent} messages of {member} are delivered in {subgroup:?}"),
        )?;
        let accepts = outcome.accepts[member][index];
        expect(accepts == is_sender, Oracle::Told, || {
            format!("{member} may send: {accepts}, in {subgroup:?}")
        })?;
    }
    Ok(())
}
