// SPDX-License-Identifier: MIT OR Apache-2.0

//! A replicated key-value map whose members come and go: one is killed, one leaves, others
//! join, and the map is the same at all who are there.
//!
//! `cargo run -p weft --example replicated_map` starts the processes and shows what each says.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft::fabric::shm::ShmSeats;
use weft::{Group, Subgroup};

const FOUNDERS: usize = 3;
const SEATS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which there is something to see.
const PAUSE: Duration = Duration::from_millis(200);
const KEYS: u64 = 8;
const MAX_MAP_BYTES: usize = 4096;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Map = BTreeMap<u64, u64>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => demonstrate(),
        [name] => replicate(ShmSeats::newcomer(name, SEATS, PATIENCE)?),
        [name, rank] => replicate(ShmSeats::founder(name, rank.parse()?, FOUNDERS, SEATS)?),
        _ => Err("usage: replicated_map".into()),
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

/// Starts the founders, kills one, lets another leave, lets some join, then all leave.
fn demonstrate() -> Result<(), Failure> {
    let name = format!("map-{}", std::process::id());
    let founders = (0..FOUNDERS).map(|rank| start(&name, Some(rank)));
    let mut members = founders.collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(2 * PAUSE);
    println!("somebody joins");
    members.push(start(&name, None)?);
    std::thread::sleep(PAUSE);
    println!("member 0 is killed");
    let mut killed = members.remove(0);
    let signal = killed.kill();
    killed.wait()?;
    signal?;
    std::thread::sleep(PAUSE);
    println!("somebody joins, and member 1 leaves");
    members.push(start(&name, None)?);
    std::thread::sleep(PAUSE);
    let_go(members.remove(0))?;
    println!("all leave");
    for member in members {
        std::thread::sleep(PAUSE);
        let_go(member)?;
    }
    Ok(())
}

fn to_bytes(map: &Map) -> Vec<u8> {
    let words = map.iter().flat_map(|(&key, &value)| [key, value]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn from_bytes(bytes: &[u8]) -> Map {
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word))
    };
    let entries = bytes.chunks_exact(16);
    entries
        .map(|entry| (word(entry), word(&entry[8..])))
        .collect()
}

/// One member: it changes the map until its input ends.
fn replicate(node: ShmSeats) -> Result<(), Failure> {
    let map = Arc::new(Mutex::new(Map::new()));
    let [applied, taken, restored, shown] = [(); 4].map(|()| Arc::clone(&map));
    let pid = std::process::id();
    let mut builder = Group::builder(node);
    let changes = builder.subgroup(Subgroup::new("changes").window(16).max_message(16));
    let group = builder
        .deliver(changes, move |batch| {
            let mut map = applied.lock().expect("no panic");
            for message in batch {
                if let Some(&[key, value]) = message.value::<[u64; 2]>() {
                    // What a member writes depends on what all have: it adds.
                    *map.entry(key).or_default() += value;
                }
            }
        })
        .state(
            MAX_MAP_BYTES,
            move || to_bytes(&taken.lock().expect("no panic")),
            move |bytes| *restored.lock().expect("no panic") = from_bytes(bytes),
        )
        .on_view(move |view| {
            let map = shown.lock().expect("no panic");
            let (members, changes) = (view.members, map.values().sum::<u64>());
            println!(
                "[process {pid}] view {}: {members:?}, {changes} changes: {map:?}",
                view.number
            );
        })
        .timeout(PATIENCE)
        .join()?;
    let changes = group.sender(changes)?;
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    let mut key = group.rank() as u64;
    while end.try_recv().is_err() {
        changes.send_value(&[key % KEYS, 1])?;
        key += 3;
        std::thread::sleep(Duration::from_micros(100));
    }
    group.leave(PATIENCE)?;
    println!(
        "[process {pid}] has left with {} changes",
        map.lock().expect("no panic").values().sum::<u64>()
    );
    Ok(())
}
