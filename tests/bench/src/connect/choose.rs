// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which exchange of addresses is faster here, so that verbs gets the better.

use std::time::Instant;

use anyhow::Result;
use weft_verbs::LocalGid;

use crate::cli::ExchangeKind;
use crate::nodes::CLIENT;
use crate::peer::Ready;
use crate::stats::Times;
use crate::verbs::{Exchange, Link};

/// Cold connections that each kind is judged by.
const TRIALS: u32 = 15;

/// The exchange whose cold connections take less at p50, tried in turn.
pub fn faster(peer: &Ready, local: LocalGid) -> Result<Exchange> {
    let kinds = [ExchangeKind::Tcp, ExchangeKind::RdmaCm];
    let mut trials = kinds.map(|kind| (Exchange::with(kind, peer), Times::new()));
    for _ in 0..TRIALS {
        for (exchange, times) in &mut trials {
            let start = Instant::now();
            let link = Link::cold(&CLIENT.device(), local, *exchange)?;
            times.record(start.elapsed());
            drop(link);
        }
    }
    let p50 = |times: &Times| times.percentile_us(50.0).unwrap_or(f64::INFINITY);
    for (exchange, times) in &trials {
        eprintln!(
            "weft-bench: verbs cold with {}: {:.0} us at p50",
            exchange.name(),
            p50(times)
        );
    }
    let [(tcp, tcp_times), (rdma_cm, rdma_cm_times)] = trials;
    Ok(match p50(&tcp_times) <= p50(&rdma_cm_times) {
        true => tcp,
        false => rdma_cm,
    })
}
