// SPDX-License-Identifier: MIT OR Apache-2.0

//! How far each receiver is, as the sender knows it.

use anyhow::{bail, ensure, Context, Error, Result};
use weft::rdmc::{End, EndReason};

use crate::link::{node_name, what_happened, MIN_CHUNK_BYTES};
use crate::wire::{Report, VERSION};

/// Something that the sender learns.
#[derive(Debug)]
pub enum Happening {
    /// A receiver reports.
    Reported(usize, Result<Report>),
    /// The group of a receiver's reports has ended.
    ReportsEnded(usize, End),
    /// The stream's group has ended.
    StreamEnded(End),
    /// A signal has come.
    Interrupted,
}

/// One receiver.
#[derive(Clone, Debug, Default)]
struct Progress {
    chunk_bytes: Option<usize>,
    written: u64,
    has_checked: bool,
    is_done: bool,
    failure: Option<String>,
}

/// All receivers.
#[derive(Debug)]
pub struct Crowd {
    /// By rank, from 1 on.
    receivers: Vec<Progress>,
    /// The sender's fate, as a receiver tells it that has lost the sender.
    lost: Option<String>,
}

impl Crowd {
    pub fn new(receivers: usize) -> Self {
        Self {
            receivers: vec![Progress::default(); receivers],
            lost: None,
        }
    }

    pub fn are_ready(&self) -> bool {
        self.receivers.iter().all(|one| one.chunk_bytes.is_some())
    }

    pub fn have_checked(&self) -> bool {
        self.receivers.iter().all(|one| one.has_checked)
    }

    pub fn are_done(&self) -> bool {
        self.receivers.iter().all(|one| one.is_done)
    }

    /// The longest message that all take.
    pub fn least_chunk(&self, own: usize) -> usize {
        let theirs = self.receivers.iter().filter_map(|one| one.chunk_bytes);
        theirs.fold(own, usize::min)
    }

    /// Messages that all have written.
    pub fn written(&self) -> u64 {
        let written = self.receivers.iter().map(|one| one.written);
        written.min().unwrap_or(u64::MAX)
    }

    /// Notes what is well; what is not is an error.
    pub fn note(&mut self, happening: Happening) -> Result<()> {
        match happening {
            Happening::Interrupted => bail!("the sender was interrupted"),
            Happening::Reported(receiver, report) => {
                let noted = report.and_then(|report| self.note_report(receiver, report));
                noted.map_err(|error| self.fail(receiver, format!("{error:#}")))
            }
            // What it does after all is done is its own affair. One that has left
            // the stream may have others behind it that are not done, who go on.
            Happening::StreamEnded(End { node, .. }) if self.is_done(node) => Ok(()),
            Happening::ReportsEnded(receiver, _) if self.is_done(receiver) => Ok(()),
            Happening::StreamEnded(end) => Err(self.fail(end.node, what_happened(end).to_owned())),
            Happening::ReportsEnded(receiver, end) => {
                Err(self.fail(receiver, what_happened(end).to_owned()))
            }
        }
    }

    /// Notes who else has failed, when the transfer has been given up already.
    pub fn note_late(&mut self, happening: Happening) {
        match happening {
            Happening::Reported(receiver, Ok(Report::Failed(reason))) => {
                self.fail(receiver, reason);
            }
            Happening::StreamEnded(end) | Happening::ReportsEnded(_, end)
                if end.reason == EndReason::Died && !self.is_done(end.node) =>
            {
                self.fail(end.node, what_happened(end).to_owned());
            }
            // Receivers that have given up, as they were told; and a signal, which `Signals` keeps.
            _ => {}
        }
    }

    /// Who has failed, and why.
    pub fn failures(&self) -> Option<String> {
        let failures = self.receivers.iter().enumerate();
        let failures = failures.filter_map(|(at, one)| {
            let reason = one.failure.as_ref()?;
            Some(format!("{}: {reason}", node_name(at + 1)))
        });
        let failures: Vec<String> = failures.chain(self.lost.clone()).collect();
        (!failures.is_empty()).then(|| failures.join("\n"))
    }

    fn note_report(&mut self, receiver: usize, report: Report) -> Result<()> {
        let one = receiver
            .checked_sub(1)
            .and_then(|at| self.receivers.get_mut(at));
        let one = one.context("there is no such receiver")?;
        match report {
            Report::Ready {
                version,
                chunk_bytes,
            } => {
                ensure!(
                    version == VERSION,
                    "it speaks version {version}, the sender {VERSION}: run the same release everywhere"
                );
                let chunk_bytes = usize::try_from(chunk_bytes)?;
                ensure!(
                    chunk_bytes >= MIN_CHUNK_BYTES,
                    "it takes messages of {chunk_bytes} bytes: at least {MIN_CHUNK_BYTES} are needed"
                );
                one.chunk_bytes = Some(chunk_bytes);
            }
            Report::Written(messages) => one.written = one.written.max(messages),
            Report::Checked => one.has_checked = true,
            Report::Done => one.is_done = true,
            Report::Failed(reason) => bail!(reason),
        }
        Ok(())
    }

    fn is_done(&self, node: usize) -> bool {
        let one = node.checked_sub(1).and_then(|at| self.receivers.get(at));
        one.is_some_and(|one| one.is_done)
    }

    fn fail(&mut self, node: usize, reason: String) -> Error {
        let Some(at) = node.checked_sub(1) else {
            let lost = format!("a receiver says that the sender {reason}");
            return Error::msg(self.lost.get_or_insert(lost).clone());
        };
        let error = Error::msg(format!("{}: {reason}", node_name(node)));
        if let Some(one) = self.receivers.get_mut(at) {
            one.failure.get_or_insert(reason);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(crowd: &mut Crowd, receiver: usize, report: Report) -> Result<()> {
        crowd.note(Happening::Reported(receiver, Ok(report)))
    }

    fn ready(chunk_bytes: u64) -> Report {
        Report::Ready {
            version: VERSION,
            chunk_bytes,
        }
    }

    #[test]
    fn the_slowest_and_the_smallest_count() {
        let mut crowd = Crowd::new(2);
        reported(&mut crowd, 1, ready(65536)).unwrap();
        assert!(!crowd.are_ready());
        reported(&mut crowd, 2, ready(8192)).unwrap();
        assert!(crowd.are_ready());
        assert_eq!(
            (crowd.least_chunk(1 << 20), crowd.least_chunk(4096)),
            (8192, 4096)
        );
        reported(&mut crowd, 1, Report::Written(9)).unwrap();
        assert_eq!(crowd.written(), 0);
        reported(&mut crowd, 2, Report::Written(3)).unwrap();
        assert_eq!(crowd.written(), 3);
    }

    #[test]
    fn another_version_and_too_short_messages_are_failures() {
        let version = VERSION + 1;
        let chunk_bytes = 8192;
        let mut crowd = Crowd::new(1);
        assert!(reported(
            &mut crowd,
            1,
            Report::Ready {
                version,
                chunk_bytes
            }
        )
        .is_err());
        let mut crowd = Crowd::new(1);
        assert!(reported(&mut crowd, 1, ready(0)).is_err());
        assert!(crowd.failures().is_some());
    }

    #[test]
    fn that_a_receiver_has_lost_the_sender_is_a_failure_of_receivers() {
        let died = End {
            node: 0,
            reason: EndReason::Died,
        };
        let mut crowd = Crowd::new(2);
        let error = crowd.note(Happening::StreamEnded(died)).unwrap_err();
        let failures = crowd.failures().unwrap();
        assert_eq!(failures, "a receiver says that the sender has died");
        assert_eq!(error.to_string(), failures);
    }

    #[test]
    fn who_leaves_is_a_failure_only_before_it_is_done() {
        let left = |node| End {
            node,
            reason: EndReason::Left,
        };
        let mut crowd = Crowd::new(2);
        reported(&mut crowd, 1, Report::Done).unwrap();
        crowd.note(Happening::StreamEnded(left(1))).unwrap();
        crowd.note(Happening::ReportsEnded(1, left(1))).unwrap();
        assert!(crowd.note(Happening::ReportsEnded(2, left(2))).is_err());
        crowd.note_late(Happening::Reported(1, Ok(Report::failed("late"))));
        let failures = crowd.failures().unwrap();
        assert_eq!(failures, "receiver 1: late\nreceiver 2: has left");
    }
}
