// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ping-pongs, as perftest's `ib_write_lat` and `ib_send_lat` define them: a
//! round trip of two WRITEs or two messages of the same length, one of each end.
//!
//! With WRITEs each end waits for its own to be done, then looks at the last byte of
//! where the other's arrives. The far end is a child process, the [`bouncer`].
//! Messages go to a station that answers, as in `two-sided`.

mod bouncer;
mod ends;

use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

pub use bouncer::{bounce, BouncerArgs};

use self::bouncer::Bouncer;
use self::ends::{VerbsHalf, WeftHalf};
use super::args::{Contender, DatapathArgs, Operation};
use super::clients::Lane;
use super::plan::Work;
use crate::cli::{System, Transport};
use crate::lent::Pool;
use crate::messages::client::{VerbsEcho, WeftEcho};
use crate::messages::{buffers_for, Reply, Station, StationArgs};
use crate::nodes::{Node, CLIENT, DC_SERVER, SERVER};
use crate::pace::{Paced, Step};
use crate::round_robin::MakeCase;
use crate::wait::Wait;

/// How long the far end looks for bytes or messages without sleeping, since there
/// were some.
const SPIN: Duration = Duration::from_millis(3);
/// How long an end waits for the other's bytes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Looks for them before the first one at the clock.
const LOOKS: u32 = 1 << 16;

/// One end of a ping-pong of WRITEs.
trait End: Send {
    /// The last byte of where the other end's WRITEs arrive.
    fn arrived(&self) -> Result<u8>;

    /// Puts a mark into the last byte of what it WRITEs, WRITEs it, and waits until
    /// that is done.
    fn write(&mut self, mark: u8) -> Result<()>;
}

/// The near end: it begins each round trip.
struct Pinger<E> {
    end: E,
    mark: u8,
}

impl<E: End> Step for Pinger<E> {
    fn step(&mut self) -> Result<()> {
        self.mark = self.mark.wrapping_add(1);
        self.end.write(self.mark)?;
        for _ in 0..LOOKS {
            if self.end.arrived()? == self.mark {
                return Ok(());
            }
        }
        self.wait_by_the_clock()
    }
}

impl<E: End> Pinger<E> {
    /// Waits on, with a look at the clock each time.
    fn wait_by_the_clock(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.end.arrived()? != self.mark {
            ensure!(Instant::now() < deadline, "the other end did not answer");
        }
        Ok(())
    }
}

/// A connected near end, which is dropped before the far end.
struct Table<N, F> {
    near: N,
    _far: F,
}

impl<N: Step, F> Step for Table<N, F> {
    fn step(&mut self) -> Result<()> {
        self.near.step()
    }
}

/// A lane's one client.
type Client = Box<dyn Step + Send>;

/// All lanes, connected.
pub struct PingPong(Vec<(Lane, Pool<Client>)>);

impl PingPong {
    /// Connects those that are wanted. `rc_mtu` is that of the module's RC queue
    /// pairs.
    pub fn connect(args: &DatapathArgs, rc_mtu: u32, work: Work) -> Result<Self> {
        let mut clients = Vec::new();
        if args.systems.contains(&Contender::Verbs) {
            clients.push(match work.op {
                Operation::WritePp => verbs_write(work.bytes)?,
                _ => verbs_send(work)?,
            });
        }
        let weft = args.systems.contains(&Contender::Weft);
        for &transport in args.transports.iter().filter(|_| weft) {
            let lane = |wait| Lane::weft(transport, wait, rc_mtu);
            match (work.op, transport) {
                (Operation::WritePp, _) => {
                    clients.push((lane(Wait::Poll), weft_write(transport, work.bytes)?));
                }
                (_, Transport::Dc) => clients.push((lane(Wait::Call), weft_send(work)?)),
                // Messages go over DC always.
                (_, Transport::Rc) => {}
            }
        }
        let lanes = clients
            .into_iter()
            .map(|(lane, client)| Ok((lane, one(client)?)));
        Ok(Self(lanes.collect::<Result<_>>()?))
    }

    /// What each lane does.
    pub fn cases(&self) -> Vec<(Lane, MakeCase<'_>)> {
        let case = |pool| -> MakeCase<'_> {
            let pool: &Pool<Client> = pool;
            Box::new(move || Ok(Box::new(Paced::ping_pong(pool.take()?))))
        };
        self.0
            .iter()
            .map(|(lane, pool)| (*lane, case(pool)))
            .collect()
    }
}

fn verbs_write(bytes: u32) -> Result<(Lane, Client)> {
    let half = VerbsHalf::new(CLIENT, bytes)?;
    let (far, ready) = Bouncer::of_verbs(SERVER, bytes, &half)?;
    let end = half.connect(&ready.endpoint()?, ready.region)?;
    let lane = Lane::verbs(Wait::Poll, end.path_mtu()?);
    Ok((lane, table(Pinger { end, mark: 0 }, far)))
}

fn weft_write(transport: Transport, bytes: u32) -> Result<Client> {
    let node = match transport {
        Transport::Rc => SERVER,
        Transport::Dc => DC_SERVER,
    };
    let half = WeftHalf::new(CLIENT, bytes)?;
    let (far, ready) = Bouncer::of_weft(node, transport, bytes, half.region())?;
    let end = half.connect(node, ready.region, transport)?;
    Ok(table(Pinger { end, mark: 0 }, far))
}

fn verbs_send(work: Work) -> Result<(Lane, Client)> {
    let far = station(System::Verbs, SERVER, work)?;
    let client = VerbsEcho::connect(&far, work.bytes, Wait::Poll)?;
    let lane = Lane::verbs(Wait::Poll, client.path_mtu()?.bytes());
    Ok((lane, table(client, far)))
}

fn weft_send(work: Work) -> Result<Client> {
    let far = station(System::Weft, DC_SERVER, work)?;
    let client = WeftEcho::connect(&far, work.bytes, false)?;
    Ok(table(client, far))
}

fn table(near: impl Step + Send + 'static, far: impl Send + 'static) -> Client {
    Box::new(Table { near, _far: far })
}

fn station(system: System, node: Node, work: Work) -> Result<Station> {
    Station::start(&StationArgs {
        node: node.0,
        system,
        transport: Transport::Dc,
        index: 0,
        reply: Reply::Echo,
        bytes: work.bytes,
        buffers: buffers_for(work.clients.into(), work.bytes).unwrap_or(1),
        clients: work.clients,
        spin_us: u64::try_from(SPIN.as_micros()).unwrap_or(u64::MAX),
    })
}

fn one<T>(client: T) -> Result<Pool<T>> {
    let mut client = Some(client);
    Pool::fill(1, |_| match client.take() {
        Some(client) => Ok(client),
        None => bail!("there is one client"),
    })
}
