// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event loop: one thread that sleeps until a node or a signal comes.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{stdout, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tracing::{debug, info, warn};
use weft_core::gid::Gid;
use weft_core::meta::Welcome;
use weft_verbs::{CmEvent, ConnectRequest, ConnectionId, EventChannel, Listener, Pages, Wc};

use crate::connections::{Connected, Connections};
use crate::device::Device;
use crate::directory::{Authority, Directory, Outcome};
use crate::log::{LogLimit, Subject};
use crate::peers::Class;

/// Messages of a connection that may be refused before it is ended.
const MAX_REFUSED: u32 = 4;
/// Connection requests that may wait to be accepted.
const BACKLOG: u16 = 1024;
/// Completions taken at a time.
const BATCH: usize = 64;

/// The kernel's random numbers.
const RANDOM: &str = "/dev/urandom";

/// The server's state.
pub struct Server<'a> {
    signals: SignalFd,
    table: Arc<Pages>,
    directory: Directory<'a>,
    connections: Connections,
    /// Connections that messages have ended, until [`Self::handle_messages`] forgets them.
    over: HashSet<ConnectionId>,
    log: LogLimit,
    /// Where tokens are from.
    random: File,
    /// Addresses that may change everybody's record.
    registrars: Vec<IpAddr>,
    /// By their numbers, which are given once.
    devices: BTreeMap<usize, Device>,
    next_device: usize,
    listener: Listener,
    channel: EventChannel,
}

impl<'a> Server<'a> {
    /// Starts to listen; `directory` lies in `table`, and `signals` are blocked. Nodes
    /// change their own records, `registrars` everybody's.
    pub fn listen(
        addr: SocketAddr,
        registrars: &[IpAddr],
        table: &Arc<Pages>,
        directory: Directory<'a>,
        signals: SigSet,
    ) -> Result<Self> {
        let channel = EventChannel::new()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self {
            signals: SignalFd::with_flags(&signals, flags).context("cannot watch signals")?,
            table: table.clone(),
            directory,
            connections: Connections::new(),
            over: HashSet::new(),
            log: LogLimit::default(),
            random: File::open(RANDOM).context(RANDOM)?,
            registrars: registrars.to_vec(),
            devices: BTreeMap::new(),
            next_device: 0,
            listener: Listener::bind(&channel, addr, BACKLOG)?,
            channel,
        })
    }

    /// Serves until a signal asks to stop.
    pub fn run(&mut self) -> Result<()> {
        loop {
            self.sleep()?;
            if self.handle_signals()? {
                info!(records = self.directory.len(), "stopping");
                return Ok(());
            }
            self.handle_time(Instant::now());
            self.handle_messages();
            self.handle_events()?;
        }
    }

    /// Handles events, no more than there can be requests for connections: messages and
    /// signals have their turns too, however fast events come.
    fn handle_events(&mut self) -> Result<()> {
        for _ in 0..BACKLOG {
            let Some(event) = self.channel.next()? else {
                break;
            };
            self.handle_event(event)?;
        }
        Ok(())
    }

    /// Waits until a descriptor has something to say, or something is due.
    fn sleep(&self) -> Result<()> {
        let mut fds = vec![self.signals.as_fd(), self.channel.as_fd()];
        let intakes = self.devices.values().flat_map(Device::intakes);
        fds.extend(intakes.map(|intake| intake.cq.as_fd()));
        let mut fds: Vec<_> = fds
            .into_iter()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, self.patience()) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait for events"),
        }
    }

    /// How long until something is due.
    fn patience(&self) -> PollTimeout {
        if !self.over.is_empty() {
            return PollTimeout::ZERO;
        }
        let due = self.log.due().into_iter().chain(self.connections.due());
        due.min().map_or(PollTimeout::NONE, |due| {
            // A millisecond more, since the rest of one is cut off.
            let wait = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
        })
    }

    /// Does what is due.
    fn handle_time(&mut self, now: Instant) {
        for (subject, count) in self.log.suppressed(now) {
            warn!(?subject, count, "more of the same was not logged");
        }
        for id in self.connections.overdue(now) {
            self.disconnect(id);
        }
    }

    /// Answers signals. `true`: one of them asks to stop.
    fn handle_signals(&self) -> Result<bool> {
        let report = u32::try_from(Signal::SIGUSR1 as i32)?;
        while let Some(signal) = self.signals.read_signal().context("cannot read signals")? {
            if signal.ssi_signo != report {
                return Ok(true);
            }
            // A full disk or a closed pipe is no reason to end.
            let _ = writeln!(
                stdout(),
                "weft-meta records={} connections={}",
                self.directory.len(),
                self.connections.len()
            );
        }
        Ok(false)
    }

    fn handle_event(&mut self, event: CmEvent) -> Result<()> {
        match event {
            CmEvent::ConnectRequest(request) => {
                let peer = request.peer();
                match self.accept(request) {
                    Ok(()) => debug!(?peer, connections = self.connections.len(), "connected"),
                    Err(error) if self.logs(Subject::Connections) => {
                        warn!(?peer, "connection refused: {error:#}");
                    }
                    Err(_) => {}
                }
            }
            CmEvent::Lost(id) if id == self.listener.id() => {
                bail!("the RDMA device of the listen address was removed")
            }
            CmEvent::Lost(id) => self.disconnect(id),
            CmEvent::Established(id) => self.connections.complete(id),
            CmEvent::Other => {}
        }
        Ok(())
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        let peer = request.peer().context("it has no IP address")?;
        // Both are what the request says. That the path leads to the address is what
        // makes the token, and all packets, go there.
        if request.path_gid() != Some(peer.ip().into()) {
            bail!("its path does not lead to its address");
        }
        if let Some(id) = self.connections.admit(peer)? {
            self.displace(id);
        }
        let token = self.token()?;
        let at = self.device_of(&request)?;
        let device = &self.devices[&at];
        let welcome = Welcome {
            table_addr: self.table.addr(),
            table_rkey: device.table_rkey(),
            geometry: self.directory.geometry(),
            token,
        };
        let connection = device.accept(request, Class::of(peer), &welcome.encode())?;
        let key = (at, connection.qp_num());
        self.connections.insert(Connected {
            connection,
            key,
            peer,
            accepted: Instant::now(),
            token,
            refused: 0,
        });
        Ok(())
    }

    /// What nobody guesses.
    fn token(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.random.read_exact(&mut bytes).context(RANDOM)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Whether there may be a line about what a peer has done.
    fn logs(&mut self, subject: Subject) -> bool {
        self.log.admits(subject, Instant::now())
    }

    /// The number of the device by which a request came, opened if it is the first.
    fn device_of(&mut self, request: &ConnectRequest) -> Result<usize> {
        let mut all = self.devices.iter();
        if let Some((at, _)) = all.find(|(_, device)| device.is_for(request)) {
            return Ok(*at);
        }
        let device = Device::open(&request.context()?, &self.table)?;
        info!(device = device.name(), "serving");
        let at = self.next_device;
        self.next_device += 1;
        self.devices.insert(at, device);
        Ok(at)
    }

    /// Ends a connection to make room for another.
    fn displace(&mut self, id: ConnectionId) {
        if self.connections.is_complete(id) && self.logs(Subject::Connections) {
            let peer = self.connections.get_mut(id).map(|displaced| displaced.peer);
            warn!(
                ?peer,
                "at a limit of connections, the oldest was ended for a new one"
            );
        }
        self.disconnect(id);
    }

    /// Ends a connection; its node's record stays.
    fn disconnect(&mut self, id: ConnectionId) {
        // Messages first: once the connection is forgotten, they are nobody's.
        self.take_messages();
        self.end([id]);
    }

    /// Ends connections, the messages of which were taken.
    fn end(&mut self, ids: impl IntoIterator<Item = ConnectionId>) {
        let ids = ids.into_iter();
        let forgotten: Vec<_> = ids.filter_map(|id| self.forget(id)).collect();
        if !forgotten.is_empty() {
            // Once the queue pairs are gone, so are their completions, and with them the
            // receives that messages hold which came meanwhile. Connections that end by these
            // messages wait for the next turn of `run`, so that signals and events are looked
            // at however fast they come.
            self.take_messages();
        }
    }

    /// Takes a connection out of all tables. Its queue pair receives nothing any more, and is
    /// there until what this answers is dropped.
    fn forget(&mut self, id: ConnectionId) -> Option<Connected> {
        self.over.remove(&id);
        let forgotten = self.connections.remove(id)?;
        // It fails if the device has gone, where there is nothing to stop.
        let _ = forgotten.connection.stop();
        debug!(peer = %forgotten.peer, "disconnected");
        Some(forgotten)
    }

    /// Applies all messages that have arrived, and ends the connections that are over.
    fn handle_messages(&mut self) {
        self.take_messages();
        let over = std::mem::take(&mut self.over);
        self.end(over);
    }

    /// Applies all messages that have arrived.
    fn take_messages(&mut self) {
        let all: Vec<_> = self.devices.keys().copied().collect();
        for at in all {
            let drained = [Class::Node, Class::Reader].map(|class| self.drain(at, class));
            if let Some(error) = drained.into_iter().find_map(Result::err) {
                self.handle_failure(at, &error);
            }
        }
    }

    /// A device does not give its messages. One that was removed never will again, and its
    /// descriptors would never be quiet: it goes, with its connections.
    fn handle_failure(&mut self, at: usize, error: &weft_verbs::Error) {
        let name = self.devices[&at].name();
        if self.logs(Subject::Devices) {
            warn!(device = name, "cannot receive: {error}");
        }
        if error.errno() != Some(Errno::EIO as i32) {
            return;
        }
        for id in self.connections.on_device(at) {
            self.forget(id);
        }
        self.devices.remove(&at);
        info!(device = name, "gone");
    }

    fn drain(&mut self, at: usize, class: Class) -> weft_verbs::Result<()> {
        let intake = self.devices[&at].intake(class);
        // Armed before the queue is polled: what comes later makes an event. No more is
        // taken than the queue held, so that nobody who keeps sending has all the turns.
        intake.cq.take_events()?;
        intake.cq.arm()?;
        let (cq, receives) = (intake.cq.cq().clone(), intake.receives);
        let mut room = [Wc::default(); BATCH];
        let mut taken = 0;
        while taken < receives as usize {
            let completions = cq.poll(&mut room)?;
            if completions.is_empty() {
                return Ok(());
            }
            taken += completions.len();
            for wc in completions {
                let over = self.handle_completion(at, class, wc)?;
                self.over.extend(over);
            }
        }
        Ok(())
    }

    /// Applies one message. Answers with the connections that are over.
    fn handle_completion(
        &mut self,
        at: usize,
        class: Class,
        wc: &Wc,
    ) -> weft_verbs::Result<Vec<ConnectionId>> {
        let sender = self.connections.by_qp((at, wc.qp_num()));
        let sender = sender.map(|connected| connected.connection.id());
        if let Some(failure) = wc.failure() {
            self.devices[&at].intake(class).give_back(wc.wr_id())?;
            if self.logs(Subject::Messages) {
                let peer = sender.and_then(|id| Some(self.connections.get_mut(id)?.peer));
                warn!(?peer, "a receive failed: {failure}");
            }
            return Ok(Vec::from_iter(sender));
        }
        let intake = self.devices[&at].intake(class);
        let message = intake.take_message(wc.wr_id(), wc.byte_len())?;
        Ok(sender.map_or_else(Vec::new, |id| self.apply(id, &message)))
    }

    /// Applies a message. Answers with the connections that are over: those that the
    /// sender's replaces, or the sender's.
    fn apply(&mut self, sender: ConnectionId, message: &[u8]) -> Vec<ConnectionId> {
        let Some(connected) = self.connections.get_mut(sender) else {
            return Vec::new();
        };
        if connected.refused >= MAX_REFUSED {
            return vec![sender];
        }
        let peer = connected.peer;
        let authority = Authority::of(peer, &self.registrars);
        let outcome = self.directory.apply(message, connected.token, authority);
        if outcome.is_refusal() {
            connected.refused += 1;
        }
        let is_over = connected.refused >= MAX_REFUSED;
        if self.logs(outcome.subject()) {
            self.tell(outcome, peer);
        }
        match outcome {
            Outcome::Published(gid, _) if gid == Gid::from(peer.ip()) => {
                self.connections.published(peer, sender)
            }
            _ => Vec::from_iter(is_over.then_some(sender)),
        }
    }

    fn tell(&self, outcome: Outcome, peer: SocketAddr) {
        let records = self.directory.len();
        match outcome {
            Outcome::Published(gid, record) => {
                let incarnation = record.incarnation;
                info!(%gid, incarnation, records, "published");
            }
            Outcome::Withdrawn(gid) => info!(%gid, records, "withdrawn"),
            Outcome::Stale(gid) => info!(%gid, "withdrawal of another incarnation ignored"),
            Outcome::Full(gid) => warn!(
                %gid, records,
                "THE TABLE IS FULL, record refused: restart with a larger --capacity"
            ),
            Outcome::Foreign(gid) if Class::of(peer) == Class::Reader => warn!(
                %gid, %peer,
                "a message about a node's record from an unreserved port was ignored"
            ),
            Outcome::Foreign(gid) => warn!(
                %gid, %peer,
                "a message about another node's record was ignored"
            ),
            Outcome::Forged => warn!(%peer, "a message without the connection's token was ignored"),
            Outcome::Malformed => warn!(%peer, "a malformed message was ignored"),
        }
    }
}
