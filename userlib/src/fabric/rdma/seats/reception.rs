// SPDX-License-Identifier: MIT OR Apache-2.0

//! The thread that receives newcomers, one at a time, and cuts off who is down so that there
//! are seats for them. A newcomer that hangs delays others for a second each time. At a newcomer
//! it also calls those who are there, until that one is in: each once, until it has answered or
//! the line has ended, because a process that is stopped keeps each line.

use super::super::frame::{Frame, Purpose};
use super::super::inner::{Call, Inner, Peer};
use super::super::line::Line;
use super::super::meeting::{hear_ready, STRANGER_PATIENCE};
use super::super::speech::{hear_frame, hear_rest, Failure, Node, RETRY};
use super::super::Linker;
use super::lines::Lines;
use crate::fabric::polling::wait_or_stop;
use crate::fabric::thread::Thread;
use crate::fabric::FabricError;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// What a node receives newcomers with.
pub(in crate::fabric::rdma) struct Reception<L: Linker> {
    pub(super) node: Node,
    pub(super) linker: L,
    listener: TcpListener,
    pub(super) inner: Arc<Inner<L::Transport>>,
    /// For whom comes next to each seat: making one takes longer than a newcomer wants to wait.
    offers: Vec<Option<L::Offer>>,
    /// The nodes that this newcomer has called, with what it has offered them.
    pub(super) called: Lines<L::Offer>,
}

impl<L: Linker> Reception<L> {
    pub(in crate::fabric::rdma) fn new(
        node: Node,
        linker: L,
        listener: TcpListener,
        inner: Arc<Inner<L::Transport>>,
    ) -> Self {
        Self {
            offers: (0..node.place.seats()).map(|_| None).collect(),
            called: Lines::new(),
            node,
            linker,
            listener,
            inner,
        }
    }

    /// Starts the thread.
    pub(in crate::fabric::rdma) fn start(mut self) -> Result<Thread, FabricError> {
        Thread::start("weft-reception", move |stop| self.run(stop))
    }

    fn run(&mut self, stop: &EventFd) {
        loop {
            // Before anything is looked at: what is written later wakes again.
            let _ = self.inner.reception.read();
            self.make_room();
            match self.inner.is_settled() {
                true => self.called.clear(),
                false => self.call_others(),
            }
            if self.wait(stop) {
                return;
            }
            self.accept();
        }
    }

    /// Receives one that has called, if somebody has. Others are there in the next round, so
    /// that however many call, the thread sees when it is to stop and who has gone.
    fn accept(&mut self) {
        let received = match self.listener.accept() {
            Ok((line, _)) => self.receive(line),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "a newcomer cannot be heard");
                // The call stays there: without descriptors, as an example, for some time.
                std::thread::sleep(RETRY);
                Ok(())
            }
        };
        if let Err(failure) = received {
            tracing::debug!(?failure, "a newcomer was not received");
        }
    }

    /// Cuts off who is down, and makes offers for vacant seats.
    fn make_room(&mut self) {
        self.inner.bury();
        self.inner.severed();
        if !self.inner.is_settled() {
            return;
        }
        for seat in self.inner.vacant().iter() {
            if self.offers[seat].is_none() {
                match self.linker.offer() {
                    Ok(offer) => self.offers[seat] = Some(offer),
                    Err(error) => tracing::warn!(%error, seat, "nobody can be taken in there"),
                }
            }
        }
    }

    /// Waits until somebody has called, answered or gone. Answers whether it is the end.
    fn wait(&self, stop: &EventFd) -> bool {
        let timeout = match self.inner.is_settled() {
            true => PollTimeout::NONE,
            false => PollTimeout::try_from(RETRY).unwrap_or(PollTimeout::ZERO),
        };
        let of = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let own = [
            of(stop.as_fd()),
            of(self.inner.reception.as_fd()),
            of(self.listener.as_fd()),
        ];
        let mut fds: Vec<PollFd<'_>> = own.into_iter().chain(self.called.fds()).collect();
        wait_or_stop(&mut fds, timeout, stop)
    }

    /// Answers who has called, and links to it if it is a newcomer.
    fn receive(&mut self, mut line: TcpStream) -> Result<(), Failure> {
        if !self.inner.is_settled() {
            // The other newcomer will try again.
            return Ok(());
        }
        let quiet = line.set_nonblocking(false);
        quiet.map_err(|error| Failure::Other(FabricError::io("fcntl", &error)))?;
        let end = Instant::now() + STRANGER_PATIENCE;
        let frame = hear_frame(&mut line, end)?;
        match frame.purpose {
            Purpose::Question => {
                let answer = self.node.frame(Purpose::Vacant, self.inner.vacant().bits());
                Node::say(&mut line, answer)
            }
            Purpose::Call => self.answer(line, frame, end),
            _ => Err(Failure::Gone),
        }
    }

    fn answer(&mut self, mut line: TcpStream, frame: Frame, end: Instant) -> Result<(), Failure> {
        let seats = self.node.place.seats() as u64;
        self.node.judge(&frame, seats).map_err(Failure::Other)?;
        let seat = frame.rank;
        let call = hear_rest(&mut line, &frame, end)?;
        // Somebody may have gone meanwhile.
        self.make_room();
        if !self.inner.vacant().contains(seat) {
            // Who has it will be seen to have gone, and then the newcomer has called again.
            return Err(Failure::Late);
        }
        // Given away by this, whatever comes of it.
        let offer = self.offers[seat].take().ok_or(Failure::Late)?;
        let answer = self.node.frame(Purpose::Answer, seats);
        let card = self.linker.card(&offer);
        self.node.introduce(&mut line, answer, &card)?;
        if call.hello != self.node.hello {
            // It sees in the answer what is different.
            return Ok(());
        }
        self.check(&frame).map_err(Failure::Other)?;
        let link = self.linker.link(seat, offer, &call.card);
        let link = link.map_err(Failure::Other)?;
        hear_ready(seat, &mut line, end)?;
        let line = Line::new(line).map_err(Failure::Other)?;
        let incarnation = frame.incarnation;
        let peer = Arc::new(Peer::new(incarnation, frame.region_bytes, line));
        tracing::debug!(seat, incarnation, "has called");
        self.inner.note_call(seat, Call { peer, link });
        Ok(())
    }

    /// Whether a node's region fits those of others.
    pub(super) fn check(&self, frame: &Frame) -> Result<(), FabricError> {
        if frame.region_bytes == self.node.region_bytes {
            return Ok(());
        }
        let what = "its region has another length, which a fabric with seats cannot have";
        let peer = frame.rank;
        Err(FabricError::Protocol { peer, what })
    }
}
