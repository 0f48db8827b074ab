// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-probe`: does one thing to a meta server, as a node or an intruder
//! would, and says what came of it. For the scripts in `tests/vm`.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

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
    /// Connects from any port, as any user can, also where a node would connect from a
    /// reserved one.
    #[arg(long)]
    any_port: bool,
    /// Repeats another token than that of the server's answer, as a forger would who has
    /// not received it.
    #[arg(long)]
    no_token: bool,
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
    /// Sends TIMES messages of COUNT bytes that mean nothing.
    Noise {
        count: usize,
        #[arg(default_value_t = 1)]
        times: u32,
    },
    /// Succeeds if the table cannot be written.
    Intrude,
    /// Holds COUNT connections at once, looks one node up on each, and keeps them for a
    /// while.
    Crowd {
        count: u32,
        /// Where they come from, in turn.
        #[arg(long, default_value = "0.0.0.0")]
        source: Vec<IpAddr>,
        /// From reserved ports, as a node's.
        #[arg(long, conflicts_with = "source")]
        reserved_ports: bool,
        #[arg(long, default_value_t = 0)]
        hold_s: u64,
    },
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
    match &args.action {
        Action::Publish(Named { gid, incarnation }) => tell(
            args,
            &mut as_node(args)?,
            &Publication::Publish(*gid, record(*incarnation)),
        ),
        Action::Fill { count } => {
            let mut client = as_node(args)?;
            let mut publish = |n| client.send(&Publication::Publish(numbered(n), record(n)));
            (1..=*count).try_for_each(&mut publish)
        }
        Action::Withdraw(Named { gid, incarnation }) => tell(
            args,
            &mut as_node(args)?,
            &Publication::Withdraw(*gid, *incarnation),
        ),
        Action::Lookup { gid } => {
            match MetaClient::connect(args.server)?.look_up(*gid)?.0 {
                Some(record) => println!("{}", record.incarnation),
                None => println!("absent"),
            }
            Ok(())
        }
        Action::Target { gid } => {
            let Some(record) = MetaClient::connect(args.server)?.look_up(*gid)?.0 else {
                bail!("{gid} is not in the table");
            };
            println!(
                "{} {} {} {}",
                record.dct_number, record.dct_key, record.incarnation, record.udp_port
            );
            Ok(())
        }
        Action::Noise { count, times } => {
            let mut client = as_node(args)?;
            (0..*times).try_for_each(|_| client.send_bytes(&vec![0xa5; *count]))
        }
        Action::Intrude => match as_node(args)?.write_table() {
            Ok(()) => bail!("the table could be written"),
            Err(error) if error.to_string().ends_with("remote access error") => Ok(()),
            Err(error) => Err(error),
        },
        Action::Crowd {
            count,
            source,
            reserved_ports,
            hold_s,
        } => {
            let connect = |source: &IpAddr| match reserved_ports {
                true => MetaClient::connect_as_node(args.server),
                false => MetaClient::connect_from(*source, args.server),
            };
            let sources = source.iter().cycle().zip(0..*count);
            let clients = sources.map(|(source, _)| connect(source));
            crowd(
                clients.collect::<Result<_>>()?,
                Duration::from_secs(*hold_s),
            )
        }
    }
}

fn as_node(args: &Args) -> Result<MetaClient> {
    match args.any_port {
        true => MetaClient::connect(args.server),
        false => MetaClient::connect_as_node(args.server),
    }
}

fn tell(args: &Args, client: &mut MetaClient, publication: &Publication) -> Result<()> {
    match args.no_token {
        true => client.send_with_token(publication, !client.welcome().token),
        false => client.send(publication),
    }
}

fn crowd(mut clients: Vec<MetaClient>, hold: Duration) -> Result<()> {
    for client in &mut clients {
        let (_, reads) = client.look_up(numbered(1))?;
        ensure!(reads >= 1, "a look-up took no READ");
    }
    std::thread::sleep(hold);
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
