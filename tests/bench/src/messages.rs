// SPDX-License-Identifier: MIT OR Apache-2.0

//! A station: a child process on another node that receives messages, posts its
//! buffers again, and answers each message if it is told to.
//!
//! One thread serves all clients, whichever the system. While messages come it
//! looks for more; when none has come for a while it sleeps until one does.

pub mod client;
mod verbs;
mod weft;

use std::net::SocketAddr;
use std::thread;

use anyhow::{ensure, Context as _, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::child::{say_ready, wait_for_end, Helper};
use crate::cli::{System, Transport, MAX_CLIENTS};
use crate::nodes::{Node, CLIENT};
use crate::weft::Way;

/// What Weft's clients send to; stations beside the first have the next ones.
const WEFT_PORT: u32 = 7;
/// Where a verbs station listens.
const STATION_PORT: u16 = 18_520;
/// Bytes of receive buffers that a station has at most.
const MAX_BUFFER_BYTES: u64 = 256 << 20;
/// Receive buffers that a station has at most: what Weft takes.
const MAX_BUFFERS: u32 = weft_shim::MAX_RECV_WR;
/// Buffers for each message that may be on the way, so that none is late while
/// the thread sleeps.
const SPARE: u32 = 8;
const MIN_BUFFERS: u32 = 16;

/// What a station does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reply {
    /// Nothing.
    None,
    /// Sends as many bytes back, from registered memory.
    Echo,
    /// The same, after copying the message out of its receive buffer.
    CopyEcho,
}

impl Reply {
    fn answers(self) -> bool {
        self != Self::None
    }

    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Echo => "echo",
            Self::CopyEcho => "copy-echo",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct StationArgs {
    /// The node to be on.
    #[arg(long)]
    pub node: u16,
    /// Whose messages.
    #[arg(long, value_enum)]
    pub system: System,
    /// What Weft's messages to the clients go by.
    #[arg(long, value_enum)]
    pub transport: Transport,
    /// Which of several stations on the node.
    #[arg(long)]
    pub index: u16,
    /// What to do with them.
    #[arg(long, value_enum)]
    pub reply: Reply,
    /// Bytes of a receive buffer.
    #[arg(long)]
    pub bytes: u32,
    /// Receive buffers.
    #[arg(long)]
    pub buffers: u32,
    /// Clients that will come.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: u16,
    /// How long to look for messages before sleeping, in microseconds.
    #[arg(long)]
    pub spin_us: u64,
}

impl StationArgs {
    fn weft_port(&self) -> u32 {
        WEFT_PORT + u32::from(self.index)
    }
}

/// Where a station is to be found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    pub rdma_cm: SocketAddr,
}

/// A running station. Dropping it ends it.
pub struct Station {
    _helper: Helper,
    pub node: Node,
    /// What messages of Weft are sent to.
    pub port: u32,
    pub rdma_cm: SocketAddr,
}

impl Station {
    /// Starts one.
    pub fn start(args: &StationArgs) -> Result<Self> {
        let words = [
            ("--node", args.node.to_string()),
            ("--system", args.system.name().to_owned()),
            ("--transport", args.transport.name().to_owned()),
            ("--index", args.index.to_string()),
            ("--reply", args.reply.name().to_owned()),
            ("--bytes", args.bytes.to_string()),
            ("--buffers", args.buffers.to_string()),
            ("--clients", args.clients.to_string()),
            ("--spin-us", args.spin_us.to_string()),
        ];
        let words = words.into_iter().flat_map(|(k, v)| [k.to_owned(), v]);
        let all: Vec<_> = ["station".to_owned()].into_iter().chain(words).collect();
        let (helper, ready) = Helper::start::<Ready>(&all)?;
        Ok(Self {
            _helper: helper,
            node: Node(args.node),
            port: args.weft_port(),
            rdma_cm: ready.rdma_cm,
        })
    }
}

/// Receive buffers for so many messages of `bytes` on the way; `None` if they
/// would be too many.
pub fn buffers_for(outstanding: u32, bytes: u32) -> Option<u32> {
    let fit = MAX_BUFFER_BYTES / u64::from(bytes.max(1));
    let most = u32::try_from(fit).unwrap_or(u32::MAX).min(MAX_BUFFERS);
    let wanted = outstanding.saturating_mul(SPARE).max(MIN_BUFFERS).min(most);
    (wanted / 2 >= outstanding).then_some(wanted)
}

/// Is a station.
pub fn serve(args: &StationArgs) -> Result<()> {
    ensure!(args.buffers > 0 && args.bytes > 0, "a station has buffers");
    let node = Node(args.node);
    node.enter()?;
    let rdma_cm = node.port(STATION_PORT + args.index);
    let args = args.clone();
    // Each end's pool decides by itself.
    let way = || Way::force(node, CLIENT, args.transport);
    let _way = (args.system == System::Weft).then(way).transpose()?;
    match args.system {
        System::Verbs => {
            let mut station = verbs::Station::listen(rdma_cm, args)?;
            thread::spawn(move || complain(station.serve()));
        }
        System::Weft => {
            let mut station = weft::Station::bind(node, args)?;
            thread::spawn(move || complain(station.serve()));
        }
    }
    say_ready(&Ready { rdma_cm })?;
    wait_for_end()
}

fn complain(served: Result<()>) {
    if let Err(error) = served.context("messages are received no longer") {
        eprintln!("weft-bench: station: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_buffers_to_spare_or_none() {
        assert_eq!(buffers_for(1, 8), Some(MIN_BUFFERS));
        assert_eq!(buffers_for(32, 4 << 20), Some(64));
        assert_eq!(buffers_for(64, 4 << 20), None);
        assert_eq!(buffers_for(MAX_BUFFERS, 8), None);
        assert_eq!(buffers_for(MAX_BUFFERS / 8, 8), Some(MAX_BUFFERS));
    }
}
