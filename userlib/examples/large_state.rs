// SPDX-License-Identifier: MIT OR Apache-2.0

//! A table that all members keep, and that is too large for the group's own state: a newcomer
//! gets it by RDMC, as it was at the beginning of its first view, and then all changes behind.
//!
//! `cargo run --release -p weft --example large_state` starts the processes and shows what each
//! says.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft::fabric::shm::ShmSeats;
use weft::fabric::NodeSet;
use weft::rdmc::{Buffer, Event, GroupConfig, Node};
use weft::{Group, Subgroup, View};

const FOUNDERS: usize = 2;
const SEATS: usize = 4;
const WORDS: usize = 1 << 22;
const BYTES: usize = WORDS * size_of::<u64>();
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which there is something to see.
const PAUSE: Duration = Duration::from_millis(300);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A member's table, and the changes that have come before it.
struct Table {
    /// Empty, until it is here.
    words: Vec<u64>,
    early: Vec<u64>,
}

impl Table {
    fn change(&mut self, at: u64) {
        match self.words.get_mut(at as usize % WORDS) {
            Some(word) => *word += 1,
            None => self.early.push(at),
        }
    }

    /// The table as it was before all changes that have come.
    fn restore(&mut self, bytes: &[u8]) {
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |word, &b| (word << 8) | u64::from(b))
        };
        self.words = bytes.chunks_exact(size_of::<u64>()).map(word).collect();
        for at in std::mem::take(&mut self.early) {
            self.change(at);
        }
    }

    fn store(&self, bytes: &mut [u8]) {
        let places = bytes.chunks_exact_mut(size_of::<u64>());
        for (place, word) in places.zip(&self.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn changes(&self) -> u64 {
        self.words.iter().sum()
    }
}

/// A newcomer is to be given the table: by whom, and as it is then, if this node gives it.
struct Transfer {
    view: View,
    giver: usize,
    table: Option<Buffer>,
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => demonstrate(),
        [name] => take_part(name, None),
        [name, rank] => take_part(name, Some(rank.parse()?)),
        _ => Err("usage: large_state".into()),
    }
}

/// Starts the founders, lets others join one after the other, then all leave.
fn demonstrate() -> Result<(), Failure> {
    let name = format!("large-{}", std::process::id());
    let ranks = (0..SEATS).map(|rank| (rank < FOUNDERS).then_some(rank));
    let mut members: Vec<Child> = Vec::new();
    for rank in ranks {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(&name).args(rank.map(|rank| rank.to_string()));
        members.push(command.stdin(Stdio::piped()).spawn()?);
        if rank != Some(0) {
            std::thread::sleep(PAUSE);
        }
    }
    println!("all leave");
    for mut member in members {
        drop(member.stdin.take());
        if !member.wait()?.success() {
            return Err("a member has failed".into());
        }
    }
    Ok(())
}

/// One member: it changes the table until its input ends.
fn take_part(name: &str, founder: Option<usize>) -> Result<(), Failure> {
    let bulk = format!("{name}-bulk");
    let seat = match founder {
        Some(rank) => ShmSeats::founder(&bulk, rank, FOUNDERS, SEATS)?,
        None => ShmSeats::newcomer(&bulk, SEATS, PATIENCE)?,
    };
    let node = Arc::new(Node::builder(seat).memory(2 * BYTES).join()?);
    // The group's member has the same seat, and a newcomer the same incarnation.
    let seat = match node.newcomer() {
        None => ShmSeats::founder(name, node.rank(), FOUNDERS, SEATS)?,
        Some(newcomer) => ShmSeats::newcomer_as(name, SEATS, newcomer, PATIENCE)?,
    };
    let words = founder.map_or(Vec::new(), |_| vec![0; WORDS]);
    let early = Vec::new();
    let table = Arc::new(Mutex::new(Table { words, early }));
    let [changed, taken, restored] = [(); 3].map(|()| Arc::clone(&table));
    let (to_do, transfers) = channel();
    let (keeper, mover) = (Arc::clone(&node), Arc::clone(&node));
    let moving = std::thread::spawn(move || move_tables(&mover, &transfers, &restored));
    let mut builder = Group::builder(seat);
    let changes = builder.subgroup(Subgroup::new("changes").window(16).max_message(8));
    let group = builder
        .deliver(changes, move |batch| {
            let mut table = changed.lock().expect("no panic");
            let changes = batch.filter_map(|message| message.value::<u64>().copied());
            changes.for_each(|at| table.change(at));
        })
        .on_view(move |view| {
            keeper.follow(view);
            let table = taken.lock().expect("no panic");
            plan_transfer(&keeper, view, &table, &to_do);
        })
        .timeout(PATIENCE)
        .join()?;
    let changes = group.sender(changes)?;
    let (ended, end) = channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    let mut at = node.rank() as u64;
    while end.recv_timeout(Duration::from_micros(200)).is_err() {
        changes.send_value(&at)?;
        at += 7919;
    }
    group.leave(PATIENCE)?;
    moving.join().map_err(|_| "no table was moved")??;
    let changes = table.lock().expect("no panic").changes();
    println!("[seat {}] has left with {changes} changes", node.rank());
    Ok(())
}

/// Called between the last change of a view and the first of the next: so the lowest member takes
/// a copy of the table that all changes come behind which the newcomer is delivered.
fn plan_transfer(node: &Node, view: &View, table: &Table, to_do: &Sender<Transfer>) {
    let Some(newcomer) = view.joined else {
        return;
    };
    let others = view.members.minus(NodeSet::EMPTY.with(newcomer.seat));
    let Some(giver) = others.iter().next() else {
        return;
    };
    let mut copy = None;
    if node.rank() == giver && !table.words.is_empty() {
        // Without memory the newcomer is given nothing, and fails.
        copy = node.allocate(BYTES).ok();
        copy.iter_mut().for_each(|copy| table.store(copy));
    }
    if [giver, newcomer.seat].contains(&node.rank()) {
        let transfer = Transfer {
            view: view.clone(),
            giver,
            table: copy,
        };
        to_do.send(transfer).ok();
    }
}

/// Gives and takes tables while changes are delivered.
fn move_tables(
    node: &Node,
    transfers: &Receiver<Transfer>,
    table: &Arc<Mutex<Table>>,
) -> Result<(), Failure> {
    for transfer in transfers {
        let gives = transfer.giver == node.rank();
        match move_table(node, transfer, table) {
            // The newcomer has died, perhaps. The next one is to get its table all the same.
            Err(error) if gives => eprintln!("[seat {}] gives no table: {error}", node.rank()),
            moved => moved?,
        }
    }
    Ok(())
}

/// Gives or takes a table, in an RDMC group of two.
fn move_table(node: &Node, transfer: Transfer, table: &Arc<Mutex<Table>>) -> Result<(), Failure> {
    let (view, giver) = (transfer.view, transfer.giver);
    let newcomer = view.joined.map(|newcomer| newcomer.seat);
    let number = u32::try_from(view.number)?;
    let config = GroupConfig::in_view(number, &view, [giver].into_iter().chain(newcomer));
    let (memory, restored) = (node.memory(), Arc::clone(table));
    let (told, done) = channel();
    let group = node.create_group(
        &config,
        PATIENCE,
        move |incoming| memory.allocate(incoming.size).ok(),
        move |event| {
            if let Event::Received(message) = &event {
                restored.lock().expect("no panic").restore(message.bytes());
            }
            told.send(event).ok();
        },
    )?;
    if giver == node.rank() {
        if let Some(copy) = transfer.table {
            group.send(copy, BYTES)?;
        }
        // The newcomer hears of it, if it was given nothing.
        return Ok(group.destroy(PATIENCE)?);
    }
    match done.recv_timeout(PATIENCE)? {
        Event::Received(_) => println!("[seat {}] has the table", node.rank()),
        other => return Err(format!("no table: {other:?}").into()),
    }
    Ok(())
}
