// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sender's end: the stream becomes messages, as receivers report room for
//! them.

mod crowd;

use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use weft::rdmc::{Buffer, Event, Group, Message, Node, SendError, SendReason};

use crate::link::{join, report_group, stream_group, works_alone, Pool, WINDOW};
use crate::place::Party;
use crate::produce::Sink;
use crate::signals::Signals;
use crate::wire::{shortened, Report, GIVE_UP, MAX_REPORT_BYTES, STREAM};
use crowd::{Crowd, Happening};

/// Messages that are on their way at a time.
const MESSAGES: usize = WINDOW as usize;
/// How long receivers have for what is under way when the transfer is given up.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// What comes from callbacks and signals.
enum Incident {
    /// A buffer is the sender's again.
    Free(Buffer),
    /// Something about receivers.
    Happened(Happening),
}

/// Why a transfer was given up.
pub enum Failure {
    /// By receivers, or because one was lost.
    OfReceivers(anyhow::Error),
    /// By this sender: it cannot go on with others either.
    Own(anyhow::Error),
}

/// The sender's end of the stream, and of all reports.
pub struct Outbox {
    stream: Group,
    _reports: Vec<Group>,
    events: Receiver<Incident>,
    crowd: Crowd,
    free: Vec<Buffer>,
    /// Kept for the word that the transfer is given up.
    last: Option<Buffer>,
    /// The message that is being filled, up to `filled`.
    current: Option<Buffer>,
    filled: usize,
    chunk_bytes: usize,
    sent: u64,
    // Behind the groups: dropping the last handle says farewell.
    _node: Node,
}

impl Outbox {
    /// Whether one can be opened where there is nobody to meet.
    pub fn works_alone(party: &Party) -> bool {
        works_alone(party, 0, MESSAGES, reports_of(party))
    }

    /// Meets the receivers, and hears from each what it takes.
    pub fn open(party: &Party, signals: &Signals) -> Result<Self> {
        let node = join(party, 0, MESSAGES, reports_of(party))?;
        let free = (0..MESSAGES).map(|_| node.allocate(party.chunk));
        let free = free.collect::<Result<_, _>>()?;
        let last = node.allocate(MAX_REPORT_BYTES)?;
        let (tell, events) = channel();
        let tell = Arc::new(tell);
        let config = stream_group(party.receivers);
        let told = Arc::clone(&tell);
        let of_stream = move |event| hear_stream(event, &told);
        let stream = node.create_group(&config, party.patience, |_| None, of_stream)?;
        let reports = (1..=party.receivers).map(|receiver| {
            let pool = Pool::new(&node, 1, MAX_REPORT_BYTES)?;
            let (memory, told) = (pool.clone(), Arc::clone(&tell));
            let config = report_group(receiver);
            let hear = move |event| hear_report(receiver, event, &pool, &told);
            let give = move |_| memory.take();
            Ok(node.create_group(&config, party.patience, give, hear)?)
        });
        let _reports = reports.collect::<Result<_>>()?;
        signals.tell(&tell, || Incident::Happened(Happening::Interrupted));
        Ok(Self {
            stream,
            _reports,
            events,
            crowd: Crowd::new(party.receivers),
            free,
            last: Some(last),
            current: None,
            filled: 0,
            chunk_bytes: party.chunk,
            sent: 0,
            _node: node,
        })
    }

    /// Waits until all receivers are ready; from then on there is a stream.
    pub fn await_ready(&mut self) -> Result<()> {
        self.wait(|outbox| outbox.crowd.are_ready())?;
        self.chunk_bytes = self.crowd.least_chunk(self.chunk_bytes);
        Ok(())
    }

    /// Waits until all have checked what has come.
    pub fn await_checked(&mut self) -> Result<()> {
        self.wait(|outbox| outbox.crowd.have_checked())
    }

    /// Waits until all have named it.
    pub fn await_done(&mut self) -> Result<()> {
        self.wait(|outbox| outbox.crowd.are_done())
    }

    /// Sends what was put into the stream so far.
    pub fn flush(&mut self) -> Result<()> {
        let Some(buffer) = self.current.take() else {
            return Ok(());
        };
        self.wait(|outbox| outbox.sent < outbox.crowd.written().saturating_add(WINDOW))?;
        self.sent += 1;
        let sent = self.stream.send(buffer, self.filled);
        if let Err(SendError {
            reason: SendReason::Ended(end),
            ..
        }) = sent
        {
            self.crowd.note(Happening::StreamEnded(end))?;
        }
        Ok(sent?)
    }

    /// Tells all receivers to give up, and why; answers with the whole failure.
    pub fn give_up(mut self, why: anyhow::Error) -> Failure {
        // Failures that are noted from now on come later than the reason.
        let is_own = self.crowd.failures().is_none();
        if let Some(mut buffer) = self.last.take() {
            let reason = format!("{why:#}");
            let reason = shortened(&reason);
            buffer[0] = GIVE_UP;
            buffer[1..=reason.len()].copy_from_slice(reason.as_bytes());
            // Whoever is not reached by it, because somebody has died, has
            // learned that.
            let sent = self.stream.send(buffer, reason.len() + 1);
            if sent.is_ok() {
                if let Err(error) = self.stream.flush(LAST_WORDS) {
                    tracing::debug!(%error, "not all have heard that the transfer is given up");
                }
            }
        }
        for event in self.events.try_iter() {
            if let Incident::Happened(happening) = event {
                self.crowd.note_late(happening);
            }
        }
        match self.crowd.failures() {
            Some(failures) if is_own => Failure::Own(anyhow!("{why:#}\n{failures}")),
            Some(failures) => Failure::OfReceivers(anyhow!(failures)),
            None => Failure::Own(why),
        }
    }

    fn wait(&mut self, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.note(event)?;
            }
            if is_so(self) {
                return Ok(());
            }
            let event = self.events.recv().context("the polling thread has ended")?;
            self.note(event)?;
        }
    }

    fn note(&mut self, event: Incident) -> Result<()> {
        match event {
            Incident::Free(buffer) => self.free.push(buffer),
            Incident::Happened(happening) => self.crowd.note(happening)?,
        }
        Ok(())
    }
}

/// A report of each receiver can come at a time; and the last word.
fn reports_of(party: &Party) -> usize {
    party.receivers + 1
}

impl Sink for Outbox {
    fn space(&mut self) -> Result<&mut [u8]> {
        if self.current.is_none() {
            self.wait(|outbox| !outbox.free.is_empty())?;
            let mut buffer = self.free.pop().context("no buffer")?;
            buffer[0] = STREAM;
            self.filled = 1;
            self.current = Some(buffer);
        }
        let buffer = self.current.as_mut().context("no buffer")?;
        Ok(&mut buffer[self.filled..self.chunk_bytes])
    }

    fn advance(&mut self, bytes: usize) -> Result<()> {
        self.filled += bytes;
        ensure!(self.filled <= self.chunk_bytes, "a message is too long");
        if self.filled == self.chunk_bytes {
            self.flush()?;
        }
        Ok(())
    }
}

fn hear_stream(event: Event, tell: &Sender<Incident>) {
    let event = match event {
        Event::Sent(Message { buffer, .. }) | Event::Returned(buffer) => Incident::Free(buffer),
        Event::Ended(end) => Incident::Happened(Happening::StreamEnded(end)),
        _ => return,
    };
    // Without a receiver nobody is interested any more.
    let _ = tell.send(event);
}

fn hear_report(receiver: usize, event: Event, pool: &Pool, tell: &Sender<Incident>) {
    let happening = match event {
        Event::Received(message) => {
            let report = Report::from_bytes(message.bytes());
            pool.give(message.buffer);
            Happening::Reported(receiver, report)
        }
        Event::Ended(end) => Happening::ReportsEnded(receiver, end),
        _ => return,
    };
    let _ = tell.send(Incident::Happened(happening));
}
