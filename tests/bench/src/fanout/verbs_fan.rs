// SPDX-License-Identifier: MIT OR Apache-2.0

//! Batches by verbs.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use weft_verbs::{Batch, Op, Wc, WorkRequest};

use super::Shape;
use crate::cli::ExchangeKind;
use crate::nodes::{Node, CLIENT};
use crate::peer::Peer;
use crate::round_robin::{Case, Sample};
use crate::verbs::{Exchange, Link, Stack, REGION_BYTES};

/// Queue pairs that complete to one queue.
pub struct VerbsFan {
    links: Vec<(Link, WorkRequest)>,
    /// All of a batch to one peer.
    list: Option<Batch>,
    stack: Arc<Stack>,
    /// Room for the completions of a batch to all of them.
    room: Vec<Wc>,
}

impl VerbsFan {
    /// Connects to the targets, and WRITEs to each.
    pub fn connect(shape: Shape, peers: &[(Node, Peer)]) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let max_send_wr = u32::try_from(shape.batch)?;
        let stack = Stack::waiting(shape.wait, &context, REGION_BYTES, max_send_wr)?;
        let connect = |(_, peer): &(Node, Peer)| -> Result<_> {
            let exchange = Exchange::with(ExchangeKind::Tcp, &peer.ready);
            let link = Link::warm(stack.clone(), local, exchange)?;
            let request = link.request(Op::Write, shape.bytes, 0);
            Ok((link, request))
        };
        let peers = peers.iter().take(shape.nodes).cycle().take(shape.targets);
        let links = peers.map(connect).collect::<Result<Vec<_>>>()?;
        let list = match &links[..] {
            [(link, _)] => {
                let one = || link.request(Op::Write, shape.bytes, 0);
                let all: Vec<_> = std::iter::repeat_with(one).take(shape.batch).collect();
                Some(Batch::new(&all))
            }
            _ => None,
        };
        let mut this = Self {
            room: vec![Wc::default(); links.len()],
            links,
            list,
            stack,
        };
        this.sample()?;
        Ok(this)
    }
}

impl Case for VerbsFan {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        match (&self.links[..], &self.list) {
            ([(link, _)], Some(list)) => link.run_batch(list)?,
            (links, _) => {
                for (link, request) in links {
                    link.post(request)?;
                }
                self.stack.take_all(&mut self.room)?;
            }
        }
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}
