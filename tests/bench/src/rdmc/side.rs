// SPDX-License-Identifier: MIT OR Apache-2.0

//! One variant at one member: groups are created, samples are sent one after
//! the other, and everybody writes down when it had everything.
//!
//! A sender begins the next sample once all members have the last one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{anyhow, bail, Context as _, Result};
use weft::rdmc::{Buffer, Event, Group, Incoming, Message, Node};

use super::board::Board;
use super::load::{Load, Variant};
use super::member::{cpu_time, Seen, PATIENCE};

/// What the polling thread tells the member's.
enum News {
    /// The member's own messages of a sample are sent.
    Sent(Vec<Buffer>),
    /// All samples are here; so much processor time they took.
    Over(Duration),
    Failed(String),
}

/// Buffers of which no page is touched for the first time while it counts: they
/// were written once, and are used again, by one variant after the other.
pub type Pool = Arc<Mutex<Vec<Buffer>>>;

/// A member's part of a variant.
pub struct Side<'a> {
    pub node: &'a Node,
    pub board: &'a Arc<Board>,
    pub pool: &'a Pool,
    pub load: &'a Load,
    /// Which variant it is.
    pub nth: usize,
}

impl Side<'_> {
    /// Measures it.
    pub fn measure(&self, variant: &Variant) -> Result<Seen> {
        let (tell, told) = channel();
        let count = Arc::new(Count::new(self, tell));
        let sleeps = self.node.sleeps();
        // Before others can send, whose messages take from the pool.
        let own = lock(self.pool).split_off(self.others());
        let groups = (0..self.load.senders)
            .map(|root| self.join(variant, root, &count))
            .collect::<Result<Vec<_>>>()?;
        if let Some(group) = groups.iter().find(|group| group.is_root()) {
            self.send_all(group, own, &told)?;
        }
        let cpu = match told.recv_timeout(PATIENCE)? {
            News::Over(cpu) => cpu,
            News::Sent(_) => bail!("a message was sent that was not the member's"),
            News::Failed(why) => bail!(why),
        };
        let last = self.load.rows() - 1;
        self.board.wait_for_all(self.row(last), PATIENCE)?;
        let seconds = match self.node.rank() {
            0 => (self.load.warm_up..self.load.rows())
                .map(|sample| self.board.seconds(self.row(sample)))
                .collect::<Result<Vec<_>>>()?,
            _ => Vec::new(),
        };
        Ok(Seen {
            seconds,
            cpu_seconds: cpu.as_secs_f64(),
            sleeps: self.node.sleeps() - sleeps,
        })
    }

    /// The board's row of a sample.
    fn row(&self, sample: usize) -> usize {
        self.nth * self.load.rows() + sample
    }

    /// Creates the group whose root is this member.
    fn join(&self, variant: &Variant, root: usize, count: &Arc<Count>) -> Result<Group> {
        let members = self.load.members;
        let ranks = (0..members).map(|at| (root + at) % members);
        let number = u32::try_from(self.nth * self.load.senders + root)?;
        let config = variant.config(number, ranks);
        let (pool, count) = (Arc::clone(self.pool), Arc::clone(count));
        let memory = move |_: Incoming| lock(&pool).pop();
        let event = move |event| count.hear(event);
        Ok(self.node.create_group(&config, PATIENCE, memory, event)?)
    }

    /// Sends all samples.
    fn send_all(
        &self,
        group: &Group,
        mut buffers: Vec<Buffer>,
        told: &Receiver<News>,
    ) -> Result<()> {
        for sample in 0..self.load.rows() {
            if sample > 0 {
                self.board.wait_for_all(self.row(sample - 1), PATIENCE)?;
            }
            for buffer in &mut buffers {
                buffer[self.load.bytes - 1] = stamp(sample);
            }
            self.board.begins(self.row(sample))?;
            for buffer in buffers.drain(..) {
                let sent = group.send(buffer, self.load.bytes);
                sent.map_err(|error| anyhow!(error.reason))?;
            }
            // Not at the channel, where a thread spins first, perhaps in the way of
            // who is to receive.
            group.flush(PATIENCE)?;
            let news = told.recv_timeout(PATIENCE);
            buffers = match news.context("a message was not sent")? {
                News::Sent(buffers) => buffers,
                News::Over(_) => bail!("the samples ended too soon"),
                News::Failed(why) => bail!(why),
            };
        }
        lock(self.pool).append(&mut buffers);
        Ok(())
    }

    /// Senders that this member receives from.
    fn others(&self) -> usize {
        self.load.senders - usize::from(self.node.rank() < self.load.senders)
    }
}

/// What a sample's messages end with.
fn stamp(sample: usize) -> u8 {
    (sample % usize::from(u8::MAX)) as u8
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the messages of all groups, on the polling thread.
struct Count {
    board: Arc<Board>,
    pool: Pool,
    load: Load,
    /// The first row, and how many.
    first_row: usize,
    rows: usize,
    done: AtomicUsize,
    sent: Mutex<Vec<Buffer>>,
    /// Processor time when the samples that count began.
    began: Mutex<Duration>,
    tell: Sender<News>,
}

impl Count {
    fn new(side: &Side<'_>, tell: Sender<News>) -> Self {
        Self {
            board: Arc::clone(side.board),
            pool: Arc::clone(side.pool),
            load: side.load.clone(),
            first_row: side.row(0),
            rows: side.load.rows(),
            done: AtomicUsize::new(0),
            sent: Mutex::default(),
            began: Mutex::default(),
            tell,
        }
    }

    fn hear(&self, event: Event) {
        let sample = self.done.load(Ordering::Relaxed) / self.load.total_messages();
        match event {
            Event::Received(Message { buffer, size, .. }) => {
                let noted = self.has_one();
                if size != self.load.bytes || buffer[size - 1] != stamp(sample) {
                    self.fail("a message is not what was sent".to_owned());
                }
                lock(&self.pool).push(buffer);
                self.pass_on(noted);
            }
            Event::Sent(Message { buffer, .. }) => {
                let noted = self.has_one();
                let mut sent = lock(&self.sent);
                sent.push(buffer);
                if sent.len() == self.load.messages {
                    self.tell(News::Sent(std::mem::take(&mut sent)));
                }
                drop(sent);
                self.pass_on(noted);
            }
            Event::Ended(end) if sample < self.rows => {
                self.fail(format!("the group has ended: {end}"));
            }
            _ => {}
        }
    }

    /// Another message is done. Writes it down if that was the sample's last,
    /// and answers with the processor time if it was the last of all.
    fn has_one(&self) -> Result<Option<Duration>> {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done % self.load.total_messages() != 0 {
            return Ok(None);
        }
        let samples = done / self.load.total_messages();
        self.board.has_all(self.first_row + samples - 1)?;
        if samples == self.load.warm_up {
            *lock(&self.began) = cpu_time()?;
        }
        match samples == self.rows {
            true => Ok(Some(cpu_time()? - *lock(&self.began))),
            false => Ok(None),
        }
    }

    fn pass_on(&self, noted: Result<Option<Duration>>) {
        match noted {
            Ok(Some(cpu)) => self.tell(News::Over(cpu)),
            Ok(None) => {}
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    fn fail(&self, why: String) {
        self.tell(News::Failed(why));
    }

    fn tell(&self, news: News) {
        // Nobody listens once the member has failed.
        let _ = self.tell.send(news);
    }
}
