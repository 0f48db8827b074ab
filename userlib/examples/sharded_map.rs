// SPDX-License-Identifier: MIT OR Apache-2.0

//! A key-value map in shards, each of which two members keep. When members come and go shards move:
//! whoever enters one is given its entries, and then every change behind them.
//!
//! `cargo run -p weft --example sharded_map` starts the processes and shows what each says.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft::fabric::shm::ShmSeats;
use weft::fabric::Fabric;
use weft::{Error, Group, Membership, SendError, Sender, Subgroup, View};

const FOUNDERS: usize = 3;
const SEATS: usize = 6;
const SHARDS: usize = 3;
const COPIES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which there is something to see.
const PAUSE: Duration = Duration::from_millis(200);
/// Keys of a shard.
const KEYS: u64 = 4;
const MAX_SHARD_BYTES: usize = 4096;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Shard = Arc<Mutex<BTreeMap<u64, u64>>>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => demonstrate(),
        [name] => keep(ShmSeats::newcomer(name, SEATS, PATIENCE)?),
        [name, rank] => keep(ShmSeats::founder(name, rank.parse()?, FOUNDERS, SEATS)?),
        _ => Err("usage: sharded_map".into()),
    }
}

/// Starts a member, as a founder or as a newcomer.
fn start(name: &str, rank: Option<usize>) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(name).args(rank.map(|rank| rank.to_string()));
    Ok(command.stdin(Stdio::piped()).spawn()?)
}

/// A member leaves when its input ends.
fn let_go(mut member: Child) -> Result<(), Failure> {
    drop(member.stdin.take());
    match member.wait()?.success() {
        true => Ok(()),
        false => Err("a member has failed".into()),
    }
}

/// Starts the founders, lets two join, kills a founder, then all leave.
fn demonstrate() -> Result<(), Failure> {
    let name = format!("shards-{}", std::process::id());
    let founders = (0..FOUNDERS).map(|rank| start(&name, Some(rank)));
    let mut members = founders.collect::<Result<Vec<_>, _>>()?;
    for _ in 0..2 {
        std::thread::sleep(PAUSE);
        println!("somebody joins");
        members.push(start(&name, None)?);
    }
    std::thread::sleep(PAUSE);
    println!("member 0 is killed");
    let mut killed = members.remove(0);
    let signal = killed.kill();
    killed.wait()?;
    signal?;
    std::thread::sleep(PAUSE);
    println!("all leave");
    for member in members {
        std::thread::sleep(PAUSE);
        let_go(member)?;
    }
    Ok(())
}

/// The members that keep a shard: the first at its place among the seats, or behind it.
fn keepers(view: &View, shard: usize) -> Membership {
    let place = shard * SEATS / SHARDS;
    let behind = (place..place + SEATS).map(|seat| seat % SEATS);
    let members = behind.filter(|&seat| view.members.contains(seat));
    Membership::all_send(members.take(COPIES).collect())
}

fn to_bytes(shard: &Shard) -> Vec<u8> {
    let entries = shard.lock().expect("no panic");
    let words = entries.iter().flat_map(|(&key, &value)| [key, value]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn from_bytes(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let word = |bytes: &[u8]| {
        let word = bytes.first_chunk();
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let entries = bytes.chunks_exact(16);
    let entries = entries.map(|entry| (word(entry), word(&entry[8..])));
    entries.collect()
}

/// One member: it changes the shards that it keeps until its input ends.
fn keep(node: ShmSeats) -> Result<(), Failure> {
    let rank = node.rank();
    let shards: [Shard; SHARDS] = Default::default();
    let mut builder = Group::builder(node).timeout(PATIENCE);
    let subgroups = [0, 1, 2].map(|shard: usize| {
        let subgroup = Subgroup::new(&format!("shard {shard}"));
        builder.subgroup(subgroup.window(16).max_message(16))
    });
    for (at, &subgroup) in subgroups.iter().enumerate() {
        let [changed, taken, restored] = [(); 3].map(|()| Arc::clone(&shards[at]));
        builder = builder
            .members_by_view(subgroup, move |view| keepers(view, at))
            .deliver(subgroup, move |batch| {
                let mut shard = changed.lock().expect("no panic");
                for message in batch {
                    if let Some(&[key, value]) = message.value::<[u64; 2]>() {
                        *shard.entry(key).or_default() += value;
                    }
                }
            })
            .subgroup_state(
                subgroup,
                MAX_SHARD_BYTES,
                move || to_bytes(&taken),
                move |bytes| *restored.lock().expect("no panic") = from_bytes(bytes),
            );
    }
    let shown = shards.clone();
    let group = builder
        .on_view(move |view| {
            for (at, (shard, &subgroup)) in shown.iter().zip(&subgroups).enumerate() {
                if let Some(keepers) = view.subgroup(subgroup) {
                    // One of those who have it shows it.
                    if keepers.before.iter().next() == Some(rank) {
                        let (number, members) = (view.number, keepers.members);
                        let shard = shard.lock().expect("no panic");
                        println!("view {number}: {members:?} keep shard {at}: {shard:?}");
                    }
                }
            }
        })
        .join()?;
    let senders = subgroups.iter().map(|&subgroup| group.sender(subgroup));
    change(&senders.collect::<Result<Vec<_>, _>>()?)?;
    match group.leave(PATIENCE) {
        // It had sent something in a shard that it keeps no more.
        Err(Error::Unflushed { .. }) => println!("member {rank}: the last changes came too late"),
        left => left?,
    }
    Ok(())
}

/// Changes the shards that it keeps, until its input ends.
fn change(senders: &[Sender]) -> Result<(), Failure> {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    let mut key = 0;
    while end.recv_timeout(Duration::from_micros(200)).is_err() {
        for sender in senders {
            match sender.send_value(&[key % KEYS, 1]) {
                // Others keep that shard.
                Ok(()) | Err(SendError::NotSender) => {}
                Err(error) => return Err(error.into()),
            }
        }
        key += 1;
    }
    Ok(())
}
