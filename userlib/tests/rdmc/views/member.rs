// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's process. As the root it sends as many messages as it is told to, and
//! again those of which it is told that not all have them; it says what it receives.

use super::SEATS;
use crate::{pattern, PATIENCE};
use nix::sys::signal::{raise, Signal};
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use weft::fabric::conformance::Mortal;
use weft::fabric::shm::ShmSeats;
use weft::rdmc::schedule::Algorithm;
use weft::rdmc::{Choice, GroupConfig, Memory, Message, Node, SendReason, ViewEvent, ViewGroup};
use weft::{Group, Subgroup, View};

const ROLE: &str = "WEFT_TEST_RDMC_VIEWS_ROLE";
const BLOCK: usize = 4096;
const BLOCKS: usize = 8;
const BYTES: usize = BLOCKS * BLOCK + 77;
const HEADER: usize = 16;
const MEMORY: usize = 1 << 20;

pub struct Role {
    pub name: String,
    /// Its seat, if it founds the group.
    pub founder: Option<usize>,
    /// Before which of its posts it dies.
    pub post: Option<u64>,
}

impl Role {
    pub fn to_env(&self) -> (&'static str, String) {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        let founder = number(self.founder.map(|seat| seat as u64));
        (
            ROLE,
            format!("{} {founder} {}", self.name, number(self.post)),
        )
    }

    pub fn of_process() -> Option<Self> {
        let role = std::env::var(ROLE).ok()?;
        let mut words = role.split(' ');
        Some(Self {
            name: words.next()?.to_owned(),
            founder: words.next()?.parse().ok(),
            post: words.next()?.parse().ok(),
        })
    }
}

/// A member's state, for all its threads.
struct Shared {
    memory: Memory,
    /// Messages that it is to have sent, if it is the root.
    target: AtomicU64,
    /// It dies in the middle of the next message.
    dies: AtomicBool,
    /// It does nothing more from the middle of the next message on.
    hangs: AtomicBool,
    /// It has those put out by whom an RDMC group has ended.
    suspects: AtomicBool,
    group: OnceLock<ViewGroup>,
    /// The group with views, until it is left.
    members: Mutex<Option<Group>>,
}

impl Shared {
    fn group(&self) -> &ViewGroup {
        self.group.get().expect("it was made before")
    }

    /// Sends what is still to be sent. Other threads may do so, too.
    fn send(&self) {
        loop {
            let number = self.group().next();
            let Ok(mut buffer) = self.memory.allocate(BYTES) else {
                // When one was sent it goes on.
                return;
            };
            if number > self.target.load(Ordering::Acquire) {
                return;
            }
            buffer.copy_from_slice(&content(std::process::id().into(), number));
            match self
                .group()
                .send(number, buffer, BYTES)
                .map_err(|refused| refused.reason)
            {
                Ok(()) | Err(SendReason::NotNext(_)) => {}
                // It will be said what is to be sent again.
                Err(SendReason::NotRoot | SendReason::Ended(_)) => return,
                Err(reason) => panic!("{reason}"),
            }
        }
    }

    /// A first block is here: it dies, or hangs, if it is to.
    fn fall_ill(&self) {
        if self.dies.load(Ordering::Acquire) {
            raise(Signal::SIGKILL).expect("it dies");
        }
        if self.hangs.load(Ordering::Acquire) {
            println!("HANGS");
            loop {
                std::thread::park();
            }
        }
    }

    fn hear(&self, event: ViewEvent) {
        match event {
            ViewEvent::Received(message) => println!("GOT {} {}", sender(&message), message.number),
            ViewEvent::Ended { view, end, .. } => {
                println!("ENDED {view}");
                if self.suspects.load(Ordering::Acquire) {
                    self.suspect(end.node, view);
                }
            }
            ViewEvent::Sent(_) | ViewEvent::Returned(_) => {}
            other => panic!("{other:?}"),
        }
        self.send();
    }

    fn suspect(&self, member: usize, view: u64) {
        if let Some(group) = &*self.members() {
            group.suspect(member, view).expect("it was in the view");
        }
    }

    fn members(&self) -> MutexGuard<'_, Option<Group>> {
        self.members.lock().expect("no panic")
    }

    fn install(&self, view: &View) {
        let failed = if view.failed.is_empty() {
            ""
        } else {
            " FAILED"
        };
        self.group().install(view).expect("a group");
        println!("VIEW {}{failed}", view.number);
        self.send();
    }
}

fn content(sender: u64, number: u64) -> Vec<u8> {
    let mut bytes = [sender, number].map(u64::to_le_bytes).concat();
    bytes.extend(pattern((sender << 32) | number, BYTES - HEADER));
    bytes
}

/// The sender of a message, which has to be whole.
fn sender(message: &Message) -> u64 {
    let sender = message.bytes().first_chunk().expect("a header");
    let sender = u64::from_le_bytes(*sender);
    assert!(
        message.bytes() == content(sender, message.number),
        "{message:?} is not whole"
    );
    sender
}

/// The lowest seat is the root.
fn settings(view: &View) -> Option<GroupConfig> {
    let number = u32::try_from(view.number).ok()?;
    let config = GroupConfig::in_view(number, view, view.members.iter());
    let pipeline = Choice::Always(Algorithm::BinomialPipeline);
    Some(config.block_bytes(BLOCK).algorithm(pipeline))
}

fn seat(role: &Role) -> ShmSeats {
    let name = format!("{}-bulk", role.name);
    let seat = match role.founder {
        Some(rank) => ShmSeats::founder(&name, rank, SEATS, SEATS),
        None => ShmSeats::newcomer(&name, SEATS, PATIENCE),
    };
    seat.expect("a seat")
}

fn seat_in_group(role: &Role, node: &Node) -> ShmSeats {
    let seat = match node.newcomer() {
        None => ShmSeats::founder(&role.name, node.rank(), SEATS, SEATS),
        Some(newcomer) => ShmSeats::newcomer_as(&role.name, SEATS, newcomer, PATIENCE),
    };
    seat.expect("the same seat")
}

pub fn take_part(role: Role) {
    let fabric = Mortal::before(seat(&role), role.post);
    let node = Node::builder(fabric).memory(MEMORY).groups(4);
    let node = node.timeout(PATIENCE).join().expect("a node");
    let shared = Arc::new(Shared {
        memory: node.memory(),
        target: AtomicU64::new(0),
        dies: AtomicBool::new(false),
        hangs: AtomicBool::new(false),
        suspects: AtomicBool::new(false),
        group: OnceLock::new(),
        members: Mutex::new(None),
    });
    let [asked, told, installed] = [(); 3].map(|()| Arc::downgrade(&shared));
    let memory = node.memory();
    let group = node.view_group(
        settings,
        move |incoming| {
            asked.upgrade()?.fall_ill();
            memory.allocate(incoming.size).ok()
        },
        move |event| {
            if let Some(shared) = told.upgrade() {
                shared.hear(event);
            }
        },
    );
    assert!(shared.group.set(group).is_ok());
    let mut builder = Group::builder(seat_in_group(&role, &node));
    let views = builder.subgroup(Subgroup::new("views"));
    let group = builder
        .deliver(views, |_| {})
        .on_view(move |view| {
            if let Some(shared) = installed.upgrade() {
                shared.install(view);
            }
        })
        .timeout(PATIENCE);
    let group = group.join().expect("a member");
    *shared.members() = Some(group);
    println!("IN {}", node.rank());
    let how = obey(&shared);
    let group = shared.members().take().expect("it was joined");
    match how {
        Quit::Well => group.leave(PATIENCE).expect("it leaves"),
        Quit::Badly => {
            drop(group);
            return wait_for_the_end("OUT");
        }
        Quit::Halfway => {
            drop((shared, node));
            return wait_for_the_end("CUT");
        }
    }
    drop(shared);
    all_comes_back(&node);
    println!("LEFT");
}

/// How it is to leave the group.
#[derive(PartialEq, Eq)]
enum Quit {
    Well,
    /// It only goes, which the others take for a failure, and keeps its RDMC node.
    Badly,
    /// It stays, without its RDMC node.
    Halfway,
}

/// Does nothing more, until it is killed.
fn wait_for_the_end(said: &str) {
    println!("{said}");
    std::io::stdin().lines().for_each(drop);
}

/// Until there is nothing more to obey.
fn obey(shared: &Shared) -> Quit {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(count) = line.strip_prefix("SEND ") {
            let count = count.parse().expect("a number");
            shared.target.store(count, Ordering::Release);
            shared.send();
        } else if line == "DIE" {
            shared.dies.store(true, Ordering::Release);
            println!("WILL DIE");
        } else if line == "HANG" {
            shared.hangs.store(true, Ordering::Release);
            println!("WILL HANG");
        } else if line == "SUSPECT" {
            shared.suspects.store(true, Ordering::Release);
            println!("WILL SUSPECT");
        } else if line == "QUIT" {
            return Quit::Badly;
        } else if line == "CUT" {
            return Quit::Halfway;
        }
    }
    Quit::Well
}

/// No group is left: all memory is free, those of members that were killed included.
fn all_comes_back(node: &Node) {
    let end = Instant::now() + PATIENCE;
    while node.available() < MEMORY {
        assert!(Instant::now() < end, "{} are free", node.available());
        std::thread::sleep(Duration::from_millis(1));
    }
}
