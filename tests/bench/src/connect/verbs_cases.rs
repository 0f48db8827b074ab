// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases of user-space verbs, and the RC READ for reference.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use weft_core::gid::Gid;
use weft_verbs::{Context, LocalGid, Op, Route};

use super::{choose, Cold, Named, Pace, Peers};
use crate::cli::{ConnectSystem, ExchangeKind};
use crate::newcomer::Task;
use crate::nodes::{Node, CLIENT};
use crate::peer::Ready;
use crate::readers::VerbsReader;
use crate::round_robin::{Case, MakeCase, Part, Parts, Sample};
use crate::turns::Turns;
use crate::verbs::{Exchange, Link, Stack, CM_PATIENCE, MAX_SEND_WR, REGION_BYTES};
use crate::wait::Wait;

/// What all verbs clients share.
pub struct VerbsCases<'a> {
    context: Context,
    local: LocalGid,
    peers: Vec<(Node, &'a Ready)>,
    /// The better exchange for a cold connection, and for a warm one.
    cold: ExchangeKind,
    warm: ExchangeKind,
}

/// Connected queue pairs, by peer.
#[derive(Clone, Default)]
struct Cache(Arc<Mutex<HashMap<Gid, Vec<Link>>>>);

impl Cache {
    fn take(&self, peer: Gid) -> Option<Link> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.get_mut(&peer)?.pop()
    }

    fn put(&self, peer: Gid, link: Link) {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.entry(peer).or_default().push(link);
    }
}

impl<'a> VerbsCases<'a> {
    /// Opens the clients' device and settles how addresses are exchanged.
    pub fn open(peers: &'a Peers, exchange: Option<ExchangeKind>) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let peers: Vec<_> = peers
            .iter()
            .map(|(node, peer)| (*node, &peer.ready))
            .collect();
        let (_, first) = *peers.first().context("there is no peer")?;
        let (cold, warm) = match exchange {
            Some(kind) => (kind, kind),
            None => (
                faster_cold(first, local)?,
                choose::faster("warm", first, |exchange| {
                    let stack = stack(&context, exchange, Wait::Poll)?;
                    let begin = Instant::now();
                    Link::warm(stack, local, exchange)?.do8(Op::Write)?;
                    Ok(begin.elapsed())
                })?,
            ),
        };
        Ok(Self {
            context,
            local,
            peers,
            cold,
            warm,
        })
    }

    /// All cases.
    pub fn cases(&self) -> Vec<Named<'_>> {
        let waits = Wait::OF_VERBS.into_iter();
        let each = waits.flat_map(|wait| self.that_wait(wait));
        let read8: MakeCase<'_> =
            Box::new(|| Ok(Box::new(VerbsReader::over(vec![self.any_link()?])?)));
        let read8 = Named {
            system: ConnectSystem::Ref,
            case: "read8",
            exchange: None,
            wait: Wait::Poll,
            pace: Pace::Fast,
            make: read8,
        };
        each.chain([read8]).collect()
    }

    /// Those in which clients wait for their WRITE in this way.
    fn that_wait(&self, wait: Wait) -> [Named<'_>; 3] {
        let named = |case, exchange: Option<ExchangeKind>, pace, make| Named {
            system: ConnectSystem::Verbs,
            case,
            exchange: exchange.map(ExchangeKind::name),
            wait,
            pace,
            make,
        };
        let cold: MakeCase<'_> = Box::new(move || {
            let exchanges = self.exchanges(self.cold);
            let tasks = exchanges.map(|exchange| Task::verbs(self.local, exchange, wait));
            Ok(Box::new(Cold::new(tasks.collect(), || Ok(()))))
        });
        let warm: MakeCase<'_> = Box::new(move || Ok(Box::new(self.warm(wait)?)));
        let cache = Cache::default();
        let cached: MakeCase<'_> = Box::new(move || Ok(Box::new(self.cached(wait, &cache)?)));
        [
            named("cold", Some(self.cold), Pace::Slow, cold),
            named("warm", Some(self.warm), Pace::Slow, warm),
            named("cached", None, Pace::Fast, cached),
        ]
    }

    fn exchanges(&self, kind: ExchangeKind) -> impl Iterator<Item = Exchange> + '_ {
        self.peers
            .iter()
            .map(move |(_, ready)| Exchange::with(kind, ready))
    }

    fn warm(&self, wait: Wait) -> Result<Warm> {
        let exchanges: Vec<_> = self.exchanges(self.warm).collect();
        let first = *exchanges.first().context("there is no peer")?;
        Ok(Warm {
            // All peers are reached by the same device.
            stack: stack(&self.context, first, wait)?,
            local: self.local,
            turns: Turns::in_turn(exchanges.len()),
            exchanges,
        })
    }

    /// Puts a connection to each peer into the cache. Each has a completion queue of its own: any
    /// client may take it, and of two that slept on one queue its event would wake one.
    fn cached(&self, wait: Wait, cache: &Cache) -> Result<Cached> {
        let peers: Vec<_> = self.peers.iter().map(|(node, _)| node.gid()).collect();
        for (&peer, exchange) in peers.iter().zip(self.exchanges(self.warm)) {
            let stack = stack(&self.context, exchange, wait)?;
            cache.put(peer, Link::warm(stack, self.local, exchange)?);
        }
        Ok(Cached {
            cache: cache.clone(),
            turns: Turns::in_turn(peers.len()),
            peers,
        })
    }

    /// A connection to one of the peers.
    fn any_link(&self) -> Result<Link> {
        let Warm {
            stack,
            local,
            exchanges,
            mut turns,
        } = self.warm(Wait::Poll)?;
        Link::warm(stack, local, exchanges[turns.turn()])
    }
}

/// The exchange of addresses that is faster for a process that has just started.
pub fn faster_cold(peer: &Ready, local: LocalGid) -> Result<ExchangeKind> {
    choose::faster("cold", peer, |exchange| {
        Ok(Task::verbs(local, exchange, Wait::Poll)
            .start()?
            .wait()?
            .own())
    })
}

/// What connections by an exchange are made from, on the clients' device.
fn stack(context: &Context, exchange: Exchange, wait: Wait) -> Result<Arc<Stack>> {
    let on = |context: &Context| Stack::waiting(wait, context, REGION_BYTES, MAX_SEND_WR);
    match exchange {
        Exchange::Tcp(_) => on(context),
        // The device by which rdma_cm reaches the peer, as librdmacm has it open.
        Exchange::RdmaCm(addr) => on(&Route::resolve(addr, CM_PATIENCE)?.context()?),
    }
}

/// The first WRITE of a connection; what came before took so long.
fn first_use(link: &Link, create: Option<Duration>, call: Duration) -> Result<Sample> {
    let start = Instant::now();
    link.do8(Op::Write)?;
    let first_write = start.elapsed();
    let total = create.unwrap_or_default() + call + first_write;
    let parts = Parts::default()
        .with(Part::FirstWrite, first_write)
        .with(Part::Total, total);
    Ok(Sample {
        call,
        parts: create.map_or(parts, |time| parts.with(Part::Create, time)),
        ..Sample::default()
    })
}

/// Device, protection domain, memory and completion queue are there.
struct Warm {
    stack: Arc<Stack>,
    local: LocalGid,
    exchanges: Vec<Exchange>,
    turns: Turns,
}

impl Case for Warm {
    fn sample(&mut self) -> Result<Sample> {
        let exchange = self.exchanges[self.turns.turn()];
        let (link, [create, connect]) = Link::timed(self.stack.clone(), self.local, exchange)?;
        first_use(&link, Some(create), connect)
    }
}

/// The connection is there too.
struct Cached {
    cache: Cache,
    peers: Vec<Gid>,
    turns: Turns,
}

impl Case for Cached {
    fn sample(&mut self) -> Result<Sample> {
        let peer = self.peers[self.turns.turn()];
        let start = Instant::now();
        let link = self
            .cache
            .take(peer)
            .context("the cache has fewer connections than there are clients")?;
        let sample = first_use(&link, None, start.elapsed())?;
        self.cache.put(peer, link);
        Ok(sample)
    }
}
