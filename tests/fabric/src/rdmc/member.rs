// SPDX-License-Identifier: MIT OR Apache-2.0

//! One of the processes: the root of one group and a member of all.

use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use weft::rdmc::{Buffer, Event, Group, Message, Node};
use weft_testkit::pace::patient;
use weft_testkit::place::{Meeting, Placed};

use super::load::{Load, Part};
use super::SIGN_OF_LIFE;

/// How long anything may take, of what is far longer than the other tests.
const PATIENCE: Duration = Duration::from_secs(300);
/// Messages of a root that are on their way at a time.
const BUFFERS: usize = 2;
/// Private memory that a process may grow by after its first messages, in KiB.
const GROWTH_KIB: u64 = 4096;

/// What a group's events become.
enum News {
    /// The root's buffer is free again.
    Free(Buffer),
    /// So many bytes of a message were compared.
    Received(usize),
    /// Somebody has all, and left.
    Over,
    Wrong(String),
}

/// Sends and receives, and answers how many bytes were received.
pub fn play(load: &Load, rank: usize, meeting: Meeting) -> Result<u64> {
    let placed = Placed::new(load.kind, rank, load.members, meeting);
    let longest = load.longest as usize;
    // For each group a message, for the own one another, and for each where first
    // blocks arrive; and a page for each piece.
    let memory = (load.members + BUFFERS) * (longest + load.block as usize + 8192);
    let node = Node::builder(placed)
        .memory(memory)
        .groups(load.members)
        .timeout(patient(PATIENCE))
        .join()?;
    let all = Arc::new(load.bytes());
    let (tell, told) = channel();
    let mut groups = Vec::new();
    for root in 0..load.members {
        groups.push(create(&node, load, root, &all, &tell)?);
    }
    let free = (0..BUFFERS).map(|_| node.allocate(longest));
    let mut member = Member {
        rank,
        group: &groups[rank],
        told,
        free: free.collect::<Result<_, _>>()?,
        received: 0,
        spoke: Instant::now(),
    };
    let flat = Flat::new(load.arriving_at(rank));
    member.send(load, &all, flat)?;
    Ok(member.received)
}

fn create(
    node: &Node,
    load: &Load,
    root: usize,
    all: &Arc<Vec<u8>>,
    tell: &Sender<News>,
) -> Result<Group> {
    let memory = node.memory();
    let (all, tell) = (Arc::clone(all), tell.clone());
    let is_own = node.rank() == root;
    let mut expected = load.messages(root).filter(move |_| !is_own);
    let group = node.create_group(
        &load.group(root),
        patient(PATIENCE),
        move |incoming| memory.allocate(incoming.size).ok(),
        move |event| {
            let news = match event {
                Event::Sent(message) => News::Free(message.buffer),
                Event::Received(message) => compare(&message, expected.next(), &all),
                Event::Ended(_) if expected.next().is_none() => News::Over,
                other => News::Wrong(format!("group {root}: {other:?}")),
            };
            // Who has failed does not listen any more.
            let _ = tell.send(news);
        },
    )?;
    Ok(group)
}

fn compare(message: &Message, expected: Option<Part>, all: &[u8]) -> News {
    match expected {
        Some(Part { start, size })
            if message.size == size && message.bytes() == &all[start..start + size] =>
        {
            News::Received(size)
        }
        other => News::Wrong(format!(
            "message {} of {} bytes is not {other:?}",
            message.number, message.size
        )),
    }
}

struct Member<'a> {
    rank: usize,
    group: &'a Group,
    told: Receiver<News>,
    free: Vec<Buffer>,
    received: u64,
    spoke: Instant,
}

impl Member<'_> {
    /// Sends all of its own messages, and receives those of the others.
    fn send(&mut self, load: &Load, all: &[u8], mut flat: Flat) -> Result<()> {
        // Counted once: that goes through all messages of all roots.
        let arriving = load.arriving_at(self.rank);
        for Part { start, size } in load.messages(self.rank) {
            while self.free.is_empty() {
                self.hear(&mut flat)?;
            }
            let mut buffer = self.free.pop().context("no buffer")?;
            buffer[..size].copy_from_slice(&all[start..start + size]);
            self.group.send(buffer, size)?;
        }
        while self.free.len() < BUFFERS || self.received < arriving {
            self.hear(&mut flat)?;
        }
        flat.check()
    }

    fn hear(&mut self, flat: &mut Flat) -> Result<()> {
        let news = self.told.recv_timeout(patient(PATIENCE));
        match news.context("nothing happens")? {
            News::Free(buffer) => self.free.push(buffer),
            News::Received(size) => {
                self.received += size as u64;
                flat.received(self.received)?;
            }
            News::Over => {}
            News::Wrong(what) => bail!(what),
        }
        if self.spoke.elapsed() > SIGN_OF_LIFE {
            self.spoke = Instant::now();
            println!(
                "# member {} has received {} MiB",
                self.rank,
                self.received >> 20
            );
        }
        Ok(())
    }
}

/// Whether the process's private memory stays what it was.
struct Flat {
    /// Bytes received after which it is looked at first.
    warm: u64,
    before_kib: Option<u64>,
}

impl Flat {
    fn new(all: u64) -> Self {
        Self {
            warm: all / 4,
            before_kib: None,
        }
    }

    fn received(&mut self, bytes: u64) -> Result<()> {
        if self.before_kib.is_none() && bytes > self.warm {
            self.before_kib = Some(private_kib()?);
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let (before, now) = (self.before_kib.unwrap_or(u64::MAX), private_kib()?);
        ensure!(
            now <= before.saturating_add(GROWTH_KIB),
            "private memory grew from {before} to {now} KiB"
        );
        Ok(())
    }
}

fn private_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("no RssAnon")?.parse()?)
}
