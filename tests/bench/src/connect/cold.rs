// SPDX-License-Identifier: MIT OR Apache-2.0

//! The case `cold` of verbs: what a worker that has just started pays.
//!
//! A process can only be cold once: the first `ibv_get_device_list` loads the
//! configuration and the drivers. So each sample has a process of its own, which
//! measures itself from there, and starting it is left out. The GID's index is
//! known beforehand, as configuration would have it; that favours verbs.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use clap::Args;
use weft_core::gid::Gid;
use weft_verbs::{LocalGid, Op};

use crate::cli::ExchangeKind;
use crate::round_robin::{Case, Sample};
use crate::verbs::{Exchange, Link};

/// What the process is told.
#[derive(Args)]
pub struct ColdArgs {
    #[arg(long)]
    device: String,
    #[arg(long)]
    gid: std::net::Ipv6Addr,
    #[arg(long)]
    gid_index: u8,
    #[arg(long)]
    port: u8,
    #[arg(long, value_enum)]
    exchange: ExchangeKind,
    #[arg(long)]
    peer: SocketAddr,
}

/// One cold connection after the other, each in a new process.
pub struct Cold {
    pub device: String,
    pub local: LocalGid,
    pub exchange: Exchange,
}

impl Case for Cold {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let (kind, peer) = match self.exchange {
            Exchange::Tcp(addr) => ("tcp", addr),
            Exchange::RdmaCm(addr) => ("rdma-cm", addr),
        };
        let program = std::env::current_exe().context("this program's own file")?;
        let output = Command::new(program)
            .args(["cold", "--device", &self.device, "--exchange", kind])
            .args(["--gid", &self.local.gid.to_string()])
            .args(["--gid-index", &self.local.index.to_string()])
            .args(["--port", &self.local.port.to_string()])
            .args(["--peer", &peer.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .context("starting a process for a cold connection")?;
        if !output.status.success() {
            bail!("a cold connection failed: {}", output.status);
        }
        let (call, first_write) = parse(&String::from_utf8_lossy(&output.stdout))?;
        Ok(Sample {
            call,
            first_write: Some(first_write),
            outside: start.elapsed().saturating_sub(first_write),
            ..Sample::default()
        })
    }
}

fn parse(text: &str) -> Result<(Duration, Duration)> {
    let mut times = text.split_whitespace().map(str::parse::<u64>);
    match (times.next(), times.next()) {
        (Some(Ok(call)), Some(Ok(first))) => {
            Ok((Duration::from_nanos(call), Duration::from_nanos(first)))
        }
        _ => bail!("a cold connection answered '{}'", text.trim()),
    }
}

/// The process of one sample: connects, WRITEs, and prints both times in
/// nanoseconds.
pub fn connect_once(args: &ColdArgs) -> Result<()> {
    let local = LocalGid {
        gid: Gid(args.gid.octets()),
        index: args.gid_index,
        port: args.port,
    };
    let exchange = match args.exchange {
        ExchangeKind::Tcp => Exchange::Tcp(args.peer),
        ExchangeKind::RdmaCm => Exchange::RdmaCm(args.peer),
    };
    let start = Instant::now();
    let link = Link::cold(&args.device, local, exchange)?;
    let call = start.elapsed();
    link.do8(Op::Write)?;
    let first_write = start.elapsed();
    println!("{} {}", call.as_nanos(), first_write.as_nanos());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_process_is_two_numbers() {
        let (call, first) = parse("1000 2500\n").unwrap();
        assert_eq!(call, Duration::from_micros(1));
        assert_eq!(first, Duration::from_nanos(2500));
        assert!(parse("").is_err());
        assert!(parse("12 weft").is_err());
    }
}
