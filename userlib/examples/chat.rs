// SPDX-License-Identifier: MIT OR Apache-2.0

//! A chat of processes in which all see the same conversation.
//!
//! `cargo run -p weft --example chat` shows three processes talk. To take part
//! yourself, start one in each terminal:
//! `cargo run -p weft --example chat -- ROOM RANK NODES`

use std::io::BufRead;
use std::process::Command;
use std::time::Duration;
use weft::fabric::shm::Shm;
use weft::{Event, Group, Subgroup};

const PATIENCE: Duration = Duration::from_secs(120);
const LINES: [&str; 3] = ["hello", "who is first?", "ask the order"];

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => demonstrate(),
        [room, rank, nodes] => talk(room, rank.parse()?, nodes.parse()?, false),
        [room, rank, nodes, demo] if demo == "demo" => {
            talk(room, rank.parse()?, nodes.parse()?, true)
        }
        _ => Err("usage: chat [ROOM RANK NODES]".into()),
    }
}

/// Starts three processes that say a few lines each.
fn demonstrate() -> Result<(), Failure> {
    let room = format!("demo-{}", std::process::id());
    let mut processes = Vec::new();
    for rank in ["0", "1", "2"] {
        let own = std::env::current_exe()?;
        processes.push(Command::new(own).args([&room, rank, "3", "demo"]).spawn()?);
    }
    for mut process in processes {
        if !process.wait()?.success() {
            return Err("a process has failed".into());
        }
    }
    Ok(())
}

fn talk(room: &str, rank: usize, nodes: usize, demo: bool) -> Result<(), Failure> {
    let mut builder = Group::builder(Shm::new(room, rank, nodes)?);
    let lines = builder.subgroup(Subgroup::new("lines").window(16).max_message(1024));
    let group = builder
        .deliver(lines, move |batch| {
            for message in batch {
                let line = String::from_utf8_lossy(message.bytes);
                println!("[seen by {rank}] {}: {line}", message.sender);
            }
        })
        .on_event(move |event| match event {
            Event::Left(node) => println!("[seen by {rank}] {node} has left"),
            other => println!("[seen by {rank}] {other:?}"),
        })
        .timeout(PATIENCE)
        .join()?;
    let lines = group.sender(lines)?;
    if demo {
        for line in LINES {
            lines.send_bytes(line.as_bytes())?;
            std::thread::sleep(Duration::from_millis(20));
        }
    } else {
        println!("all are here; end with an empty line");
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            lines.send_bytes(line.as_bytes())?;
        }
    }
    group.leave(PATIENCE)?;
    Ok(())
}
