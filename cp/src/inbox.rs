// SPDX-License-Identifier: MIT OR Apache-2.0

//! A receiver's end: messages become a stream again, and are reported when the
//! stream has been read beyond them.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Context, Result};
use weft::rdmc::{End, Event, Group, Message, Node};

use crate::link::{
    join, node_name, report_group, stream_group, what_happened, works_alone, Pool, WINDOW,
};
use crate::place::Party;
use crate::signals::Signals;
use crate::wire::{Report, GIVE_UP, MAX_REPORT_BYTES, STREAM, VERSION};

/// Messages that are here at a time: the window's, and one that is being read.
const MESSAGES: usize = WINDOW as usize + 1;
/// Reports that can be on their way: of each message of the window one, one that
/// has come but whose memory is not free yet, and the others one after the other.
const REPORTS: usize = WINDOW as usize + 4;
/// How long the sender has for telling everybody to give up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What comes from callbacks and signals.
enum Incident {
    Came(Message),
    Ended(End),
    Interrupted,
}

/// The receiver's end of the stream, and its reports.
pub struct Inbox {
    _stream: Group,
    reports: Group,
    reports_free: Pool,
    messages_free: Pool,
    events: Receiver<Incident>,
    /// The message that is being read, up to `read`.
    current: Option<Message>,
    read: usize,
    written: u64,
    /// Nothing follows: there is nobody to report a failure to.
    is_over: bool,
    // Behind the groups: dropping the last handle says farewell.
    _node: Node,
}

impl Inbox {
    /// Whether one can be opened where there is nobody to meet.
    pub fn works_alone(party: &Party, rank: usize) -> bool {
        works_alone(party, rank, MESSAGES, REPORTS)
    }

    /// Meets the others, and says what it takes.
    pub fn open(party: &Party, rank: usize, signals: &Signals) -> Result<Self> {
        let node = join(party, rank, MESSAGES, REPORTS)?;
        let messages_free = Pool::new(&node, MESSAGES, party.chunk)?;
        let reports_free = Pool::new(&node, REPORTS, MAX_REPORT_BYTES)?;
        let (tell, events) = channel();
        let tell = Arc::new(tell);
        let (memory, told) = (messages_free.clone(), Arc::clone(&tell));
        let _stream = node.create_group(
            &stream_group(party.receivers),
            party.patience,
            move |_| memory.take(),
            move |event| hear_stream(event, &told),
        )?;
        let (pool, told) = (reports_free.clone(), Arc::clone(&tell));
        let reports = node.create_group(
            &report_group(rank),
            party.patience,
            |_| None,
            move |event| hear_reports(event, &pool, &told),
        )?;
        signals.tell(&tell, || Incident::Interrupted);
        let mut inbox = Self {
            _stream,
            reports,
            reports_free,
            messages_free,
            events,
            current: None,
            read: 0,
            written: 0,
            is_over: false,
            _node: node,
        };
        let ready = inbox.report(&Report::Ready {
            version: VERSION,
            chunk_bytes: party.chunk as u64,
        });
        // Another receiver may have failed before this one was ready.
        ready.map_err(|error| anyhow!(inbox.explain(&error)))?;
        Ok(inbox)
    }

    /// Whether the transfer was given up, and not because of this receiver.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reports to the sender.
    fn report(&self, report: &Report) -> Result<()> {
        let bytes = report.to_bytes()?;
        let mut buffer = self.reports_free.take().context("no memory for a report")?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.reports.send(buffer, bytes.len())?;
        Ok(())
    }

    /// Reports that everything is here and is what was sent.
    pub fn report_checked(&mut self) -> Result<()> {
        let reported = self.report(&Report::Checked);
        // Another receiver may have failed while this one was writing.
        reported.map_err(|error| anyhow!(self.explain(&error)))
    }

    /// Reports that all is done, and waits until the sender knows.
    pub fn report_done(self) -> Result<()> {
        self.report(&Report::Done)?;
        Ok(self.reports.flush(PATIENCE)?)
    }

    /// Reports a failure, if it is this receiver's own, and waits until everybody
    /// has been told to give up. What comes until then is relayed and dropped.
    pub fn report_failed(mut self, why: &anyhow::Error) {
        if self.is_over {
            return;
        }
        if let Err(error) = self.report(&Report::failed(&format!("{why:#}"))) {
            tracing::debug!("cannot report the failure: {error:#}");
        }
        if let Some(message) = self.current.take() {
            self.messages_free.give(message.buffer);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Incident::Came(message)) if message.bytes().first() != Some(&GIVE_UP) => {
                    self.messages_free.give(message.buffer);
                }
                Ok(Incident::Interrupted) => {}
                Ok(_) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Sees to it that there are bytes to be read.
    fn load(&mut self) -> Result<(), String> {
        loop {
            match self.current.take() {
                Some(message) if self.read < message.size => {
                    self.current = Some(message);
                    return Ok(());
                }
                Some(message) => {
                    // Its memory first: the report is what makes room elsewhere.
                    self.messages_free.give(message.buffer);
                    self.written += 1;
                    let reported = self.report(&Report::Written(self.written));
                    reported.map_err(|error| self.explain(&error))?;
                }
                None => self.current = Some(self.next()?),
            }
        }
    }

    fn next(&mut self) -> Result<Message, String> {
        // Its callbacks hold the other end, until the polling thread ends.
        let Ok(incident) = self.events.recv() else {
            self.is_over = true;
            return Err("the polling thread has ended".to_owned());
        };
        self.read_incident(incident)
    }

    fn read_incident(&mut self, incident: Incident) -> Result<Message, String> {
        match incident {
            Incident::Came(message) => match message.bytes().split_first() {
                Some((&STREAM, _)) => {
                    self.read = 1;
                    Ok(message)
                }
                Some((&GIVE_UP, reason)) => {
                    self.is_over = true;
                    let reason = String::from_utf8_lossy(reason);
                    Err(format!("given up, nothing is kept: {reason}"))
                }
                _ => Err("the stream is corrupt: a message that is nothing".to_owned()),
            },
            Incident::Ended(end) => {
                self.is_over = true;
                let (who, what) = (node_name(end.node), what_happened(end));
                Err(format!("given up, nothing is kept: {who} {what}"))
            }
            Incident::Interrupted => Err("interrupted".to_owned()),
        }
    }

    /// Why a report was not taken. If the group has ended, what has come on the
    /// stream may say more: the sender's reason for giving up.
    fn explain(&mut self, error: &anyhow::Error) -> String {
        self.is_over = true;
        while let Ok(incident) = self.events.try_recv() {
            match self.read_incident(incident) {
                Ok(message) => self.messages_free.give(message.buffer),
                Err(why) => return why,
            }
        }
        format!("given up, nothing is kept: {error:#}")
    }
}

impl Read for Inbox {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Inbox {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.load().map_err(io::Error::other)?;
        let bytes = self.current.as_ref().map(Message::bytes);
        Ok(&bytes.unwrap_or_default()[self.read..])
    }

    fn consume(&mut self, bytes: usize) {
        self.read += bytes;
    }
}

fn hear_stream(event: Event, tell: &Sender<Incident>) {
    let incident = match event {
        Event::Received(message) => Incident::Came(message),
        Event::Ended(end) => Incident::Ended(end),
        _ => return,
    };
    // Without a receiver nobody is interested any more.
    let _ = tell.send(incident);
}

fn hear_reports(event: Event, pool: &Pool, tell: &Sender<Incident>) {
    match event {
        Event::Sent(Message { buffer, .. }) | Event::Returned(buffer) => pool.give(buffer),
        Event::Ended(end) => drop(tell.send(Incident::Ended(end))),
        _ => {}
    }
}
