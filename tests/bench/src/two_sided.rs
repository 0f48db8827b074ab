// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench two-sided` (krcore §5.2, figures 9b and 11): a client sends a
//! message and waits for an answer as long, which one thread on another node
//! sends.
//!
//! Weft brings messages of any length straight into the receive buffer
//! (`zero_copy`). Beside it is what a receiver costs that takes each message out
//! of its receive buffer first, as KRCore without its zero-copy protocol does.
//! Weft's messages go by SoftDc's packets: over UDP, as to any peer, or to one that is
//! reached by RC over an RC queue pair (`rc`; `rc_packets_per_echo` says whether they did).
//! Both systems use one connection in both directions, and request a completion of
//! few messages only. Verbs' server either looks for messages without sleeping while they come
//! (`poll`), or sleeps as Weft's does (`event`); so do its clients (`client_wait`).

mod result;

use std::time::Duration;

use anyhow::{ensure, Result};
use clap::Args;

use crate::cli::{Common, System, Transport, MAX_CLIENTS};
use crate::counters::counter;
use crate::lent::Pool;
use crate::messages::client::{VerbsEcho, WeftEcho};
use crate::messages::{buffers_for, Reply, Station, StationArgs};
use crate::nodes::{Node, CLIENT, DC_SERVER, SERVER};
use crate::pace::Paced;
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, MakeCase};
use crate::wait::Wait;
use crate::weft::Way;
use result::{Results, Row};

/// Sizes, in bytes, unless told.
const SIZES: [u32; 8] = [8, 64, 512, 1024, 4096, 16384, 32768, 65536];
const QUICK_SIZES: [u32; 4] = [8, 1024, 16384, 65536];
/// Numbers of clients, unless told.
const CLIENTS: [u16; 2] = [1, 8];
/// Echoes of a lane, all clients together, unless told.
const SAMPLES: u32 = 4000;
const QUICK_SAMPLES: u32 = 400;
/// Blocks that they are cut into.
const ROUNDS: u32 = 10;
/// How long a waiting VQP looks before it sleeps, and a server that sleeps.
const EVENT_SPIN_US: u64 = 20;
/// How long a server that polls goes on when no message comes.
const POLL_SPIN_US: u64 = 3_000;
/// Between blocks, so that a server that polls is asleep when others are measured.
const REST: Duration = Duration::from_millis(5);

#[derive(Args)]
pub struct TwoSidedArgs {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, each 1 to 65536.
    /// [default: 8,64,512,1024,4096,16384,32768,65536; quick: 8,1024,16384,65536]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub sizes: Vec<u32>,
    /// Numbers of client threads, each 1 to 64. [default: 1,8]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: Vec<u16>,
    /// Echoes of each lane and case. [default: 4000; quick: 400]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub samples: Option<u32>,
}

/// A system, what its messages go by, how its clients wait, and how its server receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub system: System,
    pub transport: Transport,
    pub zero_copy: bool,
    /// How a client waits for its answer.
    pub client: Wait,
    /// Whether the server looks for messages without sleeping.
    pub polls: bool,
}

impl Lane {
    const fn verbs(client: Wait, polls: bool) -> Self {
        Self {
            system: System::Verbs,
            transport: Transport::Rc,
            zero_copy: true,
            client,
            polls,
        }
    }

    const fn weft(transport: Transport, zero_copy: bool) -> Self {
        Self {
            system: System::Weft,
            transport,
            zero_copy,
            client: Wait::Call,
            polls: false,
        }
    }

    /// Where its server is: each node is reached in one way.
    fn server(self) -> Node {
        match self.transport {
            Transport::Rc => SERVER,
            Transport::Dc => DC_SERVER,
        }
    }
}

const LANES: [Lane; 7] = [
    Lane::verbs(Wait::Poll, true),
    Lane::verbs(Wait::Poll, false),
    Lane::verbs(Wait::Event, true),
    Lane::verbs(Wait::Event, false),
    Lane::weft(Transport::Rc, true),
    Lane::weft(Transport::Dc, true),
    Lane::weft(Transport::Dc, false),
];

/// Connected clients of a lane.
enum Clients {
    Verbs(Pool<VerbsEcho>),
    Weft(Pool<WeftEcho>),
}

/// Runs the benchmark.
pub fn run(args: &TwoSidedArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let quick = args.common.quick;
    let sizes = match (&args.sizes[..], quick) {
        ([], true) => &QUICK_SIZES[..],
        ([], false) => &SIZES,
        (list, _) => list,
    };
    let clients = match &args.clients[..] {
        [] => &CLIENTS[..],
        list => list,
    };
    let samples = args
        .samples
        .unwrap_or(if quick { QUICK_SAMPLES } else { SAMPLES });
    let _by_rc = Way::force(CLIENT, SERVER, Transport::Rc)?;
    let _by_dc = Way::force(CLIENT, DC_SERVER, Transport::Dc)?;
    let mut results = Results::default();
    for &count in clients {
        for &bytes in sizes {
            for row in measure(bytes, count, samples)? {
                json.write(&row)?;
                results.add(row);
            }
        }
    }
    results.print();
    Ok(())
}

/// Measures all lanes, interleaved. A station is there for as long as its lane has
/// its turn: all have the same port.
fn measure(bytes: u32, clients: u16, samples: u32) -> Result<Vec<Row>> {
    let buffers = buffers_for(u32::from(clients), bytes);
    ensure!(buffers.is_some(), "so many clients leave no buffers");
    let mut path_mtu = None;
    let mut lanes = Vec::new();
    for (index, lane) in (0..).zip(LANES) {
        let station = Station::start(&StationArgs {
            node: lane.server().0,
            system: lane.system,
            transport: lane.transport,
            index,
            reply: match lane.zero_copy {
                true => Reply::Echo,
                false => Reply::CopyEcho,
            },
            bytes,
            buffers: buffers.unwrap_or(1),
            clients,
            spin_us: match lane.polls {
                true => POLL_SPIN_US,
                false => EVENT_SPIN_US,
            },
        })?;
        let connected = connect(lane, &station, bytes, clients)?;
        if let Clients::Verbs(pool) = &connected {
            path_mtu = Some(pool.take()?.path_mtu()?.bytes());
        }
        lanes.push((connected, station));
    }
    let makers: Vec<MakeCase<'_>> = lanes.iter().map(|(lane, _)| maker(lane)).collect();
    let warm_up = Amount::of(5);
    let mut cases: Vec<_> = makers.into_iter().map(|make| (make, warm_up)).collect();
    round_robin::run("two-sided", &cases, clients)?;
    let of_each = samples.div_ceil(clients.into()).max(1);
    let rounds = of_each.min(ROUNDS);
    let amount = Amount {
        block: of_each.div_ceil(rounds),
        rounds,
        rest: REST,
    };
    cases.iter_mut().for_each(|(_, own)| *own = amount);
    // Nobody else sends any: counted for all lanes they are those of the one by RC.
    let before = counter("rc_packets")?;
    let outcomes = round_robin::run("two-sided", &cases, clients)?;
    let rc_packets = counter("rc_packets")? - before;
    let rows = LANES.iter().zip(&outcomes);
    let mut rows: Vec<_> = rows
        .map(|(lane, outcome)| Row::new(*lane, bytes, (clients, path_mtu), outcome))
        .collect();
    for row in &mut rows {
        row.note_rc_packets(rc_packets);
    }
    Row::compare(&mut rows);
    Ok(rows)
}

fn connect(lane: Lane, station: &Station, bytes: u32, clients: u16) -> Result<Clients> {
    Ok(match lane.system {
        System::Weft => Clients::Weft(Pool::fill(clients, |_| {
            WeftEcho::connect(station, bytes, !lane.zero_copy)
        })?),
        System::Verbs => Clients::Verbs(Pool::fill(clients, |_| {
            VerbsEcho::connect(station, bytes, lane.client)
        })?),
    })
}

fn maker(clients: &Clients) -> MakeCase<'_> {
    match clients {
        Clients::Verbs(pool) => {
            Box::new(move || Ok(Box::new(Paced::new(pool.take()?, Duration::ZERO))))
        }
        Clients::Weft(pool) => {
            Box::new(move || Ok(Box::new(Paced::new(pool.take()?, Duration::ZERO))))
        }
    }
}
