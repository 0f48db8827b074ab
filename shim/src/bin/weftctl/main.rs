// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weftctl`: shows and configures Weft on this host.
//!
//! Exit status: 0 done, 1 failed, 2 wrong usage, 3 the module is not loaded.

mod report;

use clap::{Parser, Subcommand};
use std::io::{self, Write as _};
use std::net::{SocketAddr, SocketAddrV4};
use std::process::ExitCode;
use weft_core::meta::DEFAULT_PORT;
use weft_shim::{Device, Error, Gid, Transport};

/// Exit status when the module is not loaded.
const EXIT_NOT_LOADED: u8 = 3;

/// Shows and configures Weft on this host.
#[derive(Parser)]
#[command(version)]
#[command(after_help = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 weft.ko is not loaded.")]
struct Args {
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    json: bool,
    /// Speak through the node with this index instead of the first.
    #[arg(short = 'd', long, value_name = "INDEX", global = true)]
    node: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show nodes, meta servers and the module's counters.
    Status,
    /// Show this host's nodes: the RDMA ports that Weft runs on.
    Nodes,
    /// Show or change the meta servers, where nodes publish how to reach them.
    #[command(subcommand)]
    Meta(Meta),
    /// Show what carries the requests to which nodes, or choose it.
    Pool(PoolArgs),
    /// Look a node up at the meta server, past the cache.
    Lookup {
        /// The node's GID, as an IPv4 or IPv6 address.
        #[arg(value_parser = parse_gid)]
        gid: Gid,
    },
}

#[derive(Subcommand)]
enum Meta {
    /// Show the meta servers.
    List,
    /// Add a meta server.
    Add {
        /// Its IPv4 address and rdma_cm port: 10.0.0.1:7471, or without the port.
        #[arg(value_name = "ADDR:PORT", value_parser = parse_server)]
        server: SocketAddr,
    },
    /// Remove a meta server.
    Remove {
        /// Its address, as for `add`.
        #[arg(value_name = "ADDR:PORT", value_parser = parse_server)]
        server: SocketAddr,
    },
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct PoolArgs {
    /// Show it again every second, until it is interrupted.
    #[arg(long)]
    watch: bool,
    #[command(subcommand)]
    command: Option<Pool>,
}

/// A transport, or the pool's choice.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Way {
    /// What the pool finds best.
    Auto,
    /// DC.
    Dc,
    /// An RC queue pair.
    Rc,
}

#[derive(Subcommand)]
enum Pool {
    /// Keep an RC queue pair to a node, for all VQPs to it.
    Pin {
        /// The node's GID, as an IPv4 or IPv6 address.
        #[arg(value_parser = parse_gid)]
        gid: Gid,
    },
    /// Send the requests to a node by DC or RC, whatever that costs, or as the pool finds
    /// best.
    Use {
        /// The node's GID, as for `pin`.
        #[arg(value_parser = parse_gid)]
        gid: Gid,
        /// What carries them.
        way: Way,
    },
    /// No longer keep one; one that is there is closed some seconds after its last use.
    Unpin {
        /// The node's GID, as for `pin`.
        #[arg(value_parser = parse_gid)]
        gid: Gid,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let shown = match &args.command {
        Command::Pool(PoolArgs { watch: true, .. }) => watch(&args),
        _ => show_once(&args),
    };
    let failure = match shown {
        Ok(()) => return ExitCode::SUCCESS,
        // Its reader has had enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS
        }
        Err(failure) => failure,
    };
    // If that cannot be written either, the status alone tells.
    let _ = writeln!(io::stderr(), "weftctl: {failure}");
    match failure {
        Failure::Device(Error::NotLoaded) => ExitCode::from(EXIT_NOT_LOADED),
        _ => ExitCode::FAILURE,
    }
}

/// Why nothing is shown any more.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Device(#[from] Error),
    #[error("the report cannot be written: {0}")]
    Output(#[from] io::Error),
}

fn show_once(args: &Args) -> Result<(), Failure> {
    let report = run(args)?;
    Ok(writeln!(io::stdout(), "{report}")?)
}

/// Shows the pool every second.
fn watch(args: &Args) -> Result<(), Failure> {
    // Clears the terminal.
    let before = if args.json { "" } else { "\x1b[2J\x1b[H" };
    loop {
        let report = run(args)?;
        writeln!(io::stdout(), "{before}{report}")?;
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Does what was asked for; answers with what to print.
fn run(args: &Args) -> Result<String, Error> {
    let device = match args.node {
        Some(node) => Device::open_on(node)?,
        None => Device::open()?,
    };
    let report = match &args.command {
        Command::Status => report::status(
            &device.nodes()?,
            &device.meta_servers()?,
            &report::read_counters(),
        ),
        Command::Nodes => report::nodes(&device.nodes()?),
        Command::Meta(Meta::List) => report::meta_servers(&device.meta_servers()?),
        Command::Meta(Meta::Add { server }) => {
            device.meta_add(*server)?;
            report::done("added", "meta server", server)
        }
        Command::Meta(Meta::Remove { server }) => {
            device.meta_remove(*server)?;
            report::done("removed", "meta server", server)
        }
        Command::Pool(args) => pool(&device, args)?,
        Command::Lookup { gid } => report::peer(&device.lookup(*gid)?),
    };
    Ok(if args.json {
        report.json()
    } else {
        report.text()
    })
}

/// Does what was asked for with the pool.
fn pool(device: &Device, args: &PoolArgs) -> Result<report::Report, Error> {
    Ok(match &args.command {
        None => report::pool(&device.pool_peers()?),
        Some(Pool::Pin { gid }) => {
            device.pool_pin(*gid)?;
            report::done("pinned", "node", gid)
        }
        Some(Pool::Unpin { gid }) => {
            device.pool_unpin(*gid)?;
            report::done("unpinned", "node", gid)
        }
        Some(Pool::Use { gid, way }) => {
            let (transport, chosen) = match way {
                Way::Auto => (None, "left to the pool"),
                Way::Dc => (Some(Transport::Dc), "sent by DC"),
                Way::Rc => (Some(Transport::Rc), "sent by RC"),
            };
            device.pool_use(*gid, transport)?;
            report::done(chosen, "requests to", gid)
        }
    })
}

fn parse_gid(text: &str) -> Result<Gid, String> {
    text.parse()
        .map_err(|error: weft_core::gid::BadGid| error.to_string())
}

/// The module takes IPv4 alone.
fn parse_server(text: &str) -> Result<SocketAddr, String> {
    text.parse::<SocketAddrV4>()
        .or_else(|_| text.parse().map(|ip| SocketAddrV4::new(ip, DEFAULT_PORT)))
        .map(SocketAddr::V4)
        .map_err(|_| "not a meta server's IPv4 address: write 10.0.0.1:7471 or 10.0.0.1".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_meta_server_is_an_address_and_a_port_or_an_address() {
        for (text, expected) in [
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("10.0.0.1", "10.0.0.1:7471"),
        ] {
            assert_eq!(parse_server(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "host:80",
            "10.0.0.1:",
            "10.0.0.1:70000",
            "[10.0.0.1",
            "[fd00::1]:7471",
            "fd00::1",
        ] {
            assert!(parse_server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn options_are_taken_before_and_after_the_command() {
        for line in [
            "weftctl --json -d 2 meta list",
            "weftctl meta list --json --node 2",
        ] {
            let args = Args::try_parse_from(line.split(' ')).unwrap();
            assert!(args.json);
            assert_eq!(args.node, Some(2));
            assert!(matches!(args.command, Command::Meta(Meta::List)));
        }
    }

    #[test]
    fn a_gid_that_is_none_is_refused_with_an_example() {
        let Err(error) = Args::try_parse_from(["weftctl", "lookup", "nobody"]) else {
            panic!("nobody is not a GID");
        };
        assert!(error.to_string().contains("10.0.0.1"), "{error}");
    }
}
