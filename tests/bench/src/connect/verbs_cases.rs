// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases of user-space verbs, and the RC READ for reference.
//!
//! What `cold` means is in its own file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use weft_core::gid::Gid;
use weft_verbs::{Context, LocalGid, Op};

use super::cold::Cold;
use super::{choose, Named};
use crate::cli::{ExchangeKind, System};
use crate::nodes::{CLIENT, SERVER};
use crate::peer::Ready;
use crate::round_robin::{Case, Sample};
use crate::verbs::{Exchange, Link, Stack};

/// What all verbs clients share.
pub struct VerbsCases {
    context: Context,
    local: LocalGid,
    exchange: Exchange,
    cache: Cache,
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

impl VerbsCases {
    /// Opens the clients' device and settles how addresses are exchanged.
    pub fn open(peer: &Ready, exchange: Option<ExchangeKind>) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let exchange = match exchange {
            Some(kind) => Exchange::with(kind, peer),
            None => choose::faster(peer, local)?,
        };
        Ok(Self {
            context,
            local,
            exchange,
            cache: Cache::default(),
        })
    }

    /// The cases of these systems.
    pub fn cases(&self, systems: &[System]) -> Vec<Named<'_>> {
        let mut cases = Vec::new();
        let mut add = |system, case, exchange, slow, make| {
            if systems.contains(&system) {
                cases.push(Named {
                    system,
                    case,
                    exchange,
                    slow,
                    make,
                    calls: None,
                });
            }
        };
        let how = Some(self.exchange.name());
        add(
            System::Verbs,
            "cold",
            how,
            true,
            Box::new(|| Ok(Box::new(self.cold()))),
        );
        add(
            System::Verbs,
            "warm",
            how,
            true,
            Box::new(|| Ok(Box::new(self.warm()?))),
        );
        add(
            System::Verbs,
            "cached",
            None,
            false,
            Box::new(|| Ok(Box::new(self.cached()?))),
        );
        add(
            System::Ref,
            "read8",
            None,
            false,
            Box::new(|| Ok(Box::new(Read8(self.link()?)))),
        );
        cases
    }

    fn cold(&self) -> Cold {
        Cold {
            device: CLIENT.device(),
            local: self.local,
            exchange: self.exchange,
        }
    }

    fn warm(&self) -> Result<Warm> {
        let stack = match self.exchange {
            Exchange::Tcp(_) => Stack::on(&self.context)?,
            Exchange::RdmaCm(addr) => Stack::for_rdma_cm(addr)?,
        };
        Ok(Warm {
            stack,
            local: self.local,
            exchange: self.exchange,
        })
    }

    fn cached(&self) -> Result<Cached> {
        self.cache.put(SERVER.gid(), self.link()?);
        Ok(Cached {
            cache: self.cache.clone(),
        })
    }

    fn link(&self) -> Result<Link> {
        let Warm {
            stack,
            local,
            exchange,
        } = self.warm()?;
        Link::warm(stack, local, exchange)
    }
}

/// The sample of a connection that began at `start`: over when it is there, and
/// then its first WRITE.
fn first_use(start: Instant, link: &Link) -> Result<Sample> {
    let call = start.elapsed();
    link.do8(Op::Write)?;
    let first_write = start.elapsed();
    Ok(Sample {
        call,
        first_write: Some(first_write),
        ..Sample::default()
    })
}

/// Device, protection domain, memory and completion queue are there.
struct Warm {
    stack: Arc<Stack>,
    local: LocalGid,
    exchange: Exchange,
}

impl Case for Warm {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let link = Link::warm(self.stack.clone(), self.local, self.exchange)?;
        first_use(start, &link)
    }
}

/// The connection is there too, in a cache that the process's threads share.
struct Cached {
    cache: Cache,
}

impl Case for Cached {
    fn sample(&mut self) -> Result<Sample> {
        let peer = SERVER.gid();
        let start = Instant::now();
        let link = self
            .cache
            .take(peer)
            .context("the cache has fewer connections than there are clients")?;
        let sample = first_use(start, &link)?;
        self.cache.put(peer, link);
        Ok(sample)
    }
}

/// One 8-byte READ.
struct Read8(Link);

impl Case for Read8 {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.0.do8(Op::Read)?;
        let call: Duration = start.elapsed();
        Ok(Sample {
            call,
            ..Sample::default()
        })
    }
}
