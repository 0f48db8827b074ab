// SPDX-License-Identifier: MIT OR Apache-2.0

//! A root's messages go on from view to view: members are killed in the middle of them, others
//! come into the same seats, and all who are there receive each message once and whole. Members
//! are processes, each in a group with views and among RDMC nodes with the same seats; this test
//! binary runs itself for each.

mod member;
mod process;

use process::Process;

/// All seats are taken from the beginning on: who comes has the seat of one that has gone.
const SEATS: usize = 4;

/// Not a test of its own: what a member's process does.
#[test]
fn as_member() {
    if let Some(role) = member::Role::of_process() {
        member::take_part(role);
    }
}

/// The processes by seat.
struct Story {
    name: String,
    seats: Vec<Process>,
    /// Messages that the root was told to send.
    sent: u64,
}

impl Story {
    /// One of the founders dies before one of its posts, if it makes so many.
    fn begin(name: &str, victim: usize, post: u64) -> Self {
        let name = format!("{name}-{}-{victim}-{post}", std::process::id());
        let dies = |seat| (seat == victim).then_some(post);
        let seats = (0..SEATS).map(|seat| Process::founder(&name, seat, dies(seat)));
        Self {
            seats: seats.collect(),
            name,
            sent: 0,
        }
    }

    /// The root of the last view: the lowest seat.
    fn root(&self) -> u32 {
        self.seats[0].id()
    }

    /// Has the root send some more, and waits until all others have them.
    fn send(&mut self, messages: u64) {
        self.start_sending(messages);
        let root = self.root();
        for process in &self.seats[1..] {
            process.hears(&format!("GOT {root} {}", self.sent));
        }
    }

    fn start_sending(&mut self, messages: u64) {
        self.sent += messages;
        for process in &mut self.seats {
            process.tell(&format!("SEND {}", self.sent));
        }
    }

    /// A process has died, or dies now: another one comes into its seat.
    fn replace(&mut self, seat: usize) -> Process {
        let newcomer = Process::newcomer(&self.name);
        let mut dead = std::mem::replace(&mut self.seats[seat], newcomer);
        dead.kill();
        let newcomer = &mut self.seats[seat];
        newcomer.hears(&format!("IN {seat}"));
        newcomer.tell(&format!("SEND {}", self.sent));
        // Messages from now on go to it, too.
        let view = self.seats[seat].view();
        self.seats.iter().for_each(|process| process.hears(&view));
        dead
    }

    /// The others go on without one whose process is still there; then another one takes its
    /// seat.
    fn goes_on_without(mut self, seat: usize) {
        let without = self.seats.remove(seat);
        self.send(2);
        self.seats.iter().for_each(Process::check_ends);
        // Its memory of theirs is theirs again when it has gone.
        self.seats.insert(seat, without);
        self.replace(seat).check_messages();
        self.send(2);
        self.end();
    }

    /// All leave, and say that their memory has come back.
    fn end(self) -> Vec<Process> {
        let mut seats = self.seats;
        seats.iter().for_each(Process::check_ends);
        seats.iter_mut().for_each(Process::let_go);
        for process in &mut seats {
            process.hears("LEFT");
            process.check_messages();
        }
        seats
    }
}

/// A relay dies before one of its posts, in whatever it is doing then; who comes into its seat
/// is killed in the middle of a message, too.
fn a_relay_dies(post: u64) -> bool {
    const VICTIM: usize = 1;
    let mut story = Story::begin("relay", VICTIM, post);
    story.start_sending(4);
    let died = story.seats[VICTIM].dies_or_hears("GOT", 4);
    let first = story.replace(VICTIM);
    story.send(3);
    story.seats[VICTIM].order("DIE");
    story.start_sending(3);
    story.seats[VICTIM].dies();
    let second = story.replace(VICTIM);
    story.send(2);
    for process in [&first, &second].into_iter().chain(&story.end()) {
        process.check_messages();
    }
    died
}

#[test]
fn what_a_relay_that_is_killed_has_not_given_on_is_sent_again_in_the_next_view() {
    // Its arrival, its first messages, and the ends of them are fewer than a hundred writes.
    let deaths = (0..100).filter(|&post| a_relay_dies(post));
    assert!(deaths.count() > 20, "it has part in the transfers");
}

#[test]
fn a_member_that_is_killed_when_all_is_done_is_replaced_and_so_is_the_next() {
    let mut story = Story::begin("idle", 3, u64::MAX);
    for _ in 0..6 {
        story.send(2);
        story.replace(3).check_messages();
    }
    story.send(1);
    story.end();
}

/// The view says that it has failed, and nothing else does.
#[test]
fn one_that_hangs_is_not_waited_for_when_a_view_is_without_it() {
    const VICTIM: usize = 2;
    let mut story = Story::begin("hangs", SEATS, 0);
    story.send(1);
    story.seats[VICTIM].order("HANG");
    story.start_sending(3);
    story.seats[VICTIM].hears("HANGS");
    story.seats[VICTIM].tell("QUIT");
    story.goes_on_without(VICTIM);
}

/// The group with views knows nothing of it, until the root's application tells it.
#[test]
fn one_whose_rdmc_node_alone_has_gone_is_put_out_by_who_suspects_it() {
    const VICTIM: usize = 2;
    let mut story = Story::begin("cut", SEATS, 0);
    story.send(1);
    story.seats[0].order("SUSPECT");
    story.seats[VICTIM].tell("CUT");
    story.seats[VICTIM].hears("CUT");
    story.goes_on_without(VICTIM);
}

/// The next root sends its own messages, from the first on.
#[test]
fn where_the_root_is_killed_another_one_sends() {
    let mut story = Story::begin("root", 0, u64::MAX);
    story.send(2);
    story.start_sending(50);
    let dead = story.replace(0);
    // The newcomer in the lowest seat is the root of the view that it has joined with.
    story.send(2);
    story.end();
    dead.check_messages();
}
