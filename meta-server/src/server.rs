// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event loop: one thread that sleeps until a node or a signal comes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tracing::{debug, info, warn};
use weft_core::gid::Gid;
use weft_core::meta::Welcome;
use weft_verbs::{
    CmEvent, ConnectRequest, ConnectionId, EventChannel, Listener, Pages, ServerConnection, Wc,
};

use crate::device::Device;
use crate::directory::{Authority, Directory, Outcome};

/// Nodes that may be connected at once. More are refused.
const MAX_CONNECTIONS: usize = 16_384;
/// Connection requests that may wait to be accepted.
const BACKLOG: u16 = 1024;
/// Completions taken at a time.
const BATCH: usize = 64;

/// A queue pair: its device's position, and its number there.
type QpKey = (usize, u32);

/// The server's state.
pub struct Server<'a> {
    signals: SignalFd,
    table: Arc<Pages>,
    directory: Directory<'a>,
    connections: HashMap<ConnectionId, (ServerConnection, QpKey)>,
    by_qp: HashMap<QpKey, ConnectionId>,
    /// The connection that published a node's record last.
    publishers: HashMap<Gid, ConnectionId>,
    /// Addresses that may change everybody's record.
    registrars: Vec<IpAddr>,
    devices: Vec<Device>,
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
            connections: HashMap::new(),
            by_qp: HashMap::new(),
            publishers: HashMap::new(),
            registrars: registrars.to_vec(),
            devices: Vec::new(),
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
            self.handle_messages();
            while let Some(event) = self.channel.next()? {
                self.handle_event(event)?;
            }
        }
    }

    /// Waits until a descriptor has something to say.
    fn sleep(&self) -> Result<()> {
        let mut fds = vec![self.signals.as_fd(), self.channel.as_fd()];
        fds.extend(self.devices.iter().map(|device| device.cq.as_fd()));
        let mut fds: Vec<_> = fds
            .into_iter()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait for events"),
        }
    }

    /// Answers signals. `true`: one of them asks to stop.
    fn handle_signals(&self) -> Result<bool> {
        let report = u32::try_from(Signal::SIGUSR1 as i32)?;
        while let Some(signal) = self.signals.read_signal().context("cannot read signals")? {
            if signal.ssi_signo != report {
                return Ok(true);
            }
            println!(
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
                    Err(error) => warn!(?peer, "connection refused: {error:#}"),
                }
            }
            CmEvent::Lost(id) if id == self.listener.id() => {
                bail!("the RDMA device of the listen address was removed")
            }
            CmEvent::Lost(id) => self.disconnect(id),
            CmEvent::Established(_) | CmEvent::Other => {}
        }
        Ok(())
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        if self.connections.len() >= MAX_CONNECTIONS {
            bail!("{MAX_CONNECTIONS} nodes are connected, which is the limit");
        }
        let at = self.device_of(&request)?;
        let device = &self.devices[at];
        let welcome = Welcome {
            table_addr: self.table.addr(),
            table_rkey: device.table_rkey(),
            geometry: self.directory.geometry(),
        };
        let connection = device.accept(request, &welcome.encode())?;
        let key = (at, connection.qp_num());
        self.by_qp.insert(key, connection.id());
        self.connections.insert(connection.id(), (connection, key));
        Ok(())
    }

    /// Position of the device by which a request came, opened if it is the first.
    fn device_of(&mut self, request: &ConnectRequest) -> Result<usize> {
        if let Some(at) = self
            .devices
            .iter()
            .position(|device| device.is_for(request))
        {
            return Ok(at);
        }
        let device = Device::open(&request.context()?, &self.table)?;
        info!(device = device.name(), "serving");
        self.devices.push(device);
        Ok(self.devices.len() - 1)
    }

    /// Forgets a connection; its node's record stays.
    fn disconnect(&mut self, id: ConnectionId) {
        // Messages first: once the queue pair is gone, so are its completions,
        // and with them the receives that they hold.
        self.handle_messages();
        if let Some((connection, key)) = self.connections.remove(&id) {
            self.by_qp.remove(&key);
            self.publishers.retain(|_, publisher| *publisher != id);
            debug!(peer = ?connection.peer(), "disconnected");
        }
    }

    /// Applies all messages that have arrived.
    fn handle_messages(&mut self) {
        let mut superseded = Vec::new();
        for at in 0..self.devices.len() {
            if let Err(error) = self.drain(at, &mut superseded) {
                warn!(device = self.devices[at].name(), "cannot receive: {error}");
            }
        }
        for id in superseded {
            self.disconnect(id);
        }
    }

    fn drain(&mut self, at: usize, superseded: &mut Vec<ConnectionId>) -> weft_verbs::Result<()> {
        // Armed before the queue is polled dry: what comes later makes an event.
        self.devices[at].cq.take_events()?;
        self.devices[at].cq.arm()?;
        let mut room = [Wc::default(); BATCH];
        loop {
            let cq = self.devices[at].cq.cq().clone();
            let completions = cq.poll(&mut room)?;
            if completions.is_empty() {
                return Ok(());
            }
            for wc in completions {
                superseded.extend(self.handle_completion(at, wc)?);
            }
        }
    }

    /// Applies one message. Answers with the connection that it shows to be dead.
    fn handle_completion(
        &mut self,
        at: usize,
        wc: &Wc,
    ) -> weft_verbs::Result<Option<ConnectionId>> {
        let device = &self.devices[at];
        let sender = self.by_qp.get(&(at, wc.qp_num())).copied();
        if let Some(failure) = wc.failure() {
            device.give_back(wc.wr_id())?;
            warn!(peer = ?self.peer_of(sender), "a receive failed: {failure}");
            return Ok(sender);
        }
        let message = device.take_message(wc.wr_id(), wc.byte_len())?;
        Ok(sender.and_then(|sender| self.apply(sender, &message)))
    }

    /// Applies a message. A node has one connection at a time, so whoever
    /// published the same record before is answered with: its end was not seen.
    fn apply(&mut self, sender: ConnectionId, message: &[u8]) -> Option<ConnectionId> {
        let peer = self.peer_of(Some(sender));
        let authority = Authority::of(peer, &self.registrars);
        let outcome = self.directory.apply(message, authority);
        let records = self.directory.len();
        match outcome {
            Outcome::Published(gid, record) => {
                let incarnation = record.incarnation;
                info!(%gid, incarnation, records, "published");
                let before = self.publishers.insert(gid, sender);
                return before.filter(|&before| before != sender);
            }
            Outcome::Withdrawn(gid) => info!(%gid, records, "withdrawn"),
            Outcome::Stale(gid) => info!(%gid, "withdrawal of another incarnation ignored"),
            Outcome::Full(gid) => warn!(
                %gid, records,
                "THE TABLE IS FULL, record refused: restart with a larger --capacity"
            ),
            Outcome::Foreign(gid) => warn!(
                %gid, ?peer,
                "a message about another node's record was ignored"
            ),
            Outcome::Malformed => warn!(
                ?peer,
                bytes = message.len(),
                "a malformed message was ignored"
            ),
        }
        None
    }

    fn peer_of(&self, id: Option<ConnectionId>) -> Option<IpAddr> {
        self.connections.get(&id?)?.0.peer()
    }
}
