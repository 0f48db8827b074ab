// SPDX-License-Identifier: MIT OR Apache-2.0

//! A replicated key-value map whose members go one after the other: one is killed, one
//! leaves, and the map is the same at all who are there.
//!
//! `cargo run -p weft --example replicated_map` starts four processes and shows what each
//! says.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft::fabric::shm::Shm;
use weft::{Group, Subgroup};

const MEMBERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which there is something to see.
const PAUSE: Duration = Duration::from_millis(200);
const KEYS: u64 = 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Map = BTreeMap<u64, u64>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => demonstrate(),
        [name, rank] => replicate(name, rank.parse()?),
        _ => Err("usage: replicated_map".into()),
    }
}

/// Starts the members, kills one, lets another one leave, then the others.
fn demonstrate() -> Result<(), Failure> {
    let name = format!("map-{}", std::process::id());
    let start = |rank: usize| -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&name, &rank.to_string()]);
        Ok(command.stdin(Stdio::piped()).spawn()?)
    };
    let mut members = (0..MEMBERS).map(start).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(2 * PAUSE);
    println!("member 0 is killed");
    let mut killed = members.remove(0);
    let signal = killed.kill();
    killed.wait()?;
    signal?;
    for mut member in members {
        std::thread::sleep(PAUSE);
        // It leaves when its input ends.
        drop(member.stdin.take());
        if !member.wait()?.success() {
            return Err("a member has failed".into());
        }
    }
    Ok(())
}

/// One member: it changes the map until its input ends.
fn replicate(name: &str, rank: usize) -> Result<(), Failure> {
    let map = Arc::new(Mutex::new(Map::new()));
    let (applied, shown) = (Arc::clone(&map), Arc::clone(&map));
    let group = Group::builder(Shm::new(name, rank, MEMBERS)?)
        .subgroup(Subgroup::new("changes").window(16).max_message(16))
        .deliver("changes", move |batch| {
            let mut map = applied.lock().expect("no panic");
            for message in batch {
                if let Some(&[key, value]) = message.value::<[u64; 2]>() {
                    // What a member writes depends on what all have: it adds.
                    *map.entry(key).or_default() += value;
                }
            }
        })
        .on_view(move |view| {
            let map = shown.lock().expect("no panic");
            let (members, changes) = (view.members, map.values().sum::<u64>());
            println!(
                "[{rank}] view {}: {members:?}, {changes} changes: {map:?}",
                view.number
            );
        })
        .timeout(PATIENCE)
        .join()?;
    let changes = group.sender("changes")?;
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    let mut key = rank as u64;
    while end.try_recv().is_err() {
        changes.send_value(&[key % KEYS, 1])?;
        key += 3;
        std::thread::sleep(Duration::from_micros(100));
    }
    group.leave(PATIENCE)?;
    println!(
        "[{rank}] has left with {} changes",
        map.lock().expect("no panic").values().sum::<u64>()
    );
    Ok(())
}
