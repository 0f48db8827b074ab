// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-probe`: does one thing to a meta server, as a node or an intruder
//! would, and says what came of it. For the scripts in `tests/vm`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{bail, ensure, Result};
use clap::{Parser, Subcommand};
use weft_core::gid::{BadGid, Gid};
use weft_core::meta::{Publication, Record};
use weft_testkit::meta_client::MetaClient;

/// Talks to a meta server.
#[derive(Parser)]
struct Args {
    /// The server.
    #[arg(long, default_value = "10.77.0.1:7471")]
    server: SocketAddr,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Publishes a record.
    Publish(Named),
    /// Publishes records of COUNT nodes, fd00::1 and so on.
    Fill { count: u32 },
    /// Withdraws a record.
    Withdraw(Named),
    /// Prints a record's incarnation, or "absent".
    Lookup {
        #[arg(value_parser = parse_gid)]
        gid: Gid,
    },
    /// Prints a record's DC target number, key, incarnation and UDP port: what any
    /// member of the network can know, and needs to send requests by hand.
    Target {
        #[arg(value_parser = parse_gid)]
        gid: Gid,
    },
    /// Sends COUNT bytes that mean nothing.
    Noise { count: usize },
    /// Succeeds if the table cannot be written.
    Intrude,
    /// Holds COUNT connections at once and looks one node up on each.
    Crowd { count: u32 },
}

/// A node in one of its lives.
#[derive(clap::Args)]
struct Named {
    #[arg(value_parser = parse_gid)]
    gid: Gid,
    incarnation: u32,
}

fn parse_gid(text: &str) -> Result<Gid, String> {
    text.parse().map_err(|error: BadGid| error.to_string())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-probe: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let mut client = MetaClient::connect(args.server)?;
    match args.action {
        Action::Publish(Named { gid, incarnation }) => {
            client.send(&Publication::Publish(gid, record(incarnation)))
        }
        Action::Fill { count } => {
            (1..=count).try_for_each(|n| client.send(&Publication::Publish(numbered(n), record(n))))
        }
        Action::Withdraw(Named { gid, incarnation }) => {
            client.send(&Publication::Withdraw(gid, incarnation))
        }
        Action::Lookup { gid } => {
            match client.look_up(gid)?.0 {
                Some(record) => println!("{}", record.incarnation),
                None => println!("absent"),
            }
            Ok(())
        }
        Action::Target { gid } => {
            let Some(record) = client.look_up(gid)?.0 else {
                bail!("{gid} is not in the table");
            };
            println!(
                "{} {} {} {}",
                record.dct_number, record.dct_key, record.incarnation, record.udp_port
            );
            Ok(())
        }
        Action::Noise { count } => client.send_bytes(&vec![0xa5; count]),
        Action::Intrude => match client.write_table() {
            Ok(()) => bail!("the table could be written"),
            Err(error) if error.to_string().ends_with("remote access error") => Ok(()),
            Err(error) => Err(error),
        },
        Action::Crowd { count } => crowd(args.server, count),
    }
}

fn crowd(server: SocketAddr, count: u32) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(MetaClient::connect(server)?);
    }
    for client in &mut clients {
        let (_, reads) = client.look_up(numbered(1))?;
        ensure!(reads >= 1, "a look-up took no READ");
    }
    Ok(())
}

fn record(incarnation: u32) -> Record {
    Record {
        dct_number: incarnation,
        dct_key: u64::from(incarnation) << 32,
        incarnation,
        udp_port: 1,
    }
}

fn numbered(n: u32) -> Gid {
    let mut gid = [0; 16];
    gid[0] = 0xfd;
    gid[12..].copy_from_slice(&n.to_be_bytes());
    Gid(gid)
}
