// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer's side of verbs connections.
//!
//! TCP connections are served by threads that were made beforehand, so that no
//! client waits for one. Each makes its queue pair as soon as a client calls,
//! while that is still busy with its own.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use weft_verbs::{
    Access, CmEvent, ConnectRequest, ConnectionId, Context, Cq, Endpoint, EventChannel, InitQp,
    Listener, LocalGid, Mr, Pages, Pd, QpConfig, ServerConnection, Srq,
};

use super::Region;
use crate::cli::MAX_CLIENTS;
use crate::nodes::Node;

/// Each client may hold a connection and make another.
const THREADS: u16 = 2 * MAX_CLIENTS + 8;
/// perftest's port.
const RDMA_CM_PORT: u16 = 18_515;
/// Connection requests that may wait.
const BACKLOG: u16 = 256;

/// Accepts verbs connections, in the background, for as long as the process
/// lives.
pub struct Service {
    pub tcp: SocketAddr,
    pub rdma_cm: SocketAddr,
}

/// What the peer's queue pairs are made from.
struct Stack {
    pd: Pd,
    mr: Mr,
    cq: Cq,
    /// READs of a client that it answers at once: as many as the device does.
    max_reads: u8,
}

impl Stack {
    fn on(context: &Context, pages: &Arc<Pages>) -> Result<Self> {
        let pd = Pd::new(context)?;
        Ok(Self {
            mr: Mr::register(&pd, pages, Access::AllAndAtomic)?,
            cq: Cq::new(context, 16)?,
            max_reads: context.max_reads()?,
            pd,
        })
    }

    /// What clients have to know.
    fn region(&self) -> [u8; Region::BYTES] {
        let (addr, rkey) = (self.mr.pages().addr(), self.mr.rkey());
        Region { addr, rkey }.encode()
    }
}

impl Service {
    /// Starts it on a node, in whose network namespace the process is,
    /// with this much memory.
    pub fn start(node: Node, bytes: usize) -> Result<Self> {
        let pages = Pages::zeroed(bytes)?;
        let context = node.open()?;
        let local = node.local_gid(&context)?;
        let stack = Arc::new(Stack::on(&context, &pages)?);

        let listener = TcpListener::bind(node.port(0))
            .with_context(|| format!("cannot listen on {}", node.ip()))?;
        let tcp = listener.local_addr()?;
        let tcp_listener = Arc::new(listener);
        for _ in 0..THREADS {
            let (listener, stack) = (tcp_listener.clone(), stack.clone());
            thread::spawn(move || serve_tcp(&listener, &stack, local));
        }

        let rdma_cm = node.port(RDMA_CM_PORT);
        let channel = EventChannel::new()?;
        let listener = Listener::bind(&channel, rdma_cm, BACKLOG)?;
        let mut clients = CmClients::new(channel, listener, pages);
        thread::spawn(move || {
            if let Err(error) = clients.serve() {
                eprintln!("weft-bench: peer: rdma_cm is served no longer: {error:#}");
            }
        });
        Ok(Self { tcp, rdma_cm })
    }
}

fn serve_tcp(listener: &TcpListener, stack: &Stack, local: LocalGid) {
    loop {
        let served = listener
            .accept()
            .map_err(anyhow::Error::from)
            .and_then(|(client, _)| serve_client(client, stack, local));
        if let Err(error) = served {
            eprintln!("weft-bench: peer: a connection failed: {error:#}");
        }
    }
}

fn serve_client(mut client: TcpStream, stack: &Stack, local: LocalGid) -> Result<()> {
    client.set_nodelay(true)?;
    let config = QpConfig {
        max_send_wr: 1,
        remote_atomic: true,
        max_reads: Some(stack.max_reads),
        ..QpConfig::default()
    };
    let qp = InitQp::with_config(&stack.pd, &stack.cq, local, &config)?;
    let mut theirs = [0; Endpoint::BYTES];
    client.read_exact(&mut theirs)?;
    let mine = qp.endpoint();
    let _connected = qp.connect(&Endpoint::decode(&theirs)?)?;
    client.write_all(&[&mine.encode()[..], &stack.region()].concat())?;
    // The client closes when it is done with the queue pair.
    client.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The clients that came by rdma_cm.
struct CmClients {
    connections: HashMap<ConnectionId, ServerConnection>,
    /// On the device by which they come, made when the first one does.
    stack: Option<(Stack, Srq)>,
    pages: Arc<Pages>,
    _listener: Listener,
    channel: EventChannel,
}

impl CmClients {
    fn new(channel: EventChannel, listener: Listener, pages: Arc<Pages>) -> Self {
        Self {
            connections: HashMap::new(),
            stack: None,
            pages,
            _listener: listener,
            channel,
        }
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            let mut fds = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::NONE)?;
            while let Some(event) = self.channel.next()? {
                match event {
                    CmEvent::ConnectRequest(request) => self.accept(request)?,
                    CmEvent::Lost(id) => drop(self.connections.remove(&id)),
                    CmEvent::Established(_) | CmEvent::Other => {}
                }
            }
        }
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        let (stack, srq) = match &mut self.stack {
            Some(made) => made,
            none => {
                let stack = Stack::on(&request.context()?, &self.pages)?;
                let srq = Srq::new(&stack.pd, 1, 8)?;
                none.insert((stack, srq))
            }
        };
        match request.accept(&stack.pd, &stack.cq, srq, &stack.region()) {
            Ok(connection) => drop(self.connections.insert(connection.id(), connection)),
            // The client may have given up meanwhile.
            Err(error) => eprintln!("weft-bench: peer: cannot accept: {error}"),
        }
        Ok(())
    }
}
