// SPDX-License-Identifier: MIT OR Apache-2.0

//! One other member, as a group sees it: the cell that it writes, and the cell
//! that is posted to it.

use super::super::layout::Layout;
use super::super::words::{self, Bye, Tag, Word};
use super::peers::Peers;
use super::Node;
use crate::fabric::{Endpoint, FabricError, Region, Write};
use crate::multicast::View;
use std::sync::atomic::Ordering;

const WORD: usize = size_of::<u64>();

/// How this node stands to the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is not there yet, so far as this node knows: its cells may be another one's.
    Expected,
    Connected,
    /// It is in no view any more, but may run.
    Out,
    /// It is cut off, and another one has its seat and its cells.
    Gone,
}

/// A way to one other member.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: usize,
    incarnation: u64,
    standing: Standing,
    region: Region,
    tag: Tag,
    heard: usize,
    told: usize,
    /// Where the member says that it has taken this node in.
    welcome: usize,
    /// Where the member's own copy of `told` is.
    remote: usize,
    /// Where first blocks arrive there.
    landing: usize,
    /// It has created the group.
    pub(super) is_here: bool,
    /// Blocks given to it, and seen from it.
    pub(super) given: u64,
    pub(super) seen: u64,
    /// Something was posted since it was last rung.
    silent: bool,
}

impl Link {
    pub(super) fn new(
        endpoint: &dyn Endpoint,
        layout: Layout,
        place: usize,
        tag: Tag,
        (node, incarnation): (usize, u64),
    ) -> Self {
        Self {
            node,
            incarnation,
            standing: Standing::Expected,
            region: endpoint.region().clone(),
            tag,
            heard: layout.heard(place, node),
            told: layout.told(place, node),
            welcome: layout.welcome_of(node),
            remote: layout.heard(place, endpoint.rank()),
            landing: 0,
            is_here: false,
            given: 0,
            seen: 0,
            silent: false,
        }
    }

    /// Whether the member is there that is meant, now that it has not been before.
    pub(super) fn comes(&mut self, node: &Node, peers: &Peers) -> bool {
        let comes = self.is_expected() && peers.is_here(node, self.node, self.incarnation);
        if comes {
            self.standing = Standing::Connected;
        }
        comes
    }

    pub(super) fn is_expected(&self) -> bool {
        self.standing == Standing::Expected
    }

    /// Whether the member could read or write memory of this group: one that was not there was told
    /// of none.
    pub(super) fn may_touch(&self) -> bool {
        matches!(self.standing, Standing::Connected | Standing::Out)
    }

    /// Whether it is in the group, and anything can be waited for.
    pub(super) fn is_connected(&self) -> bool {
        self.standing == Standing::Connected
    }

    /// Whether the member is none of a view. From now on nothing is expected of it.
    pub(super) fn is_left_out(&mut self, view: &View) -> bool {
        let is_out = view.incarnation(self.node) != Some(self.incarnation);
        if is_out && self.is_connected() {
            self.standing = Standing::Out;
        }
        is_out
    }

    /// The seat's node is cut off, and another one takes the seat. Says whether it was this
    /// member.
    pub(super) fn loses(&mut self, seat: usize) -> bool {
        let is_it = self.node == seat && !self.is_expected();
        if is_it {
            self.standing = Standing::Gone;
        }
        is_it
    }

    /// Names the places of the words that say that the member has done something.
    pub(super) fn listens_to(&self, mut place: impl FnMut(usize)) {
        if self.is_expected() {
            return place(self.welcome);
        }
        // What first blocks are of comes before they are counted, settings before
        // the greeting.
        const TELLING: [Word; 6] = [
            Word::Sent,
            Word::Place,
            Word::Done,
            Word::Taken,
            Word::Bye,
            Word::Hello,
        ];
        TELLING.map(|word| place(self.heard + word.offset()));
    }

    /// A word that the member wrote: 0 if the cells are not its.
    fn hear(&self, word: Word) -> u64 {
        if !self.may_touch() {
            return 0;
        }
        let place = self.region.word(self.heard + word.offset());
        place.map_or(0, |place| place.load(Ordering::Acquire))
    }

    /// Puts a word where it is posted from.
    fn put(&self, word: Word, value: u64) {
        if let Ok(place) = self.region.word(self.told + word.offset()) {
            place.store(value, Ordering::Release);
        }
    }

    /// The write of some words, from the first to the last of them.
    fn write(&self, first: Word, last: Word) -> Write {
        Write {
            local: self.told + first.offset(),
            remote: self.remote + first.offset(),
            len: last.offset() + WORD - first.offset(),
        }
    }

    /// Who is down is noticed by the engine, not here.
    fn post(&mut self, endpoint: &dyn Endpoint, writes: &[Write]) {
        if !self.may_touch() {
            return;
        }
        let _: Result<(), FabricError> = endpoint.post(self.node, writes);
        self.silent = true;
    }

    fn tell(&mut self, endpoint: &dyn Endpoint, word: Word, value: u64) {
        self.put(word, value);
        self.post(endpoint, &[self.write(word, word)]);
    }

    /// Rings the member, if anything was posted.
    pub(super) fn ring(&mut self, endpoint: &dyn Endpoint) {
        if std::mem::take(&mut self.silent) {
            endpoint.ring(self.node);
        }
    }

    /// Says that this node has created the group.
    pub(super) fn greet(&mut self, endpoint: &dyn Endpoint, hello: Hello) {
        self.put(Word::Settings, hello.settings);
        self.put(Word::Landing, hello.landing as u64);
        self.put(Word::Before, hello.before);
        let settings = self.write(Word::Settings, Word::Before);
        self.put(Word::Hello, u64::from(hello.number) + 1);
        let hello = self.write(Word::Hello, Word::Hello);
        self.post(endpoint, &[settings, hello]);
    }

    /// Looks whether the member has created the group; then, whether with these
    /// settings.
    pub(super) fn is_greeted(&mut self, hello: Hello) -> Option<bool> {
        if self.hear(Word::Hello) != u64::from(hello.number) + 1 {
            return None;
        }
        self.is_here = true;
        self.landing = usize::try_from(self.hear(Word::Landing)).unwrap_or(usize::MAX);
        Some(self.hear(Word::Settings) == hello.settings)
    }

    /// Messages that the member has sent in earlier groups, if it is the root.
    pub(super) fn before(&self) -> u64 {
        self.hear(Word::Before)
    }

    /// Blocks that the member has given to this node.
    pub(super) fn sent(&self) -> u64 {
        self.tag.read_count(self.hear(Word::Sent))
    }

    /// The size of a message whose first block is the last that was sent, and
    /// where that is in the member's region.
    pub(super) fn first(&self, message: u64) -> Option<(usize, usize)> {
        let size = words::read_first(self.hear(Word::First), message)?;
        let at = usize::try_from(self.hear(Word::FirstAt)).ok()?;
        Some((size, at))
    }

    /// Where the member is ready for the blocks of a message.
    pub(super) fn place(&self, message: u64) -> Option<usize> {
        self.tag.read_place(self.hear(Word::Place), message)
    }

    /// Messages that the member has all blocks of.
    pub(super) fn done(&self) -> u64 {
        self.tag.read_count(self.hear(Word::Done))
    }

    /// Blocks given to the member that it has not said to have seen.
    pub(super) fn under_way(&self) -> u64 {
        let taken = self.tag.read_count(self.hear(Word::Taken));
        self.given.saturating_sub(taken)
    }

    /// Its farewell, heard by a member that has done with so many messages.
    pub(super) fn bye(&self, completed: u64) -> Option<Bye> {
        self.tag.read_bye(self.hear(Word::Bye), completed)
    }

    /// Whether the member has ended the group. Its farewell may be a later group's
    /// by now, but it greets in that only after this one.
    pub(super) fn has_ended(&self, hello: Hello) -> bool {
        self.bye(0).is_some() || self.has_moved_on(hello)
    }

    /// Whether the member is in a later group in the same cells.
    pub(super) fn has_moved_on(&self, hello: Hello) -> bool {
        self.hear(Word::Hello) > u64::from(hello.number) + 1
    }

    /// Whether nothing that was given to the member is on its way, so that its source may be
    /// changed. It may have to be waited for, as long as a fence takes.
    pub(super) fn is_drained(&self, node: &Node) -> bool {
        node.is_shared() || self.under_way() == 0 || node.endpoint.fence(self.node).is_ok()
    }

    /// Gives the member a block at its place.
    pub(super) fn give(&mut self, endpoint: &dyn Endpoint, block: Write) {
        self.given += 1;
        self.put(Word::Sent, self.tag.count(self.given));
        let sent = self.write(Word::Sent, Word::Sent);
        self.post(endpoint, &[block, sent]);
    }

    /// Gives the member the first block of a message, which says how long that
    /// is. Where it can look, the block stays where it is.
    pub(super) fn give_first(
        &mut self,
        endpoint: &dyn Endpoint,
        message: u64,
        size: usize,
        block: Write,
    ) {
        self.put(Word::First, words::first(message, size));
        self.put(Word::FirstAt, block.local as u64);
        self.given += 1;
        self.put(Word::Sent, self.tag.count(self.given));
        let first = self.write(Word::First, Word::FirstAt);
        let sent = self.write(Word::Sent, Word::Sent);
        if endpoint.region_of(self.node).is_some() {
            self.post(endpoint, &[first, sent]);
        } else {
            let block = Write {
                remote: self.landing,
                ..block
            };
            self.post(endpoint, &[block, first, sent]);
        }
    }

    pub(super) fn tell_place(&mut self, endpoint: &dyn Endpoint, message: u64, offset: usize) {
        self.tell(endpoint, Word::Place, self.tag.place(message, offset));
    }

    pub(super) fn tell_done(&mut self, endpoint: &dyn Endpoint, messages: u64) {
        self.tell(endpoint, Word::Done, self.tag.count(messages));
    }

    pub(super) fn tell_taken(&mut self, endpoint: &dyn Endpoint) {
        self.tell(endpoint, Word::Taken, self.tag.count(self.seen));
    }

    pub(super) fn tell_bye(&mut self, endpoint: &dyn Endpoint, bye: Bye) {
        self.tell(endpoint, Word::Bye, self.tag.bye(bye));
    }
}

/// What members say of a group when they create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) number: u32,
    pub(super) settings: u64,
    pub(super) landing: usize,
    /// Messages that the root has sent in earlier groups.
    pub(super) before: u64,
}
