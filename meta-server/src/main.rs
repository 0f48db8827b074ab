// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-meta`, the meta server (krcore §4.2).
//!
//! It keeps every node's record in a hash table that nodes READ past its CPU.
//! Nodes connect by rdma_cm, learn from the reply where the table is, and SEND
//! their own record, from a port below 1024. The process sleeps unless a node comes, goes or publishes.

mod connections;
mod device;
mod directory;
mod log;
mod peers;
mod server;

use std::io::{stderr, stdout, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use weft_core::kv::{Geometry, MAX_BUCKETS};
use weft_core::meta::DEFAULT_PORT;
use weft_verbs::Pages;

use directory::Directory;
use server::Server;

/// Serves node records to Weft nodes by one-sided READ.
///
/// Prints one line `weft-meta ready ...` on standard output when nodes may
/// connect. SIGUSR1 prints the number of records, SIGTERM and SIGINT end it.
/// RUST_LOG=debug says more.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Address and port to listen on, by rdma_cm.
    #[arg(long, value_name = "ADDR:PORT",
          default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)))]
    listen: SocketAddr,
    /// Node records that the table is made for.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    capacity: u32,
    /// Accept records of any node from this address too, instead of its own
    /// alone; may be repeated. Root on the host of that address can then lead every
    /// node's connections astray: it is for tools that fill the table.
    #[arg(long, value_name = "ADDR")]
    registrar: Vec<IpAddr>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(LevelFilter::INFO.into())
                .from_env_lossy(),
        )
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        // The library would tell stderr that stderr cannot be written, and panic.
        .log_internal_errors(false)
        .with_target(false)
        .init();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(stderr(), "weft-meta: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let signals = block_signals()?;
    let geometry = Geometry::for_capacity(args.capacity).with_context(|| {
        format!(
            "--capacity {}: a table has at most {MAX_BUCKETS} buckets; ask for fewer records",
            args.capacity
        )
    })?;
    let bytes = usize::try_from(geometry.bytes())?;
    let pages = Pages::zeroed(bytes)
        .with_context(|| format!("cannot allocate {bytes} bytes for the table"))?;
    let directory = Directory::new(pages.words(), geometry);
    let mut server = Server::listen(args.listen, &args.registrar, &pages, directory, signals)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    // A full disk or a closed pipe is no reason not to serve.
    let _ = writeln!(
        stdout(),
        "weft-meta ready listen={} capacity={} table_bytes={bytes} bytes_per_record={:.1}",
        args.listen,
        args.capacity,
        bytes as f64 / f64::from(args.capacity),
    );
    server.run()
}

/// The signals that the server answers, blocked so that a descriptor brings them.
fn block_signals() -> Result<SigSet> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1]);
    signals.thread_block().context("cannot block signals")?;
    Ok(signals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_has_its_defaults() {
        Args::command().debug_assert();
        let args = Args::parse_from(["weft-meta"]);
        assert_eq!(args.listen.to_string(), "0.0.0.0:7471");
        assert_eq!(args.capacity, 4096);
        assert!(args.registrar.is_empty());
    }

    #[test]
    fn bad_arguments_are_refused() {
        for bad in [
            ["--capacity", "0"],
            ["--capacity", "many"],
            ["--listen", "host"],
            ["--registrar", "host"],
        ] {
            assert!(Args::try_parse_from(["weft-meta", bad[0], bad[1]]).is_err());
        }
    }
}
